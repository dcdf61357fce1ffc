import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from extensions.study import catalogue, cells, grid
from extensions.study.__main__ import prepare
from extensions.study.grid import StudyConfig
from fsd import tracking
from fsd.config import AdapterConfig
from fsd.errors import UsageError
from fsd.models.language_model import load_tokenizer
from fsd.scoring.token_frequencies import FrequencyTable, fingerprint
from fsd.statistics import metrics
from pipelines.experiment import experiment

TRAINING = AdapterConfig(epochs=2, batch_size=2)
BEST_OF = "the one with the highest AUC on the tested texts themselves, as in the paper, so that it is too high"


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def config(tiny, texts):
    return lambda name, **more: StudyConfig(name, model=(str(tiny),), data=(texts,), training=TRAINING, **more)


@pytest.fixture
def ran(monkeypatch):
    """How the cells were trained that were computed by a stub that makes up their AUCs."""
    made = []

    def compute(study, inputs, model, run):
        made.append(inputs.config.training)
        aucs = {f"auc/{d.name}.{state}": 0.5 + 0.01 * len(made) for d in inputs.detectors for state in ("base", "fsd")}
        run.log_metrics(aucs)
        run.set_tags({"left_out": "{}", "chosen": "{}"})

    monkeypatch.setattr(cells, "compute", compute)
    return made


def cells_in():
    return tracking.find_runs("fsd-arxiv", {"kind": "cell"})


def parents(**tags):
    return [r for r in tracking.find_runs("fsd-arxiv", tags) if "kind" not in r.tags]


def test_a_second_run_runs_nothing_and_loads_no_model(here, config, ran, monkeypatch):
    prepare(config("fsd-t6")).run()
    monkeypatch.setattr("fsd.models.language_model.load", lambda *_, **__: pytest.fail("a model was loaded"))
    prepare(config("fsd-t6")).run()
    assert [training.method for training in ran] == ["adalora", "ia3", "lora"]
    newest, first = parents(study="fsd-t6")
    assert (first.metrics["cells/run"], first.metrics["cells/reused"]) == (3, 0)
    assert (newest.metrics["cells/run"], newest.metrics["cells/reused"]) == (0, 3)
    assert {cell.parent for cell in cells_in()} == {first.id}
    shown = tracking.find_runs("fsd-arxiv", {"kind": "reused cell"})
    assert [run.parent for run in shown] == [newest.id] * 3
    assert sorted(run.metrics.items() for run in shown) == sorted(run.metrics.items() for run in cells_in())
    assert {run.tags["from"] for run in shown} == {cell.id for cell in cells_in()}


@pytest.mark.slow
def test_equal_cells_are_run_once_and_shared_between_studies(here, config, ran):
    three_epochs = AdapterConfig(batch_size=2)
    prepare(replace(config("fsd-t16"), training=three_epochs)).run()
    assert len(ran) == 7
    prepare(replace(config("fsd-t6"), training=three_epochs)).run()
    assert [training.method for training in ran[7:]] == ["adalora", "ia3"]


def test_a_cell_that_cannot_be_trained_is_left_out_with_its_reason(here, config, ran, capsys):
    short = AdapterConfig(epochs=1, batch_size=2)
    prepare(replace(config("fsd-t6"), training=short)).run()
    reason = "adalora must have at least 5 steps to move its budget; got 3: take more epochs or a smaller batch-size"
    assert f"- AdaLoRA is missing where it cannot be computed: {reason}." in capsys.readouterr().out
    assert [training.method for training in ran] == ["ia3", "lora"]
    with pytest.raises(UsageError, match=f"^cell all: {reason}$"):
        prepare(replace(config("fsd-fig3"), training=replace(short, method="adalora"))).run()


