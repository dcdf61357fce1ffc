"""The command that asks: what it sends, finds, writes and refuses, and what a model that read a text returns."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from extensions.extract.settings import ExtractConfig
from extensions.extract.works import prepare
from fsd.config import APIConfig, ModelConfig
from fsd.data.embedded import corpus
from fsd.errors import UsageError
from fsd.tracking import fetch_artifact, find_runs

FRAME = "It is <script>alert('said')</script> so: {} That is all I can say."


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


@pytest.fixture
def works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A book and twenty control works in the working folder, and their texts."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    texts = [document.text for document in corpus()][:21]
    (tmp_path / "book.txt").write_text(texts[0], encoding="utf-8")
    rows = [{"text": text, "title": f"Work {number}"} for number, text in enumerate(texts)]
    write(tmp_path / "others.jsonl", rows[1:])
    write(tmp_path / "two.jsonl", rows[:2])
    write(tmp_path / "untitled.jsonl", [{"text": text} for text in texts[2:]])
    return texts


@pytest.fixture
def chat(service: Callable, reply: Callable) -> Callable[[Callable[[str], str | None]], Any]:
    """Starts a server that speaks as chat completions do: `chat(answer)`, by the message of the user's."""

    def start(answer: Callable[[str], str | None]) -> Any:
        def answered(path: str, body: dict[str, Any]) -> Any:
            assert path == "/v1/chat/completions"
            (message,) = body["messages"]
            choice = {
                "index": 0,
                "message": {"role": "assistant", "content": answer(message["content"]), "refusal": None},
                "finish_reason": "stop",
            }
            usage = {"prompt_tokens": 9, "completion_tokens": 9, "total_tokens": 18}
            head = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "x-1"}
            return reply(json.dumps({**head, "choices": [choice], "usage": usage}).encode())

        return service(answered)

    return start


def settings(fake: Any = None, **changes: Any) -> ExtractConfig:
    values: dict[str, Any] = {"book": "book.txt", "control": ("others.jsonl",), "prefix": 20, "prompts": ("opening",)}
    if fake:
        values |= {"model": ModelConfig("api:x"), "api": APIConfig(base_url=f"{fake.url}/v1", concurrency=1)}
    return ExtractConfig(**values | changes)


def test_a_model_that_returns_the_work_is_found_with_its_words(
    works: list[str], chat: Callable, capsys: pytest.CaptureFixture[str]
) -> None:
    def remembered(prompt: str) -> str:
        known = works[0].startswith(prompt.removeprefix("Continue this text: ")) or "First Light" in prompt
        return FRAME.format(works[0]) if known else "I do not know it."

    fake = chat(remembered)
    prepare(settings(fake, title="First Light", control=("others.jsonl",), prompts=("opening", "title"))).run()

    (run,) = find_runs("fsd-extraction")
    words = len(works[0].split())
    assert run.metrics["returned/words"] == pytest.approx(words, abs=3)  # signs between words are none
    # the work is a little longer than what most of the controls are
    assert run.metrics["returned/p"] == pytest.approx(1 / 21, abs=0.002)
    assert run.metrics["returned/words_control"] <= 4
    lines = [json.loads(line) for line in fetch_artifact(run.id, "transcript.jsonl").read_text().splitlines()]
    assert len(lines) == len(fake.requests) == 42
    assert lines[0] == {
        "work": "First Light",
        "control": False,
        "prompt": "opening",
        "form": "message to a chat API",
        "request": f"Continue this text: {' '.join(works[0].split()[:20])}",
        "time": lines[0]["time"],
        "model": "x-1",
        "fingerprint": "",
        "reply": FRAME.format(works[0]),
        "temperature": 0.0,
        "top_k": None,
        "seed": 42,
        "max_tokens": 400,
    }
    assert lines[0]["time"].endswith("Z")
    page = fetch_artifact(run.id, "report.html").read_text()
    assert "api:x returned" in page
    assert "more than can be guessed, so the model holds passages of this work" in page
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert" in page
    printed = capsys.readouterr()
    assert "of the 20 control works at most" in printed.out
    assert "42 requests, about" in printed.err


