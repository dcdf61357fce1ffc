import json
import shutil
from dataclasses import replace

import pandas as pd
import pytest

from fsd import tracking
from fsd.config import AdapterConfig
from fsd.errors import UsageError
from fsd.evaluation import metrics
from pipelines.study import cells as _cells
from pipelines.study import model_pool as _workbench
from pipelines.study import spec as studies
from pipelines.study.__main__ import StudyConfig, main
from pipelines.study.cells import work
from pipelines.study.grid import Request, plan

TRAINING = AdapterConfig(epochs=2, batch_size=2)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Creating the tables takes seconds, copying them does not."""
    folder = tmp_path_factory.mktemp("store")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        tracking.open_store()
    return folder / "mlruns"


@pytest.fixture
def here(tmp_path, monkeypatch, store):
    shutil.copytree(store, tmp_path / "mlruns")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """40 texts that share no words, each with a group of its own."""
    file = tmp_path_factory.mktemp("texts") / "texts.jsonl"
    rows = [
        {
            "text": " ".join(f"{chr(97 + (n + k) % 26)}{n}{k}" for k in range(6 + n % 5)),
            "label": n % 2,
            "group": f"g{n}",
        }
        for n in range(40)
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(file)


@pytest.fixture
def ask(tiny, texts):
    return lambda name, **more: StudyConfig(name, model=(str(tiny),), data=(texts,), training=TRAINING, **more)


@pytest.fixture
def ran(monkeypatch):
    """A cell runner that makes numbers up, and the names of the cells that it ran."""
    names = []

    def run_cell(item, bench, run):
        names.append(item.cell.name)
        aucs = {f"auc/{d.name}.{state}": 0.5 + 0.01 * len(names) for d in item.detectors for state in ("base", "fsd")}
        numbers = {**_cells._sizes(item.parts), **aucs}
        run.log_metrics(numbers)
        return numbers, {}

    monkeypatch.setattr(_cells, "run_cell", run_cell)
    return names


def cells_in(store_name="fsd-arxiv", **tags):
    return tracking.find_runs(store_name, {"kind": "cell", **tags})


def parents(**tags):
    return [r for r in tracking.find_runs("fsd-arxiv", tags) if "kind" not in r.tags]


def test_a_second_run_runs_nothing(here, ask, ran):
    main(ask("fsd-t6"))
    main(ask("fsd-t6"))
    assert ran == ["AdaLoRA", "IA3", "LoRA"]
    newest, first = parents(study="fsd-t6")
    assert (first.metrics["cells/run"], first.metrics["cells/reused"]) == (3, 0)
    assert (newest.metrics["cells/run"], newest.metrics["cells/reused"]) == (0, 3)
    assert {cell.parent for cell in cells_in()} == {first.id}


def test_equal_cells_are_run_once_and_shared_between_studies(here, ask, ran):
    main(replace(ask("fsd-t16"), training=AdapterConfig()))
    assert len(ran) == 7
    assert ran.count("learning rate 0.001") == 1
    main(replace(ask("fsd-t6"), training=AdapterConfig()))
    assert ran[7:] == ["AdaLoRA", "IA3"]


def test_an_interrupted_study_resumes_and_takes_its_cells_along(here, ask, ran, monkeypatch):
    whole = _cells.run_cell

    def interrupted(item, bench, run):
        if item.cell.name == "IA3":
            raise KeyboardInterrupt
        return whole(item, bench, run)

    with monkeypatch.context() as patch:
        patch.setattr(_cells, "run_cell", interrupted)
        with pytest.raises(KeyboardInterrupt):
            main(ask("fsd-t6"))
    main(ask("fsd-t6"))
    assert ran == ["AdaLoRA", "IA3", "LoRA"]
    (finished,) = parents(study="fsd-t6")
    assert [cell.parent for cell in cells_in()] == [finished.id] * 3


def test_a_failed_cell_is_run_again(here, ask, ran, monkeypatch):
    def failing(item, bench, run):
        raise UsageError("cell LoRA: no memory")

    with monkeypatch.context() as patch:
        patch.setattr(_cells, "run_cell", failing)
        with pytest.raises(UsageError, match="no memory"):
            main(ask("fsd-t6"))
    main(ask("fsd-t6"))
    assert len(ran) == 3


@pytest.fixture
def key(tiny, texts):
    def key(name="fsd-t6", at=2, model=tiny, data=texts, **more):
        asked = Request(model=(str(model),), data=(data,), **more)
        study = studies.read(name)
        with _workbench.workbench() as bench:
            return work(plan(name, study, asked)[at], study, bench).key

    return key


def test_the_key_is_of_all_that_the_numbers_depend_on_and_of_nothing_else(key, other, tmp_path, texts, monkeypatch):
    same = tmp_path / "elsewhere.jsonl"
    shutil.copy(texts, same)
    assert key() == key() == key(data=str(same)) == key(domain="wikipedia")
    changed = tmp_path / "changed.jsonl"
    changed.write_text((tmp_path / "elsewhere.jsonl").read_text().replace("a0", "b0"))
    keys = [key(), key(at=1), key(model=other), key(seed=1), key(data=str(changed)), key(training=TRAINING)]
    monkeypatch.setattr(_cells, "CODE", (*_cells.CODE, "fsd.reporting.figures"))
    keys.append(key())
    assert len(set(keys)) == len(keys)


def test_a_cell_that_trains_nothing_does_not_depend_on_the_training(key):
    assert key("surp-t3", at=0) == key("surp-t3", at=0, training=TRAINING)
    assert key("fsd-fig4", at=0) == key("fsd-fig4", at=0, training=TRAINING)
    assert key("fsd-t6", at=2) != key("fsd-t6", at=2, training=TRAINING)


def test_no_model_is_loaded_when_all_cells_are_known(here, ask, ran, monkeypatch):
    main(ask("fsd-t6"))
    monkeypatch.setattr(_workbench.Workbench, "model", lambda *_: pytest.fail("a model was loaded"))
    main(ask("fsd-t6"))


@pytest.mark.slow
def test_the_numbers_are_those_of_the_scores(here, ask, capsys):
    main(ask("fsd-t6"))
    shown = capsys.readouterr().out
    (parent,) = parents()
    table = pd.read_csv(tracking.fetch_artifact(parent.id, "table.csv"))
    assert list(table.columns) == ["detector", "base", "FSD · AdaLoRA", "FSD · IA3", "FSD · LoRA"]
    assert shown.strip() == tracking.fetch_artifact(parent.id, "table.md").read_text().strip()
    assert tracking.fetch_artifact(parent.id, "figure.png").read_bytes().startswith(b"\x89PNG")
    frames = {}
    for cell in cells_in():
        frame = pd.read_parquet(tracking.fetch_artifact(cell.id, "scores.parquet"))
        frames[cell.params["cell.method"]] = frame[frame["split"] == "test"]
    for method, frame in frames.items():
        for row in table.to_dict("records"):
            name = row["detector"]
            base, fsd = (metrics.auc(frame["label"] == 1, frame[f"{name}.{state}"]) for state in ("base", "fsd"))
            assert row["base"] == pytest.approx(base, abs=1e-4)
            assert row[f"FSD · {method}"] == pytest.approx(fsd, abs=1e-4)
    first, second = list(frames.values())[:2]
    assert first["perplexity.base"].tolist() == second["perplexity.base"].tolist()
    assert first["perplexity.fsd"].tolist() != second["perplexity.fsd"].tolist()


@pytest.mark.slow
def test_base_scores_alone_need_no_training(here, ask, monkeypatch, capsys):
    from pipelines.common import experiment

    monkeypatch.setattr(experiment, "tune", lambda *_: pytest.fail("an adapter was trained"))
    main(ask("surp-fig4"))
    (cell,) = cells_in()
    (parent,) = parents()
    assert cell.metrics["texts/test"] == 40
    table = pd.read_csv(tracking.fetch_artifact(parent.id, "table.csv"), index_col="entropy")
    assert table.shape == (20, 10)
    assert table.loc[2.0, "40"] == pytest.approx(cell.metrics["auc/surp entropy 2.0 k 40.0.base"], abs=1e-4)


def test_the_list_names_every_study_and_what_it_needs(capsys):
    main(StudyConfig(list=True))
    lines = capsys.readouterr().out
    assert all(f"\n{name}" in f"\n{lines}" for name in studies.names())
    assert "--frequencies" in lines


@pytest.mark.parametrize("name", ["", "fsd-t99"])
def test_a_name_that_is_none_is_refused_with_the_names_that_are(name):
    with pytest.raises(UsageError, match="study must be one of dcpdd-fig2"):
        main(StudyConfig(name))
