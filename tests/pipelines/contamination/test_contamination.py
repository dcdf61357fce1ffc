"""The command on a tiny model, and on the embedded one, whose members are known."""

import json
from pathlib import Path

import pytest

from fsd.config import AdapterConfig, DetectorConfig, ModelConfig
from fsd.data.embedded import corpus
from fsd.errors import UsageError
from pipelines.contamination.__main__ import ContaminationConfig, main
from pipelines.contamination.outcomes import Outcome, corrected


def write(path: Path, texts: list[str], **columns: list[object]) -> str:
    rows = ({"text": text, **{name: values[at] for name, values in columns.items()}} for at, text in enumerate(texts))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path.name


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
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


def test_all_tests_run_and_are_tracked(files: Path, tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from fsd.tracking import fetch_artifact, find_runs

    main(configured(tiny))

    (run,) = find_runs("fsd-contamination")
    names = ("exchangeability", "dataset inference", "CoDeC", "kernel divergence")
    assert {f"contamination_p/{name}" for name in names} <= set(run.metrics)
    assert all(0 < run.metrics[f"contamination_p/{name}"] <= 1 for name in names)
    assert "kernel divergence" in fetch_artifact(run.id, "report.html").read_text()
    assert "p (Holm)" in capsys.readouterr().out


def test_without_known_texts_only_the_order_is_tested(
    files: Path, tiny: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(configured(tiny, known=()))

    shown = capsys.readouterr().out
    assert "exchangeability" in shown
    assert "CoDeC" not in shown
    assert "only the order was tested" in shown


def test_what_cannot_be_is_refused_before_the_model_is_loaded(
    files: Path, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fsd.models import language_model

    def never(*_: object, **__: object) -> None:
        raise AssertionError("the model must not be loaded")

    monkeypatch.setattr(language_model, "load", never)
    texts = [json.loads(line)["text"] for line in (files / "set.jsonl").read_text().splitlines()]
    write(files / "short.jsonl", texts[:9])
    write(files / "copy.jsonl", [texts[0], *(d.text for d in list(corpus())[60:80] if not d.member)])
    write(files / "members.jsonl", texts, label=[1] * 20)
    cases: list[tuple[dict[str, object], str]] = [
        ({"files": ("short.jsonl",)}, "data must fill 2 shards of 5 texts; got 9 texts"),
        ({"sets": 19}, "a rank among 19 sets must have at least 5 suspect texts and 95 known"),
        ({"known": ("copy.jsonl",), "sets": 1}, r"known must hold other texts than those .* alike \(copy\)"),
        ({"known": ("members.jsonl",)}, "known must hold texts that are non-members"),
        ({"level": 0.0}, "level must be between 0 and 1"),
        ({"files": ("none.jsonl",)}, "data file must exist"),
    ]
    for change, message in cases:
        with pytest.raises(UsageError, match=message):
            main(configured(tiny, **change))


def test_correction_leaves_out_tests_without_a_p_value() -> None:
    outcomes = [Outcome("a", "", "", 0.01), Outcome("b", "", "", None, "reason"), Outcome("c", "", "", 0.04)]

    assert corrected(outcomes) == {"a": 0.02, "c": 0.04}
