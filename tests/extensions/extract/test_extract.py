"""The command: what it writes, what it refuses, and what a model that read a text shows."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from extensions.extract import report, works
from extensions.extract.extraction import Work
from extensions.extract.settings import ExtractConfig
from extensions.extract.works import prepare
from fsd.config import ModelConfig
from fsd.data.embedded import corpus
from fsd.scoring.sampling import Sampling


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    texts = [document.text for document in corpus()][:8]
    (tmp_path / "book.txt").write_text("\n\n".join(texts[:4]), encoding="utf-8")
    (tmp_path / "control.txt").write_text("\n\n".join(texts[4:]), encoding="utf-8")
    return tmp_path


def test_a_run_has_passages_metrics_and_report(files: Path, tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from fsd.tracking import fetch_artifact, find_runs

    settings = {"prefix": 10, "suffix": 10, "stride": 5, "temperature": 0.7, "top_k": 40}
    model = ModelConfig(model=str(tiny), device="cpu")
    prepare(ExtractConfig("book.txt", ("control.txt",), model=model, **settings)).run()

    (run,) = find_runs("fsd-extraction")
    table = pd.read_parquet(fetch_artifact(run.id, "passages.parquet"))
    assert list(table.columns) == ["work", "control", "start", "plain", "temperature 0.7, top 40", "greedy"]
    assert set(table["work"]) == {"book.txt", "control.txt"}
    assert run.metrics["extractable_0.1pct/plain"] == 0
    page = fetch_artifact(run.id, "report.html").read_text()
    assert "Does" in page
    assert "not distinguishable from the control" in page
    shown = capsys.readouterr()
    assert "passages of 20 tokens" in shown.err
    assert "greedy" in shown.out


def test_a_chat_is_told_how_it_can_be_asked(files: Path, tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (files / "t.jinja").write_text("{% for m in messages %}{{ m.content }}{% endfor %}")
    model = ModelConfig(model=str(tiny), device="cpu", chat_template="t.jinja")
    prepare(ExtractConfig("book.txt", ("control.txt",), model=model, prefix=10, suffix=10, stride=50)).run()
    assert "--prompts opening" in capsys.readouterr().out


@pytest.mark.slow
def test_a_text_that_was_read_often_can_be_extracted() -> None:
    from fsd.config import Recipe
    from fsd.models import language_model
    from fsd.models.pretraining import continue_pretraining

    texts = [document.text for document in corpus() if not document.member]
    model = language_model.load(ModelConfig(cache="none"))
    cut = works.cut(["read", "unread"], model.tokens([" ".join(texts[:2]), " ".join(texts[2:30])]), 20, 20, 20)
    (before,) = works.by_model(cut, model, [Sampling()]).values()
    continue_pretraining(model, texts[:2] * 50, Recipe(batch_size=2, learning_rate=3e-3), bar_shown=False)
    (after,) = works.by_model(cut, model, [Sampling()]).values()

    assert after[0].log_p.mean() > before[0].log_p.mean() + 15
    assert after[1].log_p.mean() < before[1].log_p.mean() + 5
    assert "holds passages of this work" in report.conclusions(after, "the model")[0].text
    assert "not distinguishable" in report.conclusions(before, "the model")[0].text


def test_an_api_gives_the_numbers_of_the_model(files: Path) -> None:
    """The same passages through a scorer of strings: the suffix after its prefix, tokenized anew."""
    from fsd.models import language_model
    from fsd.scoring.model import Model
    from fsd.scoring.model_scorer import ModelScorer
    from fsd.scoring.services import PromptTokens

    model = language_model.load(ModelConfig(cache="none"))
    text = (files / "book.txt").read_text()
    cut = works.cut(["book"], model.tokens([text]), 20, 20, 40)
    tokens = PromptTokens(model.tokenizer, "embedded")

    ((local,),) = works.by_model(cut, model, [Sampling()]).values()
    api = Model(ModelConfig("api:embedded"), {"base": ModelScorer(model)}, tokens.tokens, tokens.decode)
    ((remote,),) = works.score(cut, api, [Sampling()]).values()

    same = [
        model.tokens([tokens.decode(cut[0].tokens[s + 20 : s + 40].tolist())])[0]
        == cut[0].tokens[s + 20 : s + 40].tolist()
        for s in cut[0].starts.tolist()
    ]
    assert sum(same) >= 0.7 * len(same)
    assert remote.log_p[same] == pytest.approx(local.log_p[same], abs=1e-3)


def test_numbers_in_words() -> None:
    assert [report._probability(x) for x in (-0.1, -5.0, -90.0, float("-inf"))] == ["90 %", "0.67 %", "10^-39", "0"]
    assert [report._probability(x) for x in (0.0, -1e-9, -0.004, -0.01)] == ["100 %", "100 %", "100 %", "99 %"]
    assert [report._count(x) for x in (3, 12_345, 10**9, float("inf"))] == ["3", "12,345", "10^9", "never"]


def test_a_stride_that_leaves_gaps_is_told() -> None:
    starts = np.arange(0, 900, 300)
    sparse = Work("book.txt", np.arange(1000), starts, np.full(3, -90.0), 50, 50)
    dense = Work("book.txt", np.arange(150), np.array([0, 50]), np.full(2, -90.0), 50, 50)

    texts = [finding.text for finding in report.conclusions([sparse], "the model")]
    assert (
        "15 % of book.txt was looked at: continuations of 50 tokens begin every 300; "
        "--stride 50 or less leaves nothing out"
    ) in texts
    assert not any("looked at" in finding.text for finding in report.conclusions([dense], "the model"))


def test_no_ratio_is_given_where_nothing_is_extractable() -> None:
    tokens = np.arange(100)
    work = Work("book.txt", tokens, np.array([0]), np.array([-90.0]), 50, 50)

    (first, *_) = report.conclusions([work, work], "the model")

    assert "ratio" not in first.text
    assert "of the control: not distinguishable" in first.text


def test_works_of_one_file_name_each_have_a_strip(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = []
    monkeypatch.setattr(report.charts, "strips", lambda profiles, **_: drawn.extend(profiles))
    monkeypatch.setattr(report.figures, "png", lambda _: b"")
    named = [SimpleNamespace(name=name, suffix=9, profile=lambda _: []) for name in ("a/book.txt", "b/book.txt")]
    report._strips(named)
    assert drawn == ["a/book.txt", "b/book.txt"]


def test_what_greedy_decoding_returns_and_the_highest_probabilities_are_told_and_tested() -> None:
    rng = np.random.default_rng(0)

    def work(name: str, log_p: np.ndarray) -> Work:
        starts = np.arange(log_p.size) * 10
        return Work(name, np.arange(log_p.size * 10 + 90), starts, log_p, 50, 50)

    low = [rng.uniform(-90, -40, 1277), rng.uniform(-90, -40, 1274)]
    sampled = [work("book.txt", low[0].copy()), work("control.txt", low[1])]
    greedy = [work("book.txt", np.full(1277, -np.inf)), work("control.txt", np.full(1274, -np.inf))]
    # Seven places far apart, of which greedy decoding returns four; none is likely to be drawn.
    places = np.arange(50, 1250, 180)
    sampled[0].log_p[places] = np.log(8e-4)
    greedy[0].log_p[places[:4]] = 0
    first = report.conclusions(sampled, "the model", greedy)[0].text
    # Of 64 and 64 blocks: 64/128 · 63/127 · 62/126 · 61/125 = .0596.
    assert (
        "greedy decoding returns 4 of 1,277 passages word for word, against 0 of 1,274 of the control (p = .060)"
        in first
    )
    assert "its most probable 7 places are above every one of the control (p = .007)" in first
    assert first.endswith("more than can be guessed from texts of the control's kind, so the model knows this work")
    # One place, and none of it returned: nothing that chance does not do.
    sampled[0].log_p[places[1:]] = low[0][places[1:]]
    first, second, *_ = report.conclusions(sampled, "the model", [greedy[1], greedy[1]])
    assert "its most probable place is above every one of the control (p = .500)" in first.text
    assert "not distinguishable from the control" in first.text
    assert "greedy" not in first.text
    assert "distinguish" in second.text or "read" in second.text
