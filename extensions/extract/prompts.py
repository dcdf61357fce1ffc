"""Works that a model is asked for by simple prompts, and what its replies have of them."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import PurePath
from typing import NamedTuple

from extensions.extract import prompt_report
from extensions.extract.prompt_report import Entry
from extensions.extract.questions import AUTHOR, TITLE, AskedWork, Question, check_works, prompts, read_questions, usual
from extensions.extract.replies import Reply, Request, all_sent, open_replies
from extensions.extract.returned import Returned, returned, words_of
from extensions.extract.settings import ExtractConfig
from fsd.data.cells import check_characters
from fsd.data.readers import COMPRESSIONS, TABLES, document, read_rows
from fsd.errors import UsageError, at_least
from fsd.files import read_text
from fsd.progress import note
from fsd.scoring.services import Cost
from pipelines.command.context import stage
from pipelines.command.deliver import deliver
from pipelines.command.job import Job, files, names, on_this_machine
from pipelines.experiment.adapter_files import fetched
from pipelines.experiment.examination import examination

SHORTEST = 3
"""Words of the shortest span: shorter runs are in any two texts."""
CHARACTERS = 4
"""Characters of a token, about, where no tokenizer is here to count them."""


class Asked(NamedTuple):
    """A request about a work, made of a question."""

    work: AskedWork
    question: Question
    request: Request


def read_book(path: str) -> str:
    """The text of a work; a UsageError if it is blank."""
    text = read_text(path)
    if not text.strip():
        raise UsageError(f"{path} must hold a text that is not blank; it has none")
    return text


def prepare(config: ExtractConfig) -> Job:
    """Check the settings, read works and questions, and write the prompts."""
    _check(config)
    works = read_works(config)
    asked = written(config, works)
    requests = [entry.request for entry in asked]
    _check_lengths(config, requests)
    questions = dict.fromkeys(entry.question.name for entry in asked)
    reads = {"works": files(config.names, len(works)), "prompts": names(list(questions))}
    cost = _cost(config, requests)
    by_api = config.model.by_api
    line = cost.line()
    # The passes of a model on this machine do not tell how many tokens are generated, which is the cost.
    notes = [line]
    if by_api:
        line = cost.line(config.api.price)
        notes = []
    work = partial(run, config, works, asked, line)
    texts = [request.prompt for request in requests]
    passes = {"base": len(requests)}
    experiment = f"fsd-{config.domain}"
    return Job(
        work,
        reads,
        config.model,
        texts,
        passes,
        experiment=experiment,
        notes=notes,
        api=config.api,
        adapter=config.adapter,
        asked=lambda: cost,
    )


def _check_lengths(config: ExtractConfig, requests: Sequence[Request]) -> None:
    """Refuse prompts that are too long for a model on this machine, before it is loaded."""
    # A model of the hub is asked for its length after the download.
    if not on_this_machine(config.model.model):
        return
    from fsd.models.language_model import load_chats

    chats, context = load_chats(config.model)
    all_sent(chats, context, requests, plain=config.plain)


def _cost(config: ExtractConfig, requests: Sequence[Request]) -> Cost:
    """What the requests cost."""
    sent = sum(len(request.prompt) for request in requests) // CHARACTERS
    return Cost(len(requests), sent, len(requests) * config.max_tokens)


def _check(config: ExtractConfig) -> None:
    """Refuse settings by which a model cannot be asked, or that have no effect on what it is asked."""
    from fsd.scoring.sampling import Sampling

    at_least(1, " token", **{"max-tokens": config.max_tokens})
    at_least(1, " word", prefix=config.prefix)
    at_least(SHORTEST, " words", span=config.span)
    at_least(1, replies=config.replies)
    Sampling(config.temperature, config.top_k).check()
    if config.replies > 1 and not config.temperature:
        raise UsageError(f"temperature must be above 0 for {config.replies} replies, or all are the same; got 0")
    if config.model.by_api:
        # They would change nothing that is sent, and a user would think that they did.
        useless = {"top-k": config.top_k, "tokenizer": config.api.tokenizer, "start-token": config.api.start_token}
        for name, value in useless.items():
            if value:
                raise UsageError(f"{name} must be left out where an API is asked by prompts; got {value}")


def read_works(config: ExtractConfig) -> list[AskedWork]:
    """The works in question, and then the control works."""
    works = _works_in(config.book, config)
    for path in config.control:
        works += _works_in(path, config, control=True)
    # Results are told by these names, and p-values are looked up by them.
    for name, count in Counter(work.name for work in works).items():
        if count > 1:
            raise UsageError(f"works must have different titles, or names of files; {name!r} stands for several")
    return works


def _works_in(path: str, config: ExtractConfig, *, control: bool = False) -> list[AskedWork]:
    """The works of a table, one a row, or the one of a text file, whose title only a flag can tell."""
    title = ""
    author = ""
    # The flags tell of the book: a control of the same name would be another work.
    if not control:
        title = config.title or title
        author = config.author or author
    if not _is_table(path):
        return [AskedWork(title or PurePath(path).name, read_book(path), title, author, control)]
    if title or author:
        raise UsageError(f"title and author must stand in the columns of a table, not in flags; got {title or author}")
    return [_work(row, origin, control=control) for origin, row in read_rows([path])]


def _work(row: Mapping[str, object], origin: str, *, control: bool) -> AskedWork:
    if "text" not in row:
        raise UsageError(
            f"{origin}: a work must be in the column text; columns are {', '.join(map(str, row)) or 'none'}"
        )
    title = _cell(row.get(TITLE), TITLE, origin)
    author = _cell(row.get(AUTHOR), AUTHOR, origin)
    return AskedWork(title or origin, document(row, {}, origin).text, title, author, control)


def _is_table(path: str) -> bool:
    # As the readers tell a format, by its ending below that of a compression.
    name = PurePath(path.lower())
    if name.suffix in COMPRESSIONS:
        name = name.with_suffix("")
    return name.suffix in TABLES


def _cell(value: object, field: str, origin: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise UsageError(f"{origin}: {field} must be a string; got {value!r:.60}")
    check_characters(value, origin, field)
    # A line break in a title has no meaning, and would end the prompt for a base model.
    return " ".join(value.split())


def written(config: ExtractConfig, works: Sequence[AskedWork]) -> list[Asked]:
    """The requests of every prompt for every work: for the likeliest reply, and for those that are drawn."""
    questions = usual(config.prompts, works)
    if config.questions:
        questions += read_questions(config.questions)
    check_works(works, questions, config.prefix, config.span)
    asked = []
    for work, question, prompt in prompts(works, questions, config.prefix):
        likeliest = Request(prompt, config.max_tokens, seed=config.seed, continues=question.continues)
        asked.append(Asked(work, question, likeliest))
        for number in range(1, config.replies):
            # Another seed each, or all drawn replies would be the same.
            drawn = replace(likeliest, temperature=config.temperature, top_k=config.top_k, seed=config.seed + number)
            asked.append(Asked(work, question, drawn))
    return asked


def run(config: ExtractConfig, works: Sequence[AskedWork], asked: Sequence[Asked], cost: str) -> None:
    """Ask, compare, track and print."""
    with stage("model"):
        answers = config.answers or f"{config.book.rstrip('/')}.answers"
        ask = open_replies(config.model, config.api, answers, adapter=fetched(config.adapter), plain=config.plain)
        note(cost)
    with examination(config, "extract", config.names, method="prompts", adapter=config.adapter or "") as tracked:
        with stage("scoring"):
            replies = list(ask([entry.request for entry in asked]))
            _check_replies(replies)
            transcript = [Entry(*entry, reply) for entry, reply in zip(asked, replies, strict=True)]
            results = compare(works, transcript, config.span)
        deliver(partial(prompt_report.report, config, results, transcript, tracked.id), tracked)


def _check_replies(replies: Sequence[Reply]) -> None:
    """Refuse a model that says nothing at all: no answer is none that anything could be learned from."""
    if not any(reply.text.strip() for reply in replies):
        raise UsageError(
            f"the model must answer; all {len(replies)} replies are empty: a model that reasons first needs more "
            "tokens (--max-tokens), and a base model may end at once (--prompts opening)"
        )


def compare(works: Sequence[AskedWork], transcript: Sequence[Entry], span: int) -> list[Returned]:
    """What the replies to the prompts for each work have of it, and of the control works."""
    words = {work.name: words_of(work.text) for work in works}
    controls = [words[work.name] for work in works if work.control]
    results = []
    for work in works:
        exchanges = [entry.exchange for entry in transcript if entry.work is work]
        # What replies about a control work have of other works is no part of the answer.
        results.append(
            returned(
                work.name, words[work.name], exchanges, span, () if work.control else controls, control=work.control
            )
        )
    return results
