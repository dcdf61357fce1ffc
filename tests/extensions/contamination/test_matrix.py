"""Several models and data sets in one table, whose finished cells are not computed again."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from extensions.contamination import matrix
from extensions.contamination.dataset import read
from extensions.contamination.settings import ContaminationConfig
from fsd.config import AdapterConfig, APIConfig, DetectorConfig, ModelConfig
from fsd.data.embedded import corpus
from fsd.errors import UsageError
from fsd.tracking import find_runs


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny: Path) -> ContaminationConfig:
    monkeypatch.chdir(tmp_path)
    texts = [document.text for document in corpus()]
    for number, name in enumerate(("a.jsonl", "b.jsonl")):
        rows = [json.dumps({"text": text}) + "\n" for text in texts[number * 20 :][:20]]
        Path(name).write_text("".join(rows))
    return ContaminationConfig(
        files=("a.jsonl", "b.jsonl"),
        model=ModelConfig(model=str(tiny), device="cpu"),
        training=AdapterConfig(epochs=1, batch_size=4),
        detection=DetectorConfig(detectors="loss"),
        orders=3,
    )


def test_cells_are_runs_and_finished_ones_are_kept(config, monkeypatch, capsys) -> None:
    examined = []
    examine = matrix.examine

    def counted(cell, *rest):
        examined.append(cell.config.files)
        if stops and len(examined) == 2:
            raise KeyboardInterrupt
        return examine(cell, *rest)

    monkeypatch.setattr(matrix, "examine", counted)
    stops = True
    with pytest.raises(KeyboardInterrupt):
        matrix.prepare(config).run()
    assert examined == [("a.jsonl",), ("b.jsonl",)]
    # the first cell is finished, and another name of its file makes no other cell of it
    stops = False
    examined.clear()
    Path("a.jsonl").rename("c.jsonl")
    matrix.prepare(replace(config, files=("c.jsonl", "b.jsonl"))).run()
    assert examined == [("b.jsonl",)]
    examined.clear()
    matrix.prepare(replace(config, files=("c.jsonl", "b.jsonl"))).run()
    assert examined == []
    cells = find_runs("fsd-contamination", {"kind": "cell"})
    assert len(cells) == 2
    assert all(cell.parent for cell in cells)
    shown = " ".join(capsys.readouterr().out.split())
    assert "no evidence of training in any of 2 cells" in shown
    assert "power: of data sets seen in training, a cell alone finds about this share" in shown


def key(config: ContaminationConfig, *, detectors: str = "loss", **model: object) -> str:
    """The key of the first cell, with other settings of the model."""
    config = replace(
        config,
        files=("a.jsonl",),
        detection=replace(config.detection, detectors=detectors),
        model=replace(config.model, **model),
    )
    return read(config).tag


def test_a_finished_cell_is_found_only_by_all_that_its_numbers_depend_on(config, tiny: Path, other: Path) -> None:
    behind = replace(config, model=replace(config.model, model="api:x"), api=APIConfig(base_url="http://a/v1"))
    keys = {
        "plain": key(config),
        "seed": key(replace(config, seed=1)),
        "level": key(replace(config, level=0.1)),
        "first token": key(config, first_token="given"),
        "weights": key(config, model=str(other)),
        "precision": key(config, dtype="bfloat16"),
        "settings": key(config, detectors="min_k"),
        "base settings": key(
            replace(config, detection=DetectorConfig(settings=("min_k.base.k=0.3",))), detectors="min_k"
        ),
        "api": key(behind),
        "address": key(replace(behind, api=replace(behind.api, base_url="http://b/v1"))),
        "start token": key(replace(behind, api=replace(behind.api, start_token="<s>"))),
        "tokenizer": key(replace(behind, api=replace(behind.api, tokenizer=str(tiny)))),
    }
    assert len(set(keys.values())) == len(keys), keys
    # Where files lie, and what is asked how fast, changes no number.
    moved = replace(config, api=APIConfig(concurrency=1), answers="elsewhere", domain="mine")
    assert key(moved, cache="none", chats="whole", samples=3, neighbours=3) == keys["plain"]


def test_tables_and_reference_models_count_by_what_is_in_them(config, tiny: Path, other: Path) -> None:
    files = []
    for content in ("one", "two"):
        Path("table.npz").write_text(content)
        files.append(key(config, detectors="dc_pdd", frequencies="table.npz"))
        # A detector that reads no table leaves the cell as it was.
        assert key(config, frequencies="table.npz") == key(config)
    assert len(set(files)) == 2
    references = {key(config, detectors="reference", reference_model=str(model)) for model in (tiny, other)}
    assert len(references) == 2
    Path("again").symlink_to(other)
    assert key(config, detectors="reference", reference_model="again") in references


def test_one_model_and_one_file_are_a_single_run(config, monkeypatch) -> None:
    tested = []
    monkeypatch.setattr(matrix, "run", lambda cell: tested.append((cell.config.files, cell.config.model.model)))
    matrix.prepare(replace(config, files=("a.jsonl",))).work()
    matrix.prepare(replace(config, files=("a.jsonl",), models=(config.model.model,))).work()
    assert tested == [(("a.jsonl",), config.model.model)] * 2


def test_cells_are_corrected_for_their_number(config) -> None:
    single = replace(config, files=("a.jsonl",))
    cells = [replace(read(single), config=replace(single, files=(name,))) for name in ("one", "two", "three")]
    powers = {f"contamination_power/read_{times}": times / 5 for times in (1, 2, 5)}
    share = {f"contamination/share{end}": value for end, value in (("", 0.5), ("_low", 0.2), ("_high", 0.7))}
    numbers = [{"contamination/p": 0.02}, {"contamination/p": 0.016, **share}, {}]
    records = [SimpleNamespace(id=f"run {at}", metrics=powers | of_cell) for at, of_cell in enumerate(numbers)]
    report = matrix.table_of(config, cells, records)
    (table,) = report.tables
    assert table.numbers["p_holm"].astype(float).fillna(-1).tolist() == [0.032, 0.032, -1]
    assert [line[2:] for line in table.rows] == [
        ["–", ".020", ".032", "20% / 40% / 100%"],
        [".50 [.20, .70]", ".016", ".032", "20% / 40% / 100%"],
        ["–", "–", "–", "20% / 40% / 100%"],
    ]
    assert report.notes[0].startswith(f"evidence of training in 2 of 3 cells: {config.model.model} on one, ")
    assert report.metrics == {"contamination/cells": 3, "contamination/found": 2}
    report = matrix.table_of(replace(config, level=0.03), cells, records)
    assert report.notes[0].startswith("no evidence of training in any of 3 cells")


def test_a_training_split_belongs_to_its_task(config) -> None:
    known = ("private.jsonl", "lm-eval:x:train", "lm-eval:y:train")
    cell = matrix.of_cell(replace(config, known=known, models=("m", "n")), "n", "lm-eval:x")
    assert cell.known == ("private.jsonl", "lm-eval:x:train")
    assert (cell.files, cell.models, cell.model.model) == (("lm-eval:x",), (), "n")


def test_what_cannot_be_a_table_is_refused(config) -> None:
    with pytest.raises(UsageError, match="models must be on this machine, or one alone behind an API; got m, api:x"):
        matrix.prepare(replace(config, models=("m", "api:x")))
    Path("few.jsonl").write_text('{"text": "a"}\n')
    with pytest.raises(UsageError, match=r"on few\.jsonl: data must fill 2 shards of 5 texts; got 1 texts"):
        matrix.prepare(replace(config, files=("a.jsonl", "few.jsonl")))


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("model.safetensors", "weights must be a whole safetensors file; bad/model"),
        ("tokenizer_config.json", "model 'bad' must be a whole causal language model"),
    ],
)
def test_a_later_model_is_checked_before_the_first_is_computed(config, tiny: Path, file: str, message: str) -> None:
    shutil.copytree(tiny, "bad")
    Path("bad", file).write_text("")
    job = matrix.prepare(replace(config, models=(str(tiny), "bad")))
    with pytest.raises(UsageError, match=message):
        job.check()


def test_a_condition_on_several_answers_is_refused_before_the_work(config, run_command, capsys) -> None:
    line = f"contamination a.jsonl b.jsonl --model {config.model.model} --fail-if 'p < .05'"
    with pytest.raises(SystemExit):
        run_command(line)
    assert capsys.readouterr().err.endswith("fail-if must be asked of one model and one data set; got 2 files\n")
