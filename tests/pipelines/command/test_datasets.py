"""Texts that cannot be used are refused in one line, or left out and counted, wherever labelled texts enter."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from extensions.study.catalogue import load as load_study
from extensions.study.cells import split_texts
from extensions.study.grid import Cell, StudyConfig, plan
from fsd.config import CleaningConfig, DataConfig, ModelConfig, ScoreConfig
from fsd.data.periods import kinds_of
from fsd.errors import UsageError
from pipelines.detect import __main__ as detect
from pipelines.experiment import inputs
from pipelines.score import job as score
from tests.rows import write

DROP = CleaningConfig(skip_invalid=True, near_duplicates="drop")


@pytest.fixture
def blank(tmp_path: Path, prose: Callable[..., str]) -> str:
    """A file with a blank text."""
    return write(
        tmp_path / "blank.jsonl", [{"text": " ", "label": 0}, *({"text": prose(i), "label": i % 2} for i in range(40))]
    )


@pytest.fixture
def both(tmp_path: Path, prose: Callable[..., str]) -> str:
    """A file with a member of 60 words whose first 40 words are a non-member, and another with two words changed."""
    whole, other = prose(100, 60), prose(101, 60).split()
    changed = " ".join("x" if i in (30, 50) else word for i, word in enumerate(other))
    rows = [(whole, 1), (" ".join(whole.split()[:40]), 0), (" ".join(other), 1), (changed, 0)]
    rows += [(prose(i), i % 2) for i in range(40)]
    return write(tmp_path / "both.jsonl", [{"text": text, "label": label} for text, label in rows])


def test_own_files_are_cleaned_and_what_is_left_out_is_counted(blank: str, both: str) -> None:
    loaded = inputs.load_texts(DataConfig(data=(blank,), cleaning=DROP), ModelConfig())
    assert (len(loaded.documents), loaded.remarks) == (40, ("files: 1 left out: blank text",))
    loaded = inputs.load_texts(DataConfig(data=(both,), cleaning=DROP), ModelConfig())
    assert (len(loaded.documents), loaded.remarks) == (40, ("texts: 4 left out: copies labelled both 1 and 0",))


def test_published_benchmarks_are_cleaned_without_a_flag(blank: str, both: str) -> None:
    for file, remark in (
        (blank, f"patentmia:{blank}: 1 left out: blank text"),
        (both, f"patentmia:{both}: 4 left out: copies labelled both 1 and 0"),
    ):
        loaded = inputs.load_texts(DataConfig(data=(f"patentmia:{file}",)), ModelConfig())
        assert (len(loaded.documents), loaded.remarks) == (40, (remark,))


def test_copies_between_a_published_benchmark_and_a_file_are_refused(both: str, tmp_path: Path) -> None:
    rows = [json.loads(line) for line in Path(both).read_text().splitlines()][4:]
    own = write(tmp_path / "own.jsonl", [row | {"label": 1 - row["label"]} for row in rows[:2]])
    with pytest.raises(UsageError, match="2 pairs are copies"):
        inputs.load_texts(DataConfig(data=(f"patentmia:{both}", own)), ModelConfig())


def test_periods_of_a_published_benchmark_are_known_unless_other_texts_have_none(both: str, tmp_path: Path) -> None:
    def kinds(*files: str, **more: Any) -> set[str]:
        data = DataConfig(data=(f"patentmia:{both}", *files), cleaning=DROP, **more)
        return {str(kind) for kind in kinds_of(inputs.load_texts(data, ModelConfig()).documents)}

    rows = [{"text": f"text{n} of a file of my own", "label": n, "date": "2020-01-01"} for n in (0, 1)]
    own = write(tmp_path / "own.jsonl", rows)
    assert kinds() == {"member", "later"}
    assert kinds(own) == {"member", "non-member"}
    assert kinds(own, cutoff="2023-12-31") == {"member", "contemporary", "later"}


def test_the_file_of_unseen_texts_is_cleaned_as_well(both: str, blank: str) -> None:
    documents = inputs.load_texts(DataConfig(data=(both,), cleaning=DROP), ModelConfig()).documents
    new = write(Path(blank).with_name("new.jsonl"), [{"text": ""}, {"text": "some unseen words"}])
    with pytest.raises(UsageError, match=r"new\.jsonl:1: text must be .* by --skip-invalid"):
        inputs.split_texts(documents, DataConfig(unseen=new), 0)
    parts, remarks = inputs.split_texts(documents, DataConfig(unseen=new, cleaning=DROP), 0)
    assert (len(parts.unseen), remarks) == (1, ["files: 1 left out: blank text"])


@pytest.mark.parametrize("file", ["blank", "both"])
def test_every_command_with_labelled_texts_refuses_before_any_work(file, request, tmp_path) -> None:
    name = request.getfixturevalue(file)
    flag = {"blank": "--skip-invalid", "both": "--near-duplicates drop"}[file]
    config = ScoreConfig(data=(name,), out=str(tmp_path / "s.csv"), model=ModelConfig("no/such"))
    for command in (
        lambda: score.prepare(config).run(),
        lambda: detect.prepare(detect.DetectConfig(files=(name,), adapter="no/such")).run(),
        lambda: split_texts(study_cell(StudyConfig("fsd-t6", data=(name,))), trained=True),
    ):
        with pytest.raises(UsageError, match=flag) as error:
            command()
        assert "\n" not in str(error.value)


def study_cell(config: StudyConfig) -> Cell:
    name, study = load_study(config.study)
    return plan(name, study, config)[0]


def test_a_study_cleans_its_texts_and_keeps_the_remarks(both: str) -> None:
    cell = study_cell(StudyConfig("fsd-t6", data=(both,), cleaning=DROP))
    parts, remarks = split_texts(cell, trained=True)
    assert sum(map(len, parts)) == 40
    assert remarks == ("texts: 4 left out: copies labelled both 1 and 0",)


def dated_rows(prose: Callable[..., str]) -> list[dict[str, Any]]:
    """40 members without a date, 30 contemporaries of 2022 and 30 later texts of 2024."""
    days: list[dict[str, Any]] = [{"label": 1}] * 40
    days += [{"label": 0, "date": "2022-05-01"}] * 30 + [{"label": 0, "date": "2024-05-01"}] * 30
    return [{"text": prose(i), **day} for i, day in enumerate(days)]


def test_a_cutoff_parts_the_texts_of_a_file_and_the_split_trains_on_later_ones(prose, tmp_path) -> None:
    data = DataConfig(data=(write(tmp_path / "d.jsonl", dated_rows(prose)),), cutoff="2023-02-24")
    documents = inputs.load_texts(data, ModelConfig()).documents
    parts, remarks = inputs.split_texts(documents, data, 0)
    assert {d.period for d in parts.unseen} == {"after the cutoff"}
    assert [len(part) for part in parts] == [9, 26, 65]
    assert remarks == []
    days = {"new": "2024-01-01", "old": "2023-02-24"}
    file = write(tmp_path / "unseen.jsonl", [{"text": f"{age} words", "date": day} for age, day in days.items()])
    parts, remarks = inputs.split_texts(documents, replace(data, unseen=file), 0)
    assert len(parts.unseen) == 2
    assert remarks == [f"1 of 2 unseen texts are of the members' period, the first {file}:2"]


def test_periods_of_a_named_column_are_kept(prose: Callable[..., str], tmp_path: Path) -> None:
    rows = [row | {"when": 2022 if row["label"] else None} for row in dated_rows(prose)]
    data = DataConfig(data=(write(tmp_path / "d.jsonl", rows),), columns="period=when")
    with pytest.raises(UsageError, match="every text must have a period if any has one; 60 of 100 have none"):
        inputs.load_texts(data, ModelConfig())
    named = [row | {"when": 2022.0 if row.get("date", "2022") < "2023" else 2024} for row in rows]
    loaded = inputs.load_texts(replace(data, data=(write(tmp_path / "n.jsonl", named),)), ModelConfig())
    assert [d.period for d in loaded.documents] == ["2022"] * 70 + ["2024"] * 30
