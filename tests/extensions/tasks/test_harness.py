"""Tasks of lm-evaluation-harness from local files: the texts are those that the harness itself asks the model for."""

import json
import random
import sys
from pathlib import Path

import pytest
import yaml

from extensions.contamination.matrix import prepare
from extensions.contamination.report import _advice
from extensions.contamination.settings import ContaminationConfig
from extensions.tasks import harness
from fsd.config import ModelConfig
from fsd.data.passages import TextStream
from fsd.data.readers import read_files
from fsd.errors import UsageError
from fsd.scoring.model import open_model
from fsd.token_stats import score_rows

QUESTIONS = [
    {"q": f"Is {n} even?", "options": ["no", "yes"], "right": 1 - n % 2, "answer": ["no", "yes"][n % 2 - 1]}
    for n in range(3)
]
KINDS = {
    "choices": {"output_type": "multiple_choice", "doc_to_text": "Q: {{q}}\nA:", "doc_to_choice": "options"},
    "delimiter": {
        "output_type": "multiple_choice",
        "doc_to_text": "q",
        "doc_to_choice": "{{options}}",
        "target_delimiter": "\n",
    },
    "prefix": {"output_type": "multiple_choice", "doc_to_text": "q", "doc_to_choice": "options", "gen_prefix": "It is"},
    "pairs": {
        "output_type": "multiple_choice",
        "doc_to_text": "right",
        "doc_to_choice": "{{['Not: ' + q, 'So: ' + q]}}",
        "doc_to_target": "answer",
    },
    "word": {"output_type": "loglikelihood", "doc_to_text": "q", "doc_to_target": " {{answer}}"},
    "whole": {"output_type": "loglikelihood_rolling", "doc_to_text": "", "doc_to_target": "q"},
    "written": {"output_type": "generate_until", "doc_to_text": "Q: {{q}}", "doc_to_target": "answer"},
}


