"""What a command is about to do, once its settings and files have been checked, and its dry run."""

import math
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fsd import distributed, tracking
from fsd.config import AdapterConfig, APIConfig, ModelConfig
from fsd.errors import UsageError, counted, quoted, without_credentials
from fsd.net.hub import EMBEDDED, check_located, check_other_weights, check_tokenizer_located, model_size, weights_file
from pipelines.command.context import context, demands

if TYPE_CHECKING:
    from fsd.reporting.report import Report
    from fsd.scoring.services import Cost
    from fsd.token_stats import Prompt

# Bytes that any run takes, for figures and report.
RUN_BYTES = 2**20
Rows = list[tuple[str, str]]
"""Rows of a plan: heading and words."""
Passes = Mapping[str, int]
"""Reader (base, tuned, reference) → number of texts that it scores."""


class Stated(str):
    """What a row of a plan says: words for people, and the `value` for programs, with units in the keys of numbers."""

    value: Any

    def __new__(cls, words: str, value: Any) -> "Stated":
        """The words, with their value."""
        stated = super().__new__(cls, words)
        stated.value = value
        return stated


def value_of(words: str) -> Any:
    """The value of a row, without the credentials of URLs; words without a value are their own."""
    return _bare(getattr(words, "value", words))


def _bare(value: Any) -> Any:
    if isinstance(value, str):
        return without_credentials(value)
    if isinstance(value, Mapping):
        return {key: _bare(entry) for key, entry in value.items()}
    if isinstance(value, Sequence):
        return list(map(_bare, value))
    return value


OWN_TEXTS = "to try verdicts, the model also continues 20 openings of each source: they are not part of the numbers"


