"""Every study at the small scale, on the embedded models, with half of the embedded texts, cut short, for speed."""

from dataclasses import replace

import pandas as pd
import pytest

from extensions.study import catalogue, cells
from extensions.study.__main__ import prepare
from extensions.study.grid import StudyConfig
from fsd import tracking
from fsd.config import AdapterConfig
from fsd.data import embedded
from fsd.data.documents import cut
from scripts.papers_page import summary

# The longest length to which a study truncates texts at the small scale is 64 words.
WORDS = 66
PNG = b"\x89PNG"


@pytest.fixture
def half_a_corpus(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    corpus = embedded.corpus
    monkeypatch.setattr(
        cells.embedded,
        "corpus",
        lambda domain: [replace(document, text=cut(document.text, WORDS)) for document in list(corpus(domain))[::2]],
    )
    cells.load.cache_clear()
    # Of half the texts there are not 30 unseen ones in every pair of domains.
    declared = dict(catalogue.studies())
    declared["domains"] = replace(declared["domains"], small_settings={"texts.unseen_count": 10})
    monkeypatch.setattr(catalogue, "studies", lambda: declared)
    yield declared
    cells.load.cache_clear()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_every_study_runs_at_the_small_scale_and_has_its_table_and_its_figure(half_a_corpus, capsys):
    # Of one epoch, but in batches so small that AdaLoRA has the steps that it needs.
    short = AdapterConfig(epochs=1, batch_size=4)
    for name, study in half_a_corpus.items():
        prepare(StudyConfig(name, training=short)).run()
        (run,) = [run for run in tracking.find_runs("fsd-arxiv", {"study": name}) if "kind" not in run.tags]
        measured = pd.read_csv(tracking.fetch_artifact(run.id, "cells.csv"))
        assert measured["value"].between(0, 1).all(), name
        assert set(measured["metric"]) >= {cells.heading(metric) for metric in study.metrics}, name
        assert summary(name, measured), name
        assert not pd.read_csv(tracking.fetch_artifact(run.id, "table.csv")).empty, name
        assert tracking.fetch_artifact(run.id, "figure.png").read_bytes().startswith(PNG), name
        assert study.title in capsys.readouterr().out, name
    reused = tracking.find_runs("fsd-arxiv", {"kind": "reused cell"})
    assert {run.tags["study"] for run in reused} <= set(half_a_corpus)
    of_rates = [run for run in tracking.find_runs("fsd-arxiv", {"study": "surp-tpr"}) if "kind" not in run.tags]
    assert of_rates[0].metrics["cells/run"] == 0  # those of surp-t1


@pytest.mark.slow
def test_a_result_on_the_page_is_that_of_the_study(tmp_path, monkeypatch):
    from scripts.papers_page import results

    monkeypatch.chdir(tmp_path)
    prepare(StudyConfig("dcpdd-fig2")).run()
    (run,) = [run for run in tracking.find_runs("fsd-arxiv", {"study": "dcpdd-fig2"}) if "kind" not in run.tags]
    measured = pd.read_csv(tracking.fetch_artifact(run.id, "cells.csv"))
    recorded = [line for line in results() if line.study == "dcpdd-fig2"]
    for line, again in zip(recorded, summary("dcpdd-fig2", measured), strict=True):
        assert line[:3] == again[:3]
        assert again.low == pytest.approx(line.low, abs=0.02)
