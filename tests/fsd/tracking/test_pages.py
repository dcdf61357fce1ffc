import json

from fsd import tracking


def test_a_run_ends_with_its_score_in_the_name_and_its_result_as_description(here):
    with tracking.run("fsd-x", tracking.run_name("tiny", "arxiv", "lora")) as run:
        run.conclude("loss .67", "loss FSD AUC .67 [.61, .74]\n\nAdvice.")
        run.describe_experiment("loss FSD AUC .67")

    record = tracking.find_runs("fsd-x")[0]
    assert record.name == "tiny · arxiv · lora · loss .67"
    assert record.tags["mlflow.note.content"].startswith("loss FSD AUC .67 [.61, .74]")
    experiment = run.store.client.get_experiment_by_name("fsd-x")
    assert run.id in experiment.tags["mlflow.note.content"]
    assert "workflowType=machine_learning" in experiment.tags["mlflow.note.content"]


def test_a_description_of_the_users_is_kept(here):
    with tracking.run("fsd-x", "a") as run:
        client = run.store.client
        client.set_experiment_tag(client.get_experiment_by_name("fsd-x").experiment_id, "mlflow.note.content", "Mine.")
        run.describe_experiment("loss FSD AUC .67")

    assert client.get_experiment_by_name("fsd-x").tags["mlflow.note.content"] == "Mine."


def test_the_page_of_an_experiment_opens_the_training_runs_with_the_headline_columns(here):
    with tracking.run("fsd-x", "a") as run:
        pass

    experiment = run.store.client.get_experiment_by_name("fsd-x")
    address = tracking.address(tracking.server(run.store), experiment.experiment_id)
    assert address.startswith(f"http://127.0.0.1:5000/#/experiments/{experiment.experiment_id}/runs?")
    assert {"workflowType=machine_learning", "viewStateShareKey=fsd"} == set(address.partition("?")[2].split("&"))
    columns = json.loads(experiment.tags["mlflow.sharedViewState.fsd"])["selectedColumns"]
    assert columns[:2] == ["attributes.`Description`", "metrics.`headline/fsd_auc`"]
