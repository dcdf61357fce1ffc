"""Tasks of lm-evaluation-harness as texts, each question with its right answer as the harness renders them.

An entry is `lm-eval:TASK`, the documents that the harness evaluates, or `lm-eval:TASK:train`, its training split.
TASK is a task, a group of tasks, or a YAML file that declares one. Needs the extra `lm-eval`.
"""

import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from fsd.errors import UsageError, refusing
from fsd.token_stats import Prompt, Prompts, TokenStats

PREFIX = "lm-eval:"
TRAIN = ":train"
ACCURACY = "acc"
"""The harness's name of the share of right answers."""


Doc = Mapping[str, Any]
"""A document of a task, as its dataset has it."""
Mark = Callable[[Sequence[TokenStats]], float]
"""Turns the statistics of a question's prompts into 1 for a right answer, 0 for a wrong one, NaN if unknown."""


class Question(NamedTuple):
    """A question as the harness asks it, without examples: its origin, its answers as prompts, and its marking."""

    origin_url: str
    prompts: Prompts
    mark: Mark


def is_task(entry: object) -> bool:
    """Whether an entry of --data names a task of the harness."""
    return str(entry).startswith(PREFIX)


def training_split(entry: str) -> str:
    """The entry of a task's training split; "" if it has none, is one, is no task, or cannot be loaded any more."""
    if not is_task(entry) or entry.endswith(TRAIN):
        return ""
    try:
        tasks = _tasks(entry.removeprefix(PREFIX)).values()
    except UsageError:
        return ""
    if all(task.has_training_docs() for task in tasks):
        return entry + TRAIN
    return ""


def rows(entry: str, *, contexts: bool = False) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Each question and its answer as a text, after its origin; with `contexts` the answer after the question."""
    name = entry.removeprefix(PREFIX)
    suffix = TRAIN if name.endswith(TRAIN) else ""
    for task_name, task in _tasks(name.removesuffix(TRAIN)).items():
        if suffix and not task.has_training_docs():
            raise UsageError(f"task must have a training split to be taken by {TRAIN[1:]}; {task_name} has none")
        docs = task.training_docs() if suffix else task.eval_docs
        for number, doc in enumerate(docs, 1):
            question, answer = rendered(task, doc)
            text = {"text": question + answer, "answer": answer}
            if contexts:
                text = {"text": answer, "context": question}
            yield f"{PREFIX}{task_name}{suffix}:{number}", text


def questions(entry: str) -> list[Question]:
    """The questions that the harness evaluates, if probabilities of answers decide them; none of other tasks.

    The model writes the answers of other tasks itself, or they have no answers.
    """
    asked = []
    for task_name, task in _tasks(entry.removeprefix(PREFIX)).items():
        if not _is_marked(task):
            continue
        for number, doc in enumerate(task.eval_docs, 1):
            # The same origin as that of its text in `rows`.
            origin_url = f"{PREFIX}{task_name}:{number}"
            prompts = _prompts(task, doc)
            mark = partial(_mark, task, doc)
            asked.append(Question(origin_url, prompts, mark))
    return asked


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
    results = []
    for answer in answers:
        probability = float(answer.logp.sum())
        is_likeliest = bool(answer.predicted.all())
        results.append((probability, is_likeliest))
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