@dataclass(frozen=True)
class Job:
    """A command whose settings and files have been checked.

    Attributes:
        work: does it.
        reads: what is read → files and numbers of texts.
        model: the model under test; None if none is loaded.
        texts: texts that are scored; None if they are not on this machine, so that they cannot be counted.
        passes: see `Passes`.
        trained: texts that are trained on.
        training: how; None without training.
        rounds: how often training and scoring are repeated, such as by the trials of a tuning.
        writes: what is written.
        experiment: of the tracked run; empty for a command that is not tracked.
        api: how a model behind an API is reached; None for a command that needs one on this machine.
        adapter: a saved adapter that is attached to the model.
        further: flag → model beside the one under test and those that it names itself, such as a control model.
        checks: what else could be refused before the work, each raising a UsageError; a dry run calls them too.
        notes: what the numbers leave out.
        parts: makes the jobs whose numbers are added up in place of its own, such as the cells of a study.
        asked: what a model behind an API is asked; by default each pass is a request.
        read: what was read of the files, in words, where it is not the plain case; see `fsd.data.reading`.
    """

    work: Callable[[], object]
    reads: Mapping[str, str]
    model: ModelConfig | None = None
    texts: Sequence[str] | None = ()
    passes: Passes = field(default_factory=dict)
    trained: Sequence[str] = ()
    training: AdapterConfig | None = None
    rounds: int = 1
    writes: Sequence[object] = ()
    experiment: str = ""
    notes: Sequence[str] = ()
    parts: "Callable[[], Sequence[Job]] | None" = None
    asked: "Callable[[], Cost] | None" = None
    api: APIConfig | None = None
    adapter: str | None = None
    further: Mapping[str, str] = field(default_factory=dict)
    checks: Sequence[Callable[[], object]] = ()
    read: str = ""

    def __post_init__(self) -> None:
        prefix, _, domain = self.experiment.partition("-")
        if prefix == "fsd":
            check_name("domain", domain)

    def check(self) -> None:
        """Refuse what the work would refuse before it trains or scores; no store is made for that."""
        # For the end of the command, whatever it reports.
        context().read.clear()
        if self.read:
            context().read["read"] = self.read
        for check in self.checks:
            check()
        if self.model:
            self._check_model(self.model)
            for flag, name in self.further.items():
                check_located(name)
                check_other_weights(flag, name, self.model.model, self.model.revision)
        if self.experiment:
            check_space(chain(self.texts or (), self.trained))
            distributed.from_main(tracking.check_store)

    def _check_model(self, model: ModelConfig) -> None:
        from fsd.scoring.model_checks import check_model
        from fsd.scoring.services import service_scorers

        if self.api and model.by_api:
            service_scorers(model, self.api)
        else:
            # It refuses an API too.
            check_tokenizer_located(model.model, model.revision)
        check_model(model)
        check_saved(self.adapter, model)
        # A model that is not here yet has its modules known after the download.
        if self.trained and self.training and model_size(model.model, model.revision):
            from fsd.models.adapters import check_targets

            check_targets(model.model, model.revision, self.training)

    def run(self) -> object:
        """Do the work, after a check that its results can be stored."""
        self.check()
        return self.work()

    def plan(self) -> "Report":
        """What would be done, without doing it."""
        import pandas as pd

        from fsd.evaluation.findings import as_findings
        from fsd.reporting.report import Report, Section, numbers

        writes = [path if isinstance(path, Stated) else str(path) for path in self.writes if path]
        if self.experiment:
            writes.append(Stated(f"a run of the experiment {self.experiment}", {"experiment": self.experiment}))
        rows = [*self.reads.items(), *self._model_rows()]
        if self.read:
            rows.insert(len(self.reads), ("read", self.read))
        rows.append(("writes", Stated(", ".join(writes) or "nothing", list(map(value_of, writes)))))
        facts = [(name, without_credentials(words)) for name, words in rows]
        values = [(name, value_of(words)) for name, words in rows]
        table = numbers("plan", pd.DataFrame(values, columns=["what", "value"], dtype=object))
        # The protocol itself is written, if it is not there.
        undone = "scored or tracked" if demands().protocol else "scored, written or tracked"
        return Report(
            headline="dry run",
            findings=as_findings([*self.notes, f"dry run: nothing was trained, {undone}"]),
            sections=[Section("", tables=[table])],
            facts=facts,
        )

    def _model_rows(self) -> Rows:
        """What is known of the model and of its work; a model that is not here is neither downloaded nor loaded."""
        if self.model is None:
            return []
        name = self.model.model
        api = self.model.by_api
        size = model_size(name, self.model.revision)
        described: object = name
        if api:
            words = f"{name}, behind an API: nothing is loaded"
        elif size is None:
            words = f"{name}: not on this machine, to be downloaded; its size is known after that"
        else:
            words = f"{name}: {size.parameters:,} parameters, {byte_size(size.size)} in {size.folder}"
            described = {"name": name, "parameters": size.parameters, "bytes": size.size, "folder": str(size.folder)}
        parts: Sequence[Job] = [self]
        if self.parts:
            parts = self.parts()
        steps = sum(part.training_steps for part in parts)
        rows: Rows = [("model", Stated(words, described)), ("forward passes", _forward_passes(parts))]
        rows.append(("training steps", Stated(f"{steps:,}", steps)))
        if api:
            rows += self._asked_rows()
        if size is None:
            return rows
        from fsd.models.devices import memory

        low, high, device = memory(size, self.model, trained=bool(steps))
        if self.texts is not None:
            rows += _computed(parts)
        memory_words = f"{byte_size(low)} to {byte_size(high)} on {device}"
        rows.append(("memory", Stated(memory_words, {"low_bytes": low, "high_bytes": high, "device": device})))
        return rows

    def _asked_rows(self) -> Rows:
        """What the API is asked, and the cost where a price is given."""
        cost = self.asked() if self.asked else self._as_requests()
        if cost is None:
            return [("requests", Stated("unknown before the download of the tokenizer", None))]
        tokens = f"about {cost.sent:,} sent and at most {cost.generated:,} generated"
        values = {"sent": cost.sent, "generated_at_most": cost.generated}
        rows: Rows = [("requests", Stated(f"{cost.requests:,}", cost.requests)), ("tokens", Stated(tokens, values))]
        if self.api and self.api.price is not None:
            price = self.api.price
            rows.append(("cost", Stated(cost.priced(price), cost.amount(price))))
        return rows

    def _as_requests(self) -> "Cost | None":
        """What the passes cost, each a request with a text; None if the texts are not known yet."""
        from fsd.scoring.services import Cost
        from fsd.token_stats import Prompt

        texts = self.texts
        if not texts or not self.model or not self.api:
            return None
        every = api_cost(self.model, self.api, lambda: {"base": map(Prompt, texts)})
        requests = self.passes["base"]
        # A request generates a token, which is paid for, too.
        return Cost(requests, round(every.sent / every.requests * requests), requests)

    @property
    def training_steps(self) -> int:
        """Optimiser steps of all rounds."""
        if self.training is None:
            return 0
        # The last batch of an epoch may be smaller, but is a step all the same.
        return math.ceil(len(self.trained) / self.training.batch_size) * self.training.epochs * self.rounds

    @property
    def total_passes(self) -> Passes:
        """The passes of all rounds."""
        return {reader: count * self.rounds for reader, count in self.passes.items()}


def _forward_passes(parts: Sequence[Job]) -> Stated:
    total = Counter[str]()
    for part in parts:
        if part.texts is None:
            return Stated("unknown before the download", None)
        total.update(part.total_passes)
    by_reader = Counter[str]()
    for reader, count in total.items():
        # Those that generate are followed by the number of tokens.
        by_reader[reader.partition(" about ")[0]] += count
    work = ", ".join(f"{count:,} by {reader}" for reader, count in total.items())
    return Stated(f"{total.total():,} texts ({work})", by_reader)


