"""The command on a tiny model, and on the embedded one, whose members are known."""

import itertools
import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from extensions.contamination.dataset import INFERENCE, Cell, Examined, Outcome, corrected
from extensions.contamination.matrix import prepare
from extensions.contamination.report import report
from extensions.contamination.settings import ContaminationConfig
from fsd.config import AdapterConfig, APIConfig, DetectorConfig, ModelConfig
from fsd.data.corpus import Corpus
from fsd.data.embedded import corpus
from fsd.errors import UsageError
from fsd.statistics.intervals import Estimate
from fsd.tracking import find_runs
from fsd.verdicts.dataset_inference import DatasetVerdict


def write(path: Path, texts: list[str], **columns: list[object]) -> str:
    rows = ({"text": text, **{name: values[at] for name, values in columns.items()}} for at, text in enumerate(texts))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path.name


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("fsd.text_audit.audit.REPEATS", 1)
    documents = list(corpus())
    write(tmp_path / "set.jsonl", [d.text for d in documents if d.member][:20])
    write(tmp_path / "known.jsonl", [d.text for d in documents if not d.member][:20])
    return tmp_path


def configured(tiny: Path, **changes: object) -> ContaminationConfig:
    settings: dict[str, object] = {
        "files": ("set.jsonl",),
        "known": ("known.jsonl",),
        "model": ModelConfig(model=str(tiny), device="cpu"),
        "training": AdapterConfig(epochs=1, batch_size=4),
        "detection": DetectorConfig(detectors="loss,min_k"),
        "orders": 2,
        "sets": 2,
    }
    return ContaminationConfig(**{**settings, **changes})  # type: ignore[arg-type]


@pytest.fixture
def requested() -> list[str]:
    """The prompts of requests to a completions API."""
    return []


@pytest.fixture
def completions(
    service: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, requested: list[str]
) -> Callable[[bool], APIConfig]:
    """Starts a completions API whose tokens are words, with or without log-probabilities."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")

    def start(gives: bool) -> APIConfig:
        def answer(path: str, request: dict[str, Any]) -> bytes | None:
            if path != "/v1/completions":
                return None
            requested.append(request["prompt"])
            words = [*re.findall(r"\S+\s*", request["prompt"]), "!"]
            offsets = [0, *itertools.accumulate(map(len, words))][:-1]
            logp = [None, *(-len(word) / 3 for word in words[1:])]
            given = {"tokens": words, "token_logprobs": logp, "text_offset": offsets, "top_logprobs": None}
            choice = {"index": 0, "text": "".join(words), "logprobs": given if gives else None}
            return json.dumps({"object": "text_completion", "choices": [choice]}).encode()

        return APIConfig(base_url=f"{service(answer).url}/v1")

    return start


def test_an_api_allows_all_tests_but_the_one_that_fine_tunes(files, tiny, completions, requested, capsys) -> None:
    api = {"model": ModelConfig(model="api:x"), "api": completions(True)}
    job = prepare(configured(tiny, **api))
    assert job.asked
    expected = job.asked()
    assert requested == []
    job.run()
    assert len(requested) == len(set(requested)) == expected.requests
    (run,) = find_runs("fsd-contamination")
    assert {f"contamination_p/{name}" for name in ("exchangeability", "dataset inference", "CoDeC")} <= set(run.metrics)
    assert "contamination_p/kernel divergence" not in run.metrics
    reason = "kernel divergence has no p-value: it fine-tunes the model, which an API does not allow"
    assert reason in " ".join(capsys.readouterr().out.split())
    assert (files / "set.jsonl.answers").exists()
    prepare(configured(tiny, **api, known=())).run()
    shown = capsys.readouterr().out
    assert "CoDeC" not in shown
    assert "only the order was tested" in shown
    with pytest.raises(UsageError, match="surp cannot be used in dataset inference: the API does not give"):
        prepare(configured(tiny, **api, detection=DetectorConfig(detectors="loss,surp"))).run()


def test_sets_of_unequal_kind_get_no_p_value_but_that_of_the_order(files, tiny, prose, capsys) -> None:
    write(files / "known.jsonl", [prose(seed, 80) for seed in range(20)])
    prepare(configured(tiny, detection=DetectorConfig(detectors="loss"))).run()
    (run,) = find_runs("fsd-contamination")
    assert {name for name in run.metrics if name.startswith("contamination_p/")} == {"contamination_p/exchangeability"}
    assert "CoDeC has no p-value: a classifier that never sees" in " ".join(capsys.readouterr().out.split())


def told(tiny: Path, *outcomes: Outcome, verdict: DatasetVerdict | None = None, **changes: object) -> list[str]:
    config = configured(tiny, **changes)
    cell = Cell(config, Corpus(), Corpus(), (), (), ())
    return report(Examined(corrected(outcomes, config.level, {}), verdict), cell).notes


def test_the_smallest_p_is_first_and_tests_without_one_are_not_corrected_for() -> None:
    outcomes = [Outcome("a", "", "", 0.04), Outcome("b", "", "", None, "reason"), Outcome("c", "", "", 0.01)]
    assert corrected(outcomes, 0.05, {})["p_holm"].tolist() == pytest.approx([0.02, 0.04, math.nan], nan_ok=True)


def test_tests_that_cannot_reach_the_level_are_named_and_not_corrected_for(tiny) -> None:
    outcomes = [Outcome("a", p=0.03), Outcome("b", p=1 / 8, finest=1 / 8), Outcome("c", p=0.5, finest=1 / 8)]
    assert corrected(outcomes, 0.05, {})["p_holm"].tolist() == pytest.approx([0.03, math.nan, math.nan], nan_ok=True)
    assert corrected(outcomes, 1 / 8, {})["p_holm"].tolist() == pytest.approx([0.09, 0.25, 0.5])
    notes = told(tiny, *outcomes, known=(), sets=7)
    assert "by a (p = .030), corrected" in notes[0]
    assert "b and c cannot fall below 1/8 here, and so not to the level of 0.05: left out; --sets 19" in notes[1]


def test_evidence_is_claimed_by_the_corrected_p_value(tiny) -> None:
    """Of two tests, .03 is .06 after Holm's correction; alone it is below the level of .05."""
    for others, claimed in (([], True), ([Outcome("b", p=0.5)], False)):
        first, *_ = told(tiny, Outcome("a", p=0.03), *others, known=())
        assert first.startswith("evidence that") is claimed
        assert first.startswith("no evidence that") is not claimed


def test_the_share_is_said_only_beside_a_difference(tiny) -> None:
    verdict = DatasetVerdict(0.001, 1.2, {}, 20, 20, None, share=Estimate(0.6, 0.4, 0.7))
    assert Examined(corrected([Outcome(INFERENCE)], 0.05, {}), verdict).metrics["contamination/share"] == 0.6
    for p, said in ((0.001, True), (0.4, False)):
        line = "the share of the data set that the model was trained on is .60 [.40, .70]"
        assert any(line in note for note in told(tiny, Outcome(INFERENCE, p=p), verdict=verdict)) == said