def test_a_novel_is_asked_at_ten_places_and_counts_as_one_work(
    works: list[str], chat: Callable, run_command: Callable
) -> None:
    """Its beginning is unknown, its last third comes back: one of twenty works, 1/20, as many as there are controls."""
    novels = [" ".join(f"{word}{number}{place}" for place in range(4500) for word in "ab") for number in range(20)]
    write(Path("novel.jsonl"), [{"text": novels[0], "title": "Novel"}])
    write(Path("novels.jsonl"), [{"text": text, "title": f"Other {n}"} for n, text in enumerate(novels[1:])])
    known = novels[0].split()[6000:]

    def answer(prompt: str) -> str:
        given = prompt.split()[-1]
        return " ".join(known[known.index(given) + 1 :][:180]) if given in known else "I do not know it."

    fake = chat(answer)
    line = f"extract novel.jsonl --control novels.jsonl --model api:x --base-url {fake.url}/v1 --prompts opening"
    plan = json.loads(run_command(f"{line} --dry-run --json"))["tables"]["plan"]
    assert {"what": "requests", "value": 200} in plan
    found = json.loads(run_command(f"{line} --json"))
    assert len(fake.requests) == 200
    begun = "api:x returned 180 words of Novel in a row; 8 or more in 3 of 10 replies; of the 19 control works"
    assert found["headline"].startswith(f"{begun} at most 0: more than can be guessed")
    assert found["tables"]["results"][0]["p"] == pytest.approx(1 / 20)


def test_a_model_that_returns_nothing_is_not_distinguished(
    works: list[str], chat: Callable, run_command: Callable
) -> None:
    fake = chat(lambda prompt: "" if works[0][:30] in prompt else "I do not know it.")
    line = (
        f"extract book.txt --control others.jsonl --model api:x --base-url {fake.url}/v1 --prefix 9 --prompts opening"
    )
    answer = json.loads(run_command(f"{line} --json --fail-if 'words > 8' 'p < .05'"))
    assert answer["headline"].startswith("api:x returned 0 words of book.txt in a row; of the 20 control works at most")
    assert answer["headline"].endswith("this does not show that it was not in the training data")
    assert any(note.startswith("power: of works that they had read up to 32 times") for note in answer["notes"])
    assert "1 of 21 replies are empty" in answer["notes"]
    row = answer["tables"]["results"][0]
    assert (row["longest"], row["spans"], row["empty"], row["p"]) == (0, 0, 1, 1.0)
    assert [entry["work"] for entry in answer["tables"]["transcript"]][:2] == ["book.txt", "Work 1"]
    assert "time" not in answer["tables"]["transcript"][0]


def test_two_works_share_their_p_values_and_few_controls_allow_none(
    works: list[str], chat: Callable, run_command: Callable
) -> None:
    Path("mine.txt").write_text("How does {title} begin?\nAnd how does {title} end?\n")
    write(Path("others.jsonl"), [{"text": text, "title": f"Other {number}"} for number, text in enumerate(works[2:7])])
    fake = chat(lambda prompt: f"So: {works[1]}" if prompt == "And how does Work 1 end?" else "I do not know.")
    line = f"extract two.jsonl --control others.jsonl --model api:x --base-url {fake.url}/v1 --questions mine.txt"
    answer = json.loads(run_command(f"{line} --json"))
    assert (
        " of Work 1 in a row, the most of 2 works; 8 or more in 1 of 2 replies; of the 5 control works"
        in answer["headline"]
    )
    assert answer["headline"].endswith(
        "more than of any, but these are too few or too short control works for a p-value"
    )
    first, second = answer["tables"]["results"][:2]
    assert (first["work"], first["p"], second["p"]) == ("Work 1", pytest.approx(1 / 3), 1.0)
    rank = next(note for note in answer["notes"] if note.startswith("rank among 5"))
    assert rank.endswith(
        "p = .333, corrected for 2 works; the smallest that they allow is .333, and 39 would allow .05"
    )
    assert len(fake.requests) == 14


