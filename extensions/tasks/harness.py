"""Tasks of lm-evaluation-harness as texts, each question with its right answer as the harness renders them.

An entry is `lm-eval:TASK`, the documents that the harness evaluates, or `lm-eval:TASK:train`, its training split.
TASK is a task, a group of tasks, or a YAML file that declares one. Needs the extra `lm-eval`.
"""

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from fsd.api import Prompt, Question, TokenStats, UsageError, refusing

PREFIX = "lm-eval:"
TRAIN = ":train"
ACCURACY = "acc"
"""The harness's name of the share of right answers."""


Doc = Mapping[str, Any]
"""A document of a task, as its dataset has it."""


@dataclass(frozen=True)
class HarnessEntry:
    """An entry of --data that names tasks of the harness, or their training split."""

    entry: str

    @property
    def split_of(self) -> str:
        """The entry whose training split this one is; "" if it is none."""
        return self.entry.removesuffix(TRAIN) if self.entry.endswith(TRAIN) else ""

    @property
    def training_split(self) -> str:
        """The entry of the training split; "" if there is none, this is one, or it cannot be loaded any more."""
        # It is asked for at the end of a command, whose results must not be lost.
        with suppress(UsageError):
            if not self.split_of and all(task.has_training_docs() for task in self._tasks.values()):
                return self.entry + TRAIN
        return ""

    @cached_property
    def _tasks(self) -> Mapping[str, Any]:
        # Ours are the beginning and the end, the rest is the harness's own.
        return _tasks(self.entry.removeprefix(PREFIX).removesuffix(TRAIN))

    def _docs(self) -> Iterator[tuple[str, Any, Doc]]:
        """Each document after its origin and its task."""
        for name, task in self._tasks.items():
            place = f"{PREFIX}{name}"
            docs = task.eval_docs
            if self.split_of:
                if not task.has_training_docs():
                    raise UsageError(f"task must have a training split to be taken by {TRAIN[1:]}; {name} has none")
                place += TRAIN
                docs = task.training_docs()
            for number, doc in enumerate(docs, 1):
                yield f"{place}:{number}", task, doc

    def rows(self, *, contexts: bool = False) -> Iterator[tuple[str, Mapping[str, str]]]:
        """Each question and its answer as a text, after its origin; with `contexts` the answer after the question."""
        for origin_url, task, doc in self._docs():
            question, answer = rendered(task, doc)
            text = {"text": question + answer, "answer": answer}
            if contexts:
                text = {"text": answer, "context": question}
            yield origin_url, text

    def questions(self) -> list[Question]:
        """The questions that the harness evaluates, if probabilities of answers decide them; none of other tasks.

        The model writes the answers of other tasks itself, or they have no answers.
        """
        questions = []
        for origin_url, task, doc in self._docs():
            if _is_marked(task):
                questions.append(Question(origin_url, _prompts(task, doc), partial(_mark, task, doc)))
        return questions


def entry(place: str) -> HarnessEntry | None:
    """The tasks that an entry of --data names; None for another entry."""
    return HarnessEntry(place) if place.startswith(PREFIX) else None


def _is_marked(task: Any) -> bool:
    """Whether a task is declared in YAML, and marks answers by their probabilities as right or wrong."""
    by_probability = task.OUTPUT_TYPE in ("multiple_choice", "loglikelihood")
    return by_probability and hasattr(task, "build_qa_turn") and ACCURACY in task.aggregation()


def _prompts(task: Any, doc: Doc) -> list[Prompt]:
    """Each answer of a question after its context, as the harness asks for it."""
    prefix = task.doc_to_prefix(doc)
    context = task.fewshot_context(doc, 0, gen_prefix=prefix)
    requests = task.construct_requests(doc, context)
    # An answer without alternatives is one request.
    if not isinstance(requests, list):
        requests = [requests]
    prompts = []
    for request in requests:
        context, answer = request.args
        prompts.append(Prompt(answer, context))
    return prompts


def _mark(task: Any, doc: Doc, answers: Sequence[TokenStats]) -> float:
    """The mark that the harness gives."""
    # An API does not say which token is the likeliest, by which an answer without alternatives is right.
    if task.OUTPUT_TYPE == "loglikelihood" and any(math.isnan(top) for top in answers[0].top):
        return math.nan
    results = [(float(answer.logp.sum()), bool(answer.predicted.all())) for answer in answers]
    return float(task.process_results(doc, results)[ACCURACY])


def _tasks(name: str) -> Mapping[str, Any]:
    """The tasks of a name, which download their datasets."""
    try:
        from lm_eval.tasks import TaskManager
    except ImportError as error:
        raise UsageError(f"{PREFIX}TASK must come with the extra lm-eval: pip install 'fsd[lm-eval]'") from error
    logging.getLogger("lm_eval").setLevel(logging.ERROR)  # it warns of defaults that only its own evaluation uses
    is_file = Path(name).suffix in (".yaml", ".yml")
    if is_file and not Path(name).is_file():
        raise UsageError(f"task must be a file that exists; there is no {name}")
    # the index of its own tasks takes seconds to read
    manager = TaskManager(include_defaults=not is_file)
    if not is_file and name not in manager.task_index:
        raise UsageError(f"task must be one of lm-evaluation-harness, or a YAML file; got {name!r}")
    # Errors of the hub, of the YAML, and of code that it names.
    with refusing(f"task must be one that lm-evaluation-harness can load; {name}: "):
        tasks: Mapping[str, Any] = manager.load([name])["tasks"]
        return tasks


def rendered(task: Any, doc: Doc) -> tuple[str, str]:
    """The question, and the right answer, with the delimiter before it, whose log-probability the harness computes."""
    question = task.doc_to_text(doc)
    answer = task.doc_to_target(doc)
    if not hasattr(task, "build_qa_turn"):  # a task in Python, whose answers begin with their delimiter
        return question, answer
    if task.OUTPUT_TYPE == "loglikelihood_rolling":
        return "", answer
    choices = task.doc_to_choice(doc) if task.config.doc_to_choice is not None else None
    if choices and isinstance(question, int):  # the choices are questions, with one answer
        question = choices[question]
        choices = None
    delimiter = "" if task.OUTPUT_TYPE == "loglikelihood" else task.config.target_delimiter
    prefix = task.doc_to_prefix(doc) or ""
    turn = task.build_qa_turn(q=question, c=choices, a=answer, gen_prefix=prefix, tgt_delim=delimiter, few_delim="")
    # a prefix is a part of the question that follows the delimiter, so no delimiter is left before the answer
    if not prefix:
        return question, delimiter + turn[-1].content
    return turn[0].to_text() + prefix, turn[-1].content.removeprefix(prefix)