def test_an_interrupted_study_resumes_and_shows_the_cells_that_it_had_finished(here, config, ran, monkeypatch):
    compute = cells.compute

    def interrupted(study, inputs, model, run):
        if inputs.config.training.method == "ia3":
            raise UsageError("no memory")
        compute(study, inputs, model, run)

    with monkeypatch.context() as patch:
        patch.setattr(cells, "compute", interrupted)
        with pytest.raises(UsageError, match=r"^cell IA3: no memory$"):
            prepare(config("fsd-t6")).run()
    prepare(config("fsd-t6")).run()
    assert [training.method for training in ran] == ["adalora", "ia3", "lora"]
    (finished,) = parents(study="fsd-t6")
    assert [cell.parent == finished.id for cell in cells_in()] == [True, True, False]  # the newest first
    (shown,) = tracking.find_runs("fsd-arxiv", {"kind": "reused cell"})
    assert shown.parent == finished.id


@pytest.mark.slow
def test_the_table_shows_the_metrics_of_the_scores(here, config, capsys):
    prepare(config("fsd-t6")).run()
    shown = capsys.readouterr().out
    (parent,) = parents()
    table = pd.read_csv(tracking.fetch_artifact(parent.id, "table.csv"))
    states = ("base", "FSD · AdaLoRA", "FSD · IA3", "FSD · LoRA")
    assert list(table.columns) == ["detector", *(f"{m} · {state}" for m in ("AUC", "TPR@5%FPR") for state in states)]
    assert shown.startswith(tracking.fetch_artifact(parent.id, "table.md").read_text())
    assert f"run     {parent.id}" in shown
    assert tracking.fetch_artifact(parent.id, "figure.png").read_bytes().startswith(b"\x89PNG")
    frames = {}
    for cell in cells_in():
        frame = pd.read_parquet(tracking.fetch_artifact(cell.id, "scores.parquet"))
        frames[cell.params["cell.method"]] = frame[frame["split"] == "test"]
    for method, frame in frames.items():
        for row in table.to_dict("records"):
            name = row["detector"]
            base, fsd = (metrics.auc(frame["label"] == 1, frame[f"{name}.{state}"]) for state in ("base", "fsd"))
            assert row["AUC · base"] == pytest.approx(base, abs=1e-4)
            assert row[f"AUC · FSD · {method}"] == pytest.approx(fsd, abs=1e-4)
    first, second = list(frames.values())[:2]
    assert first["perplexity.base"].tolist() == second["perplexity.base"].tolist()
    assert first["perplexity.fsd"].tolist() != second["perplexity.fsd"].tolist()


def test_base_scores_train_nothing_and_the_best_of_a_grid_is_chosen_on_the_tested_texts(
    here, tiny, texts, monkeypatch, capsys
):
    monkeypatch.setattr(experiment.Experiment, "train", lambda *_: pytest.fail("an adapter was trained"))
    config = StudyConfig("surp-t3", model=(str(tiny),), data=(texts,))
    prepare(config).run()
    shown, _, end = capsys.readouterr().out.partition("\nrun ")
    assert end
    (cell,) = cells_in()
    setting = json.loads(cell.tags["chosen"])["surp best of grid"].removeprefix("surp ")
    assert f"surp best of grid: of 200 settings, {BEST_OF}. Chosen in the cells: {setting} (1)." in shown
    assert cell.metrics["auc/surp best of grid.base"] > cell.metrics["auc/surp entropy 2.5.base"]
    prepare(config).run()
    assert capsys.readouterr().out.partition("\nrun ")[0] == shown  # the choice is stored with the cell


