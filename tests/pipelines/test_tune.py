"""Tuning end to end on a tiny random model."""

import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from fsd.config import DetectorConfig, FSDConfig, ModelConfig, ScoreConfig, TuneConfig
from fsd.data.corpus import Split
from fsd.data.documents import Document
from fsd.errors import UsageError
from fsd.statistics.metrics import auc
from pipelines.experiment import experiment, inputs, registration
from pipelines.experiment.detector_settings import load_detectors
from pipelines.score.job import prepare as score
from pipelines.tune import adapter, report
from pipelines.tune.job import digest, tuning_data
from pipelines.tune.tuning import prepare

TASKS = ("min_k.base", "min_k.fsd", "min_k_deviation.fsd")
"""Detectors and scores that are tuned."""


@pytest.fixture
def job(job, make_rows):
    Path("data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in make_rows(120, 1)))
    return replace(
        job,
        data=replace(job.data, validation=0.3),
        training=replace(job.training, batch_size=8),
        detection=DetectorConfig(detectors="min_k,min_k_deviation"),
    )


@pytest.fixture
def config(job, tmp_path):
    return TuneConfig(base_run=job, storage=f"journal:{tmp_path}/trials.log", study="s", trials=20, folds=3, repeats=2)


@pytest.mark.parametrize(
    "changes",
    [{"first_token": "given"}, {"chats": "whole"}, {"chat_template": "a.jinja"}, {"neighbours": 5}, {"samples": 5}],
    ids=str,
)
def test_what_changes_scores_begins_a_study_of_its_own(changes):
    """Trials by another start token would count as those of this one."""
    texts = [Document(f"text {number}", member=number % 2 == 0) for number in range(20)]
    studies = set()
    for model in (ModelConfig(), ModelConfig(**changes), ModelConfig(device="cpu", cache="none", max_batch_tokens=9)):
        config = TuneConfig(base_run=FSDConfig(model=model), folds=2)
        studies.add(tuning_data(config, Split((), tuple(texts), ()), "f").study)
    assert len(studies) == 2


@pytest.mark.slow
def test_winners_are_compared_registered_and_used(config, capsys):
    from mlflow import MlflowClient

    prepare(config).run()
    said = capsys.readouterr().out
    assert "Tuned for auc on validation; the test texts were opened once" in said
    assert "more on validation than on the test texts" in said
    client = MlflowClient(f"sqlite:///{Path.cwd()}/mlruns/mlflow.db")  # MLflow keeps relative ones open
    run, *others = sorted(client.search_runs(["1"]), key=lambda run: "mlflow.parentRunId" in run.data.tags)
    assert {other.info.run_name for other in others} == {f"tune {task}" for task in TASKS}
    assert {other.data.tags["mlflow.parentRunId"] for other in others} == {run.info.run_id}
    names = {a.path for a in client.list_artifacts(run.info.run_id)}
    assert {"trials.csv", "tuning.csv", "settings.json", "setup.json", "scores.parquet"} <= names
    assert {"history.png", "curve_min_k.png", "curve_min_k_deviation.png", "report.html"} <= names
    folder = Path(client.download_artifacts(run.info.run_id, "", "got"))
    trials = pd.read_csv(folder / "trials.csv")
    assert trials.groupby("study").size().to_dict() == dict.fromkeys(TASKS, 20)
    settings = json.loads((folder / "settings.json").read_text())["detectors"]
    table = pd.read_csv(folder / "tuning.csv").set_index("task")
    assert json.loads(table.loc["min_k.fsd", "tuned"]) == settings["min_k"]["fsd"]
    for other in others:
        row = table.loc[other.info.run_name.removeprefix("tune ")]
        assert other.data.params == {name: str(value) for name, value in json.loads(row["tuned"]).items()}
        assert other.data.metrics["tuning/test_gain"] == pytest.approx(row["test_gain"])
        assert other.data.metrics["tuning/trials"] == 20
    best = trials[trials.study == "min_k.fsd"].value.max()
    assert table.loc["min_k.fsd", "validation_tuned"] == pytest.approx(best)
    gap = table["validation_tuned"] - table["test_tuned"]
    assert run.data.metrics["tuning/gap"] == pytest.approx(gap.mean())

    # the main job takes the settings over, and its test scores are those that were compared here
    detection = replace(config.base_run.detection, settings_from="models:/fsd-arxiv/1")
    used = load_detectors(detection)
    assert {d.name: dict(d.settings) for d in used} == {name: states["fsd"] for name, states in settings.items()}
    assert dict(used[0].for_base.settings) == settings["min_k"]["base"] != settings["min_k"]["fsd"]
    by_hand = load_detectors(replace(detection, settings=("min_k.k=0.15",)))
    assert by_hand[0].settings["k"] == by_hand[0].for_base.settings["k"] == 0.15
    by_hand = load_detectors(replace(detection, settings=("min_k.base.k=0.15",)))
    assert [d.settings["k"] for d in (by_hand[0], by_hand[0].for_base)] == [settings["min_k"]["fsd"]["k"], 0.15]
    scores = pd.read_parquet(folder / "scores.parquet").query("split == 'test'")
    for state in ("base", "fsd"):  # each at its own best settings
        column = scores[f"min_k.{state}"]
        assert auc(scores.label == 1, column) == pytest.approx(table.loc[f"min_k.{state}", "test_tuned"])
    logged = registration.chosen_params(config.base_run, used)["detector"]
    assert logged["min_k"] == {**settings["min_k"]["fsd"], "base": settings["min_k"]["base"]}
    texts = scores[["text", "label"]]
    texts.to_json("test.jsonl", orient="records", lines=True)
    detection = replace(detection, detectors="min_k")
    score(
        ScoreConfig(data=("test.jsonl",), out="scored.parquet", model=config.base_run.model, detection=detection)
    ).run()
    np.testing.assert_allclose(pd.read_parquet("scored.parquet")["min_k.base"], scores["min_k.base"], rtol=1e-5)


def studies(config: TuneConfig) -> dict[str, list[object]]:
    """Name, winners and trials of all studies; those of "shuffled" with the test labels permuted."""
    from pipelines.experiment import experiment
    from pipelines.tune import detectors

    base_run = config.base_run
    documents = inputs.load_texts(base_run.data, base_run.model).documents
    parts, _ = inputs.split_texts(documents, base_run.data, base_run.seed)
    labels = np.random.default_rng(0).permutation([bool(d.member) for d in parts.test])
    if config.study == "shuffled":
        parts = parts.replace(test=tuple(replace(d, member=bool(m)) for d, m in zip(parts.test, labels, strict=True)))
    model = experiment.Experiment(base_run, []).open()
    tuned = detectors.tune(config, tuning_data(config, parts, "f"), model, None)
    plain = tuning_data(replace(config, study=None), parts, "f").study
    trials = {label: [t.user_attrs for t in tried] for label, tried in tuned.trials.items()}
    return {"name": [plain], "winners": list(tuned.winners), **trials}


@pytest.mark.slow
def test_no_test_label_reaches_the_tuner(config):
    config = replace(config, sampler="tpe", trials=8)
    assert studies(config) == studies(replace(config, study="shuffled"))


@pytest.mark.slow
def test_an_adapter_is_tuned_by_training(config):
    from mlflow import MlflowClient

    prepare(
        replace(
            config,
            tune="adapter",
            trials=3,
            base_run=replace(config.base_run, detection=DetectorConfig(detectors="loss")),
        )
    ).run()
    client = MlflowClient(f"sqlite:///{Path.cwd()}/mlruns/mlflow.db")  # MLflow keeps relative ones open
    runs = client.search_runs(["1"])
    parent = next(r for r in runs if "mlflow.parentRunId" not in r.data.tags)
    nested = [r for r in runs if r.data.tags.get("mlflow.parentRunId") == parent.info.run_id]
    done = [r for r in nested if r.info.status == "FINISHED"]
    assert len(done) == 3  # settings that were refused, such as AdaLoRA in too few steps, end as FAILED
    assert all("validation_auc/loss.fsd" in r.data.metrics for r in done)
    assert "tuning/test_gain" in parent.data.metrics


@pytest.mark.slow
@pytest.mark.parametrize(
    ("names", "shares"), [("loss", (0.25, 0.5, 1)), ("loss,unread_z", (0.5, 1)), ("loss,adapted_wbc", (1,))]
)
def test_no_trial_has_fewer_unseen_texts_than_what_was_named_needs(
    config, other, make_rows, monkeypatch, names, shares
):
    """Of 48, a quarter is too few for unread_z, and a half for a fine-tuned reference: refused after all trials."""
    Path("data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in make_rows(320, 1)))
    searched = []

    def stopped(task, *_):
        searched.append(task.space["unseen"].values)
        raise KeyboardInterrupt

    monkeypatch.setattr(adapter, "search", stopped)
    model = replace(config.base_run.model, reference_model=str(other))
    base_run = replace(config.base_run, model=model, detection=DetectorConfig(detectors=names))
    with pytest.raises(KeyboardInterrupt):
        prepare(replace(config, tune="adapter", base_run=base_run)).run()
    assert searched == [shares]


@pytest.mark.slow
@pytest.mark.parametrize("tune", ["detectors", "adapter"])
def test_workers_tune_what_compares_with_unread_texts(config, other, make_rows, capsys, tune):
    """Their statistics held the model by which they were computed, which no process can hand to another."""
    Path("data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in make_rows(160, 1)))
    model = replace(config.base_run.model, reference_model=str(other))
    base_run = replace(config.base_run, model=model, detection=DetectorConfig(detectors="unread_z"))
    prepare(replace(config, tune=tune, trials=3, workers=2, base_run=base_run)).run()
    assert "unread_z.fsd" in capsys.readouterr().out


@pytest.mark.parametrize("names", ["con_recall", "adapted_unread_z", "adapted_wbc,camia_lr"])
def test_an_adapter_needs_a_detector_by_which_trials_are_compared(config, names):
    """Trials with none failed one after another, as a mean of nothing."""
    base_run = replace(config.base_run, detection=DetectorConfig(detectors=names))
    with pytest.raises(UsageError, match="must not all need known members or a fine-tuned reference"):
        prepare(replace(config, tune="adapter", base_run=base_run))


def test_studies_are_named_by_domain_detector_state_and_seed(config):
    texts = [Document(f"{at} of the validation texts", bool(at % 2), group=f"g{at}") for at in range(12)]
    parts = Split((), tuple(texts), tuple(texts))
    assert tuning_data(config, parts, "f").name_of("min_k.fsd") == "s/min_k.fsd"
    name = tuning_data(replace(config, study=None), parts, "f").name_of("min_k.fsd")
    assert re.fullmatch(r"arxiv min_k\.fsd seed 42 [0-9a-f]{8}", name)


def test_the_digest_tells_texts_labels_and_groups():
    documents = [Document("a", True, group="g"), Document("b", False)]
    changed = [documents[:1], documents[::-1], [documents[0], Document("b", True)], [Document("a", True), documents[1]]]
    assert len({digest(documents), *(digest(other) for other in changed)}) == 5


@pytest.mark.slow
def test_another_setup_is_refused_before_the_training(config, monkeypatch):
    prepare(
        replace(config, trials=1, base_run=replace(config.base_run, detection=DetectorConfig(detectors="min_k")))
    ).run()
    monkeypatch.setattr(experiment.Experiment, "train", None)
    with pytest.raises(UsageError, match=r"'s/min_k.base' must be continued .*repeats: begun with 2, got 3"):
        prepare(replace(config, repeats=3)).run()


def test_the_interval_over_folds_ends_at_one():
    """Of four folds with the mean .95 and the standard error .05 it would end at 1.11."""
    validation = SimpleNamespace(folds=[np.arange(2)] * 4, member=np.zeros(8))
    task = SimpleNamespace(default={}, evaluate=lambda settings: np.array([1, 1, 0.8, 1]), validation=validation)
    assert report._over_folds(task, {}) == pytest.approx((0.95, 0.95 - 3.182446 * 0.05, 1))
