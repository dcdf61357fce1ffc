"""Works that a model is asked for by simple prompts, and what its replies have of them."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from extensions.extract import prompt_report
from extensions.extract.prompt_report import Entry
from extensions.extract.questions import AskedWork, questions_for, read_works
from extensions.extract.replies import Reply, Request, replies_of, sent
from extensions.extract.settings import ExtractConfig
from fsd.api import Cost, UsageError, at_least, note
from pipelines.api import Job, examine, files, names, on_this_machine, open_examined, stage

SHORTEST = 3
"""Words of the shortest span: shorter runs are in any two texts."""
CHARACTERS = 4
"""Characters of a token, about, where no tokenizer is here to count them."""


def prepare(config: ExtractConfig) -> Job:
    """Check the settings, read works and questions, and write the prompts."""
    _check(config)
    works = read_works(config)
    asked = written(config, works)
    requests = [entry.request for entry in asked]
    # A model of the hub is asked for its length after the download.
    if on_this_machine(config.model.model):
        from fsd.api import load_chats

        chats, context = load_chats(config.model)
        for request in requests:
            sent(chats, context, request, plain=config.plain)
    questions = dict.fromkeys(entry.question.name for entry in asked)
    texts = [request.prompt for request in requests]
    cost = Cost(len(requests), sum(map(len, texts)) // CHARACTERS, len(requests) * config.max_tokens)
    line = cost.line()
    # The passes of a model on this machine do not tell how many tokens are generated, which is the cost.
    notes = [line]
    if config.model.by_api:
        line = cost.line(config.api.price)
        notes = []
    work = partial(run, config, works, asked, line)
    reads = {"works": files(config.names, len(works)), "prompts": names(list(questions))}
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


def _check(config: ExtractConfig) -> None:
    """Refuse settings by which a model cannot be asked, or that have no effect on what it is asked."""
    from fsd.api import Sampling

    at_least(1, " token", **{"max-tokens": config.max_tokens})
    at_least(1, " word", prefix=config.prefix)
    at_least(SHORTEST, " words", span=config.span)
    at_least(1, replies=config.replies, places=config.places)
    Sampling(config.temperature, config.top_k).check()
    if config.replies > 1 and not config.temperature:
        raise UsageError(f"temperature must be above 0 for {config.replies} replies, or all are the same; got 0")
    if config.model.by_api:
        # They would change nothing that is sent, and a user would think that they did.
        useless = {"top-k": config.top_k, "tokenizer": config.api.tokenizer, "start-token": config.api.start_token}
        for name, value in useless.items():
            if value:
                raise UsageError(f"{name} must be left out where an API is asked by prompts; got {value}")


def written(config: ExtractConfig, works: Sequence[AskedWork]) -> list[Entry]:
    """The requests of every prompt for every work: for the likeliest reply, and for those that are drawn."""
    questions = questions_for(config, works)
    asked = []
    for work in works:
        for question in questions:
            for prompt in question.about(work, config):
                request = Request(prompt, config.max_tokens, seed=config.seed, continues=question.continues)
                asked.append(Entry(work, question, request))
                for number in range(1, config.replies):
                    # Another seed each, or all drawn replies would be the same.
                    seed = config.seed + number
                    drawn = replace(request, temperature=config.temperature, top_k=config.top_k, seed=seed)
                    asked.append(Entry(work, question, drawn))
    return asked


def run(config: ExtractConfig, works: Sequence[AskedWork], asked: Sequence[Entry], cost: str) -> None:
    """Ask, compare, track and print."""
    with stage("model"):
        model = open_examined(config, config.book, adapter=config.adapter, chat=not config.plain)
        note(cost)

    def score() -> list[Entry]:
        replies = list(replies_of(model, plain=config.plain)([entry.request for entry in asked]))
        _check_replies(replies)
        return [replace(entry, reply=reply) for entry, reply in zip(asked, replies, strict=True)]

    report = partial(prompt_report.report, config, works)
    examine(config, "extract", config.names, score, report, method="prompts")


def _check_replies(replies: Sequence[Reply]) -> None:
    """Refuse a model that says nothing at all: no answer is none that anything could be learned from."""
    if not any(reply.text.strip() for reply in replies):
        raise UsageError(
            f"the model must answer; all {len(replies)} replies are empty: a model that reasons first needs more "
            "tokens (--max-tokens), and a base model may end at once (--prompts opening)"
        )