@pytest.fixture
def task(tmp_path, monkeypatch):
    """Writes a task of a kind with its files; the folder of the YAML file and its name are the working folder's."""
    pytest.importorskip("lm_eval", reason="the extra lm-eval is not installed")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))

    def write(kind, *, training=True):
        splits = {"train": QUESTIONS[2:], "test": QUESTIONS[:2]} if training else {"test": QUESTIONS[:2]}
        for split, rows in splits.items():
            (tmp_path / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        declared = {
            "task": f"mine_{kind}",
            "dataset_path": "json",
            "dataset_kwargs": {"data_files": {split: f"{tmp_path}/{split}.jsonl" for split in splits}},
            "test_split": "test",
            "doc_to_target": "right",
            **({"training_split": "train"} if training else {}),
            **KINDS[kind],
        }
        (tmp_path / f"{kind}.yaml").write_text(yaml.safe_dump(declared))
        return f"lm-eval:{kind}.yaml"

    return write


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.filterwarnings("ignore")
def test_texts_are_those_that_the_harness_scores(task, kind) -> None:
    entry = task(kind)
    whole, answers = read_files([entry], {"text": "q"}), read_files([entry], contexts=True)
    (made,) = harness._tasks(f"{kind}.yaml").values()
    assert [d.origin_url for d in whole] == [f"lm-eval:mine_{kind}:{n}" for n in (1, 2)]
    for number, (text, answer, doc) in enumerate(zip(whole, answers, made.eval_docs, strict=True)):
        assert text.text == answer.context + answer.text
        asked = made.construct_requests(
            doc, made.fewshot_context(doc, 0, gen_prefix=made.doc_to_prefix(doc)), metadata=("mine", 0, 1)
        )
        right = (asked[doc["right"]] if isinstance(asked, list) else asked).args
        if kind == "written":  # the answer is not scored, and stands as in an example
            assert (answer.context, answer.text) == (right[0], " " + QUESTIONS[number]["answer"])
        else:
            assert [part for part in (answer.context, answer.text) if part] == list(right)
    assert [(p.text, p.origin_url) for p in TextStream([entry])] == [(d.text, d.origin_url) for d in whole]
    (train,) = read_files([f"{entry}:train"])
    assert train.origin_url == f"lm-eval:mine_{kind}:train:1"


@pytest.mark.filterwarnings("ignore")
def test_what_is_no_task_or_has_no_split_is_refused(task) -> None:
    entry = task("choices", training=False)
    for name, message in (
        (f"{entry}:train", "task must have a training split to be taken by train; mine_choices has none"),
        ("lm-eval:nowhere.yaml", "task must be a file that exists; there is no nowhere.yaml"),
    ):
        with pytest.raises(UsageError, match=message):
            read_files([name])
    file = Path("choices.yaml")
    file.write_text(file.read_text() + "validation_split: other\n")
    file.write_text(file.read_text().replace("test_split: test", "test_split: other"))
    with pytest.raises(UsageError, match=r"lm-evaluation-harness can load; choices\.yaml: "):
        read_files([entry])


MARKED = ("choices", "delimiter", "prefix", "pairs", "word")


@pytest.mark.parametrize("kind", MARKED)
@pytest.mark.filterwarnings("ignore")
def test_answers_are_marked_as_the_harness_marks_them(task, kind, tiny) -> None:
    """By its own model class on the same weights, with the start token that every text has here."""
    from lm_eval.models.huggingface import HFLM

    entry = task(kind)
    rows = [{**row, "q": f"{row['q']} {n}", "right": n % 2} for n, row in enumerate(QUESTIONS * 4)]
    Path("test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    model = open_model(ModelConfig(str(tiny), cache="none"))
    theirs = HFLM(model.local.model, tokenizer=model.local.tokenizer, batch_size=1)
    (made,) = harness._tasks(f"{kind}.yaml").values()
    made.build_all_requests(limit=None)
    start = model.local.tokenizer.decode([model.local.start])
    for request in made.instances:
        context, answer = request.args
        request.arguments = (start + context, answer)
    by_doc: dict[int, list[tuple[float, bool]]] = {}
    for request, answer in zip(made.instances, theirs.loglikelihood(made.instances, disable_tqdm=True), strict=True):
        by_doc.setdefault(request.doc_id, []).append(answer)
    asked = harness.entry(entry).questions()
    answers = score_rows(model.scorers["base"], [question.prompts for question in asked])
    marks = []
    for doc_id, (question, ours) in enumerate(zip(asked, answers, strict=True)):
        assert [sum(answer.logp) for answer in ours] == pytest.approx([logp for logp, _ in by_doc[doc_id]], abs=1e-3)
        assert question.origin_url == f"lm-eval:mine_{kind}:{doc_id + 1}"
        marks.append(question.mark(ours))
        assert marks[-1] == made.process_results(made.eval_docs[doc_id], by_doc[doc_id])["acc"]
    assert set(marks) <= {0.0, 1.0}


@pytest.mark.parametrize("kind", sorted(set(KINDS) - set(MARKED)))
@pytest.mark.filterwarnings("ignore")
def test_questions_whose_answers_are_not_marked_by_probability_are_none(task, kind) -> None:
    assert harness.entry(task(kind)).questions() == []


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_an_unknown_name_is_refused(task) -> None:
    with pytest.raises(UsageError, match="task must be one of lm-evaluation-harness, or a YAML file; got 'no_such'"):
        read_files(["lm-eval:no_such"])


def test_without_the_extra_it_is_named(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    monkeypatch.setitem(sys.modules, "lm_eval.tasks", None)
    with pytest.raises(UsageError, match=r"must come with the extra lm-eval: pip install 'fsd\[lm-eval\]'"):
        read_files(["lm-eval:arc_easy"])


@pytest.mark.filterwarnings("ignore")
def test_contamination_compares_the_test_with_the_training_split(task, tiny, capsys) -> None:
    entry = task("choices")
    rng = random.Random(0)
    rows = [{**row, "q": " ".join("".join(rng.choices("abcdefgh", k=5)) for _ in range(12))} for row in QUESTIONS * 20]
    for split, chosen in (("test", rows[:20]), ("train", [*rows[20:], rows[0]])):
        Path(f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in chosen))
    config = ContaminationConfig((entry,), known=(f"{entry}:train",), model=ModelConfig(str(tiny)), sets=1)
    job = prepare(config)
    assert job.reads["data set"] == f"20 texts in {entry}"
    assert any("1 known texts are near-duplicates of the data set and were left out" in note for note in job.notes)
    _, commands = _advice(ContaminationConfig((entry,), model=ModelConfig("m")))
    assert commands == [f"fsd contamination {entry} --model m --known {entry}:train"]
    assert not harness.entry(task("choices", training=False)).training_split


def test_a_task_that_cannot_be_loaded_any_more_has_no_training_split(monkeypatch) -> None:
    def unreachable(name: str) -> None:
        raise UsageError("the hub cannot be reached")

    monkeypatch.setattr(harness, "_tasks", unreachable)
    assert harness.entry("lm-eval:arc_easy").training_split == ""
