"""Configuration files: the same settings as the flags, and one line for every mistake."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from extensions.study.grid import StudyConfig
from fsd.config import AdapterConfig, DataConfig, FSDConfig, ScoreConfig, TuneConfig
from fsd.errors import UsageError
from pipelines.collect import Collect
from pipelines.command.cli import read
from pipelines.command.deliver import dump
from pipelines.detect.__main__ import DetectConfig


@pytest.fixture
def given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Reads a configuration file with this content, and flags."""

    def give(config: type[Any], content: str | bytes, *flags: str, name: str = "run.yaml") -> Any:
        monkeypatch.chdir(tmp_path)
        Path(name).write_bytes(content.encode() if isinstance(content, str) else content)
        monkeypatch.setattr(sys, "argv", ["fsd run", *flags, "--config", name])
        return read(config, "")[0]

    return give


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("run.yaml", "epochs: 2\nlearning-rate: 1e-4\ndata: [a.jsonl, b.jsonl]\nunseen: 0.5\nadapter: null\n"),
        ("run.yaml", "training: {epochs: 2, learning_rate: 0.0001}\ndata: {data: [a.jsonl, b.jsonl], unseen: 0.5}\n"),
        ("run.toml", 'epochs = 2\ndata = ["a.jsonl", "b.jsonl"]\nunseen = 0.5\n[training]\nlearning-rate = 1e-4\n'),
    ],
)
def test_a_file_gives_what_the_flags_give(name: str, content: str, given: Any, monkeypatch: Any) -> None:
    from_file = given(FSDConfig, content, name=name)
    flags = "--epochs 2 --learning-rate 1e-4 --data a.jsonl b.jsonl --unseen 0.5"
    monkeypatch.setattr(sys, "argv", ["fsd run", *flags.split()])
    assert from_file == read(FSDConfig, "")[0]
    assert from_file.training == AdapterConfig(epochs=2, learning_rate=1e-4)


def test_flags_replace_the_values_of_the_file(given: Any) -> None:
    content = "epochs: 2\ndata: [a.jsonl]\nskip-invalid: true\nseed: 7\n"
    config = given(FSDConfig, content, "--data", "b.jsonl", "--no-skip-invalid", "--epochs", "5")
    assert config.data.data == ("b.jsonl",)
    assert not config.data.cleaning.skip_invalid
    assert (config.training.epochs, config.seed) == (5, 7)


def test_required_and_positional_settings_may_be_in_the_file(given: Any) -> None:
    content = "files: [a.txt, b.txt]\nadapter: models:/x@champion\nfpr: 0.1\n"
    assert given(DetectConfig, content) == DetectConfig(("a.txt", "b.txt"), "models:/x@champion", fpr=0.1)
    assert given(DetectConfig, content, "c.txt").files == ("c.txt",)
    with pytest.raises(UsageError, match="required: --adapter"):
        given(DetectConfig, "files: a.txt\n")


def test_tags_and_settings_may_be_tables(given: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert given(FSDConfig, "settings: {surp.k: 30, min_k.k: 0.1}\n").detection.settings == ("surp.k=30", "min_k.k=0.1")
    (tmp_path / "tags.yaml").write_text("name: first\ntags: {team: lab, round: 2}\n")
    monkeypatch.setattr(sys, "argv", ["fsd run", "--config", "tags.yaml", "--dry-run"])
    _, invocation = read(FSDConfig, "")
    assert (invocation.name, invocation.run_tags) == ("first", {"team": "lab", "round": "2"})
    assert invocation.dry_run
    assert not invocation.json


def test_a_configuration_survives_the_file(given: Any) -> None:
    for config in (
        FSDConfig(),
        FSDConfig(data=DataConfig(data=("a b.jsonl", "wikimia:64"), unseen="own.jsonl", validation=0.1), seed=3),
        ScoreConfig(("a.jsonl",), "out.csv"),
        TuneConfig(timeout=3.5, sampler="grid"),
        DetectConfig(("a.txt",), "runs:/1", storey=True),
        StudyConfig("fsd-t1", model=("a", "b"), reference_model=("c", None), bits=4),
        Collect("arxiv", 5, after="2024-01-01", options=("categories=cs.CL,cs.LG",), out=Path("x.jsonl")),
    ):
        assert given(type(config), dump(config, "run")) == config


def test_the_file_holds_no_credentials() -> None:
    text = dump(replace(TuneConfig(), storage="postgresql://me:secret@host/db"), "tune")
    assert "secret" not in text
    assert text.startswith("version: 1\ncommand: tune\n")
