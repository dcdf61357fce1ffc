"""Every command that docs/papers.md prints, offline: on a tiny model, and on small files of the shape that it needs."""

import json
import re
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from extensions.study import catalogue
from extensions.study.__main__ import prepare
from extensions.study.grid import StudyConfig, plan
from fsd import tracking
from fsd.models.language_model import load_tokenizer
from fsd.scoring.token_frequencies import FrequencyTable, fingerprint
from pipelines.command import cli

PAGE = (Path(__file__).parents[3] / "docs" / "papers.md").read_text(encoding="utf-8")
COMMANDS = dict.fromkeys(re.findall(r"`fsd (study [^`]+)`", PAGE))
# Texts that are cut to each length of a study, and those of which a study draws hundreds.
LONG = ("surp-t1", "surp-tpr")
MANY = ("fsd-t3", "fsd-fig2", "fsd-fig4", "fsd-fig6")
# The page's own command needs nothing, and takes minutes: `test_small_scale.py` runs it on half of the texts.
OWN = {"domains", "truth"}
# A word of two characters that jieba keeps whole.
CHINESE = ("专利", "方法", "装置", "系统", "数据", "结构", "材料", "电路", "信号", "温度")


@pytest.fixture(scope="module")
def files(tmp_path_factory, tiny):
    """The texts of every kind, and a table of token frequencies."""
    folder = tmp_path_factory.mktemp("files")
    rng = np.random.default_rng(0)

    def text(words):
        return " ".join(f"{chr(97 + n % 26)}{n}" for n in rng.integers(10, 9999, words))

    def rows(nonmembers, members, make):
        labels = [0] * nonmembers + [1] * members
        return [{"text": make(), "label": label, "group": f"g{n}"} for n, label in enumerate(labels)]

    def books(side):
        return [{"text": text(8192), "id": f"{side} {n}"} for n in range(3)]

    made = {
        "short": rows(160, 160, lambda: f"{text(6)} in 2014"),
        "many": rows(2000, 1500, lambda: text(6)),
        "long": rows(8, 8, lambda: text(300)),
        "patents": rows(4, 4, lambda: "".join(rng.choice(CHINESE, 600))),
        "members": books("dolma"),
        "nonmembers": books("new"),
    }
    for name, of_file in made.items():
        lines = [json.dumps(row) + "\n" for row in of_file]
        (folder / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")
    backend, size = load_tokenizer(str(tiny))
    table = FrequencyTable(np.arange(size, dtype=np.int64), fingerprint(backend), str(tiny), "any", 1)
    table.save(folder / "table.npz")
    return folder


@pytest.fixture
def config(files, tiny, tmp_path, monkeypatch):
    """A printed command → its settings, with the files for their placeholders and for texts and models of the hub."""
    monkeypatch.chdir(tmp_path)

    def read(command):
        places = {"MEMBERS": "members.jsonl", "NONMEMBERS": "nonmembers.jsonl", "TABLE.npz": "table.npz"}
        places["FILE"] = "patents.jsonl"
        _, name, *flags = re.sub(
            r"\b(MEMBERS|NONMEMBERS|FILE|TABLE\.npz)", lambda m: str(files / places[m[0]]), command
        ).split()
        if name not in OWN:
            flags += ["--model", str(tiny), "--device", "cpu", "--epochs", "1"]
            if "--data" not in flags:
                kind = "long" if name in LONG else "many" if name in MANY else "short"
                flags += ["--data", str(files / f"{kind}.jsonl")]
            if catalogue.studies()[name].has_foreign_texts:
                flags += ["--other", str(files / "short.jsonl")]
        monkeypatch.setattr(sys, "argv", ["study", name, *flags])
        given, _ = cli.read(StudyConfig, "")
        return given

    return read


def test_the_page_has_a_command_for_every_study():
    assert {command.split()[1] for command in COMMANDS} == set(catalogue.studies())


@pytest.mark.parametrize("command", COMMANDS)
def test_a_printed_command_is_planned(command, config):
    given = config(command)
    prepare(given).plan()


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("command", [command for command in COMMANDS if command.split()[1] not in OWN])
def test_a_printed_command_runs(command, config, capsys):
    given = config(command)
    prepare(given).run()
    study = catalogue.studies()[given.study]
    assert study.title in capsys.readouterr().out
    (run,) = [run for run in tracking.find_runs("fsd-arxiv", {"study": given.study}) if "kind" not in run.tags]
    measured = pd.read_csv(tracking.fetch_artifact(run.id, "cells.csv"))
    assert measured["value"].notna().all()
    # Every cell has its numbers; those of equal texts share a run.
    cells = plan(given.study, study, given)
    labels = list(cells[0].labels)
    assert not labels or len(measured.drop_duplicates(labels)) == len(cells)