def test_without_controls_the_answer_says_what_is_missing(
    works: list[str], chat: Callable, capsys: pytest.CaptureFixture[str]
) -> None:
    fake = chat(lambda prompt: f"So: {works[0]}")
    prepare(settings(fake, control=(), title="First Light", span=9, replies=2)).run()
    printed = capsys.readouterr().out
    assert "without control works (--control) this does not show how many of them can be guessed" in printed
    address = f"--model api:x --base-url {fake.url}/v1 --concurrency 1"
    command = (
        f"{address} --prefix 20 --prompts opening --title 'First Light' --span 9 --replies 2 --control OTHERS.jsonl"
    )
    assert f"fsd extract book.txt {command}" in printed


def test_a_base_model_is_asked_by_plain_text_and_its_transcript_is_bundled(
    works: list[str], tiny: Path, run_command: Callable
) -> None:
    line = f"extract book.txt --control others.jsonl --model {tiny} --device cpu --prompts opening --prefix 2"
    answer = json.loads(run_command(f"{line} --max-tokens 8 --replies 2 --places 1 --json"))
    assert "the model was asked by plain text: it has no chat template, or --plain left it out" in answer["notes"]
    transcript = answer["tables"]["transcript"]
    assert len(transcript) == 42
    assert {entry["fingerprint"] for entry in transcript} == {transcript[0]["fingerprint"]} != {""}
    assert [(entry["temperature"], entry["seed"]) for entry in transcript[:2]] == [(0.0, 42), (1.0, 43)]

    run_command(f"bundle {answer['run']['id']} --out bundle")
    kept = [json.loads(line) for line in Path("bundle/run/transcript.jsonl").read_text().splitlines()]
    assert [{**entry, "time": None} for entry in kept] == [{**entry, "time": None} for entry in transcript]
    assert run_command("verify bundle").startswith("nothing was altered")


def test_a_given_template_that_takes_no_prompt_is_refused_before_the_model_is_loaded(
    works: list[str], tiny: Path
) -> None:
    Path("t.jinja").write_text("{{ raise_exception('no users') }}")
    model = ModelConfig(str(tiny), device="cpu", chat_template="t.jinja")
    with pytest.raises(UsageError, match="it says: no users; --plain asks without it"):
        prepare(settings(model=model))


def test_a_title_may_be_a_number(works: list[str]) -> None:
    write(Path("orwell.jsonl"), [{"text": works[0], "title": 1984}])
    job = prepare(settings(book="orwell.jsonl", model=ModelConfig("api:x"), prompts=("title",)))
    assert job.texts[0].startswith('Please give me the text of "1984", word for word')


def test_replies_that_differ_are_found_when_they_are_computed_again() -> None:
    from extensions.bundle.manifest import differences

    recorded = {"transcript": [{"reply": "one", "request": "a", "model": "x", "seed": 1}]}
    assert list(differences(recorded, {"transcript": [{**recorded["transcript"][0], "model": "y"}]})) == []
    (difference,) = differences(recorded, {"transcript": [{**recorded["transcript"][0], "reply": "two"}]})
    assert difference == ("transcript[0].reply", "one", "two")


def test_all_replies_empty_is_no_answer(works: list[str], chat: Callable) -> None:
    with pytest.raises(UsageError, match="the model must answer; all 21 replies are empty"):
        prepare(settings(chat(lambda prompt: None))).run()


@pytest.mark.slow
def test_a_text_that_was_read_often_is_returned_after_its_opening(works: list[str]) -> None:
    from extensions.extract.prompt_report import Answer, answer_of
    from extensions.extract.prompts import read_works, written
    from extensions.extract.replies import LocalReplies
    from fsd.config import Recipe
    from fsd.models import language_model
    from fsd.models.pretraining import continue_pretraining

    config = settings(max_tokens=40, span=8)
    read = read_works(config)
    asked = written(config, read)
    model = language_model.load(ModelConfig(cache="none"))

    def answer() -> Answer:
        replies = LocalReplies(model, description="")([entry.request for entry in asked])
        transcript = [replace(entry, reply=reply) for entry, reply in zip(asked, replies, strict=True)]
        return answer_of(config, read, transcript)

    assert not answer().passage
    continue_pretraining(model, [works[0]] * 80, Recipe(batch_size=2, learning_rate=3e-3), bar_shown=False)
    after = answer()
    assert after.holds
    assert after.best.longest >= 8 > (after.guessed or 0)