@pytest.mark.slow
def test_reference_and_neighbour_have_rows_where_their_models_are_given(here, tiny, other, masked_lm, tmp_path):
    file = tmp_path / "common.jsonl"
    rows = [{"text": f"the cat sat on {n} mat {n * 7} ran {n * n} dog {n + 50}", "label": n % 2} for n in range(24)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    given = {"reference_model": (str(other),), "neighbour_model": str(masked_lm)}
    prepare(StudyConfig("surp-t3", model=(str(tiny),), data=(str(file),), **given)).run()
    prepare(StudyConfig("surp-t3", model=(str(tiny),), data=(str(file),))).run()
    newest, first = parents()
    rows = [pd.read_csv(tracking.fetch_artifact(run.id, "table.csv"))["detector"] for run in (first, newest)]
    assert set(rows[0]) - set(rows[1]) == {"reference", "neighbour"}


def test_a_dry_run_names_the_cells_and_runs_none(here, ran):
    plan = prepare(StudyConfig("fsd-t1", scale="full", split="paper"))
    assert plan.notes[0] == (
        "cell wikimia, EleutherAI/gpt-j-6b: model EleutherAI/gpt-j-6b; data wikimia; split paper, unseen 0.3"
    )
    assert (len(plan.notes), ran, parents()) == (10, [], [])


@pytest.fixture
def two_tokenizers(tiny, other, tmp_path):
    """A study of two models with different tokenizers, each with a reference and a table of its token frequencies."""
    second, reference = tmp_path / "second", tmp_path / "reference"
    for model, folder in ((tiny, second), (other, reference)):
        shutil.copytree(model, folder)
        tokenizer = json.loads((folder / "tokenizer.json").read_text())
        tokenizer["pre_tokenizer"]["add_prefix_space"] = True
        (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    models, tables = (str(tiny), str(second)), []
    for at, model in enumerate(models):
        backend, size = load_tokenizer(model)
        tables.append(str(tmp_path / f"table{at}.npz"))
        counts = np.arange(size, dtype=np.int64)
        FrequencyTable(counts, fingerprint(backend), model, "any", 1).save(Path(tables[-1]))
    references = (str(other), str(reference))
    return {"model": models, "frequencies": tuple(tables), "reference_model": references, "scale": "full"}


def test_models_with_different_tokenizers_have_their_own_tables(here, texts, two_tokenizers):
    swapped = {**two_tokenizers, "frequencies": two_tokenizers["frequencies"][::-1]}
    with pytest.raises(UsageError, match=r"frequency table must be made with the tokenizer of '[^']*tiny'"):
        prepare(StudyConfig("dcpdd-t2", data=(texts,), **swapped)).run()
    assert parents() == []  # refused before any cell
    prepare(StudyConfig("dcpdd-t2", data=(texts,), **two_tokenizers)).run()
    (parent,) = parents()
    cells = pd.read_csv(tracking.fetch_artifact(parent.id, "cells.csv"))
    computed = cells[cells["metric"] == "AUC"].groupby("model")["detector"].agg(set)
    detectors = {detector.shown for detector in catalogue.studies()["dcpdd-t2"].detectors}
    assert computed.to_dict() == {"tiny": detectors, "second": detectors}


def test_a_study_whose_texts_are_not_here_says_how_to_get_them(here, capsys):
    said = r"give --data patentmia:FILE \(unpack data.zip of github.com/zhang-wei-chao/DC-PDD\), or labelled files"
    with pytest.raises(UsageError, match=said):
        prepare(StudyConfig("dcpdd-fig3", scale="full", frequencies=("t.npz",)))
    with pytest.raises(UsageError, match=r"there is no P.jsonl: unpack data.zip"):
        prepare(StudyConfig("dcpdd-fig3", scale="full", model=("embedded",), data=("patentmia:P.jsonl",))).run()


def test_the_list_names_every_study_and_what_it_needs(capsys):
    prepare(StudyConfig(list=True)).run()
    lines = capsys.readouterr().out
    assert all(f"\n{name}" in f"\n{lines}" for name in catalogue.studies())
    assert "--frequencies" in lines
    assert "--scale small: can run here" in lines


@pytest.fixture
def books(here):
    """Eight whole books of each side, every word of which says its place: w7 is the word number 7 of its book."""
    for side, seed in (("dolma", 1), ("new", 2)):
        rows = []
        for book in range(8):
            rng = np.random.default_rng([seed, book])
            names = rng.integers(10, 99, 4200)
            words = [f"w{place} {name}" for place, name in enumerate(names)]
            rows.append({"id": f"{side} {book}", "text": "\n".join(words)})
        Path(f"{side}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return "dolma_book:dolma.jsonl,new.jsonl"


def printed_for_books(root):
    """Study → the flags of its command in docs/papers.md, for those of books."""
    lines = (root / "docs" / "papers.md").read_text(encoding="utf-8").splitlines()
    commands = [line.split("`")[1] for line in lines if "dolma_book:" in line]
    return {command.split()[2]: command.split()[3:] for command in commands}


def test_the_printed_commands_for_books_take_their_passages_of_them(root, books, tiny):
    """Of 8,400 words, segments of 1,024 begin at 0, 4,096, 6,144 and 7,168; of 512 at 0, 4,096, 7,168 and 7,680."""
    printed = printed_for_books(root)
    assert set(printed) == {"surp-t2", "surp-tpr-books", "surp-books512", "surp-fig4", "surp-fig4-tail"}
    long = {"head": [0], "middle": [4096], "tail": [6144, 7168]}
    begins = {
        "surp-t2": long,
        "surp-tpr-books": long,
        "surp-books512": {"head": [0], "middle": [4096], "tail": [7168, 7680]},
    }
    begins |= {"surp-fig4": {"all": long["middle"]}, "surp-fig4-tail": {"all": long["tail"]}}
    for name, flags in printed.items():
        assert flags == ["--scale", "full", "--data", "dolma_book:MEMBERS,NONMEMBERS"]
        _, study = catalogue.load(name)
        size = 512 if name == "surp-books512" else 1024
        for cell in grid.plan(name, study, StudyConfig(name, scale="full", model=(str(tiny),), data=(books,))):
            expected = begins[name][cell.labels.get("passage from", "all")]
            documents = cells.read(cell, study).split.test
            assert len(documents) == 16 * len(expected)
            for document in documents:
                words = document.text.split()
                assert len(words) == size
                assert 2 * int(words[0].removeprefix("w")) in expected
            assert {document.member for document in documents} == {True, False}


def test_books_that_cannot_be_cut_are_refused_in_a_dry_run(books, tiny):
    config = StudyConfig("surp-t2", scale="full", model=(str(tiny),), data=(f"{books},middle",))
    with pytest.raises(UsageError, match="two files, then one of head, middle, tail, whole or none"):
        prepare(config).plan()
    # As collected in segments, of which one side's would be head, middle and tail alike.
    segments = [{"text": "word " * 1024, "id": f"b{number}"} for number in range(8)]
    Path("new.jsonl").write_text("".join(json.dumps(row) + "\n" for row in segments))
    with pytest.raises(UsageError, match="must be whole works, not segments of 1,024 words"):
        prepare(replace(config, data=(books,))).plan()
    Path("rows.jsonl").write_text("".join(json.dumps(row | {"group": "b"}) + "\n" for row in segments))
    with pytest.raises(UsageError, match="has 8: collect with --options places=whole"):
        prepare(replace(config, data=("dolma_book:dolma.jsonl,rows.jsonl",))).plan()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["surp-t2", "surp-tpr-books", "surp-books512", "surp-fig4", "surp-fig4-tail"])
def test_the_printed_commands_for_books_run(name, root, books, tiny):
    flags = printed_for_books(root)[name]
    config = StudyConfig(name, scale=flags[1], model=(str(tiny),), data=(books,), device="cpu")
    prepare(config).plan()
    prepare(config).run()
    (record,) = parents(study=name)
    table = pd.read_csv(tracking.fetch_artifact(record.id, "cells.csv"))
    assert table["value"].notna().all()
    if name == "surp-t2":
        assert table.query("detector == 'loss'")["value"].nunique() == 3