def _computed(parts: Sequence[Job]) -> Rows:
    """Tokens that are computed in all parts."""
    read = scored = trained = 0
    for model, jobs in _by_model(parts).items():
        if model_size(model.model, model.revision) is None:
            return [("tokens", Stated(f"unknown before the download of {model.model}", None))]
        lengths = _lengths(jobs, model)
        for job in jobs:
            texts = job.texts or ()
            of_texts = sum(map(lengths.__getitem__, texts))
            read += of_texts
            # A text may count often, as each pass does; those before others are not counted.
            scored += round(of_texts / max(1, len(texts)) * sum(job.total_passes.values()))
            if job.training:
                epochs = job.training.epochs * job.rounds
                trained += epochs * sum(map(lengths.__getitem__, job.trained))
    words = f"about {scored:,} in scoring, {trained:,} in training; {read:,} in the texts to score"
    values = {"scoring": scored, "training": trained, "texts": read}
    return [("tokens", Stated(words, values))]


def _by_model(parts: Sequence[Job]) -> dict[ModelConfig, list[Job]]:
    jobs: dict[ModelConfig, list[Job]] = {}
    for part in parts:
        if part.model:
            jobs.setdefault(part.model, []).append(part)
    return jobs


def _lengths(jobs: Sequence[Job], model: ModelConfig) -> dict[str, int]:
    """Text → its tokens; texts that several jobs share are tokenized once."""
    from fsd.models.language_model import check_embedded, load_tokenizer, token_ids

    every: set[str] = set()
    for job in jobs:
        every.update(job.texts or (), job.trained)
    texts = sorted(every)
    tokenizer, vocabulary = load_tokenizer(model.model, revision=model.revision)
    rows = token_ids(tokenizer, texts)
    check_embedded(tokenizer, vocabulary, zip(texts, rows, strict=True))
    return dict(zip(texts, map(len, rows), strict=True))


def check_saved(adapter: str | None, model: ModelConfig) -> None:
    """Refuse a saved adapter, if there is one, that does not belong to a model."""
    if adapter:
        from fsd.models.adapters import check_unloaded

        check_unloaded(distributed.from_main(lambda: tracking.fetch_adapter(adapter)), model.model, model.revision)


def check_name(flag: str, name: str) -> None:
    """Check that a name can be part of the names of experiments and studies."""
    # Names of dots alone would be folders above the one that they are in.
    if not re.fullmatch(r"[\w.-]{1,100}", name) or set(name) == {"."}:
        raise UsageError(f"{flag} must be 1 to 100 letters, digits, _, - and .; got {quoted(name)}")


def files(paths: Iterable[object], texts: int | None = None, more: str = "", **values: object) -> Stated:
    """Files with their number of texts, if it is known, and with more words and values."""
    listed = list(map(str, paths))
    words = ", ".join(listed[:3])
    if len(listed) > 3:
        words += f" and {len(listed) - 3} more"
    stated: dict[str, object] = {"files": listed}
    if texts is not None:
        words = f"{counted(texts, 'text')} in {words}"
        stated["texts"] = texts
    return Stated(f"{words}{more}", stated | values)


def names(listed: Sequence[str], otherwise: str = "") -> Stated:
    """Names, or what is meant without any."""
    return Stated(", ".join(listed) or otherwise, list(listed) or [otherwise])


def api_cost(
    model: ModelConfig, api: APIConfig, asked: "Callable[[], Mapping[str, Iterable[Prompt]]]", *, chat: bool = False
) -> "Cost":
    """What the prompts of each scorer ask an API, by its tokenizer if that is on this machine."""
    from fsd.models.language_model import load_tokenizer
    from fsd.scoring.services import Cost, PromptTokens, service_scorers

    tokens = None
    # A dry run downloads nothing.
    if api.tokenizer and on_this_machine(api.tokenizer):
        tokenizer, _ = load_tokenizer(api.tokenizer, revision=model.revision)
        tokens = PromptTokens(tokenizer, api.tokenizer)
    scorers = service_scorers(model, api, tokens, chat=chat)
    total = Cost()
    for name, prompts in asked().items():
        total = total.plus(scorers[name].cost(list(prompts)))
    return total


def on_this_machine(name: str) -> bool:
    """Whether a file or model can be read without the network."""
    return name in EMBEDDED or Path(name).expanduser().exists() or weights_file(name) is not None


def byte_size(number: float) -> str:
    """A number of bytes in a fitting unit."""
    power = min(int(math.log10(max(number, 1)) / 3), 4)
    return f"{number / 1000**power:.3g} {('B', 'kB', 'MB', 'GB', 'TB')[power]}"


def check_space(texts: Iterable[str]) -> None:
    """Refuse a disk without room for tables of the texts in the working folder, estimated far below the need."""
    # An eighth of the texts: a limit near the need would refuse runs that fit.
    needed = RUN_BYTES + sum(map(len, texts)) // 8
    free = shutil.disk_usage(Path.cwd()).free
    if free < needed:
        raise UsageError(
            f"the working folder must have at least {needed / 2**20:.1f} MiB of free space; it has "
            f"{free / 2**20:.1f} MiB"
        )
