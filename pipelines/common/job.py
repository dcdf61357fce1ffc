"""What a command is about to do, once its settings and files have been checked, and its dry run."""

import math
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from fsd import distributed, tracking
from fsd.config import NEIGHBOURS, AdapterConfig, ModelConfig, Recipe
from fsd.errors import UsageError, at_least, without_credentials

if TYPE_CHECKING:
    from fsd.reporting.report import Report
    from fsd.token_stats import Labelled
    from fsd.views import Detector, Draws, View, ViewInputs

TOKEN = 3.0
"""Characters a token, about, of the small vocabularies of models that are pretrained from scratch."""
# Bytes that any run takes, for figures and report.
RUN_BYTES = 2**20
Passes = Mapping[str, int]
"""Reader (base, tuned, reference) → number of texts that it scores."""


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
        notes: what the numbers leave out.
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

    def __post_init__(self) -> None:
        prefix, _, domain = self.experiment.partition("-")
        if prefix == "fsd":
            check_name("domain", domain)

    def check(self) -> None:
        """Refuse what could not be stored."""
        if self.experiment:
            check_space(chain(self.texts or (), self.trained))
            distributed.from_main(tracking.check_store)

    def run(self) -> object:
        """Do the work, after a check that its results can be stored."""
        self.check()
        return self.work()

    def plan(self) -> "Report":
        """What would be done, without doing it."""
        import pandas as pd

        from fsd.evaluation.findings import as_findings
        from fsd.reporting.report import Report, Section, numbers

        writes = [str(path) for path in self.writes if path]
        if self.experiment:
            writes.append(f"a run of the experiment {self.experiment}")
        rows = [
            *self.reads.items(),
            *self._model_rows(),
            ("writes", ", ".join(writes) or "nothing"),
        ]
        facts = [(name, without_credentials(value)) for name, value in rows]
        table = numbers("plan", pd.DataFrame(facts, columns=["what", "value"]))
        return Report(
            headline="dry run",
            findings=as_findings([*self.notes, "dry run: nothing was trained, scored, written or tracked"]),
            sections=[Section("", tables=[table])],
            facts=facts,
        )

    def _model_rows(self) -> list[tuple[str, str]]:
        """What is known of the model and of its work; a model that is not here is neither downloaded nor loaded."""
        if self.model is None:
            return []
        from fsd.net.hub import model_size

        name = self.model.model
        api = name.startswith("api:")
        size = None if api else model_size(name, self.model.revision)
        if api:
            described = f"{name}, behind an API: nothing is loaded"
        elif size is None:
            described = f"{name}: not on this machine, to be downloaded; its size is known after that"
        else:
            described = f"{name}: {size.parameters:,} parameters, {byte_size(size.size)} in {size.folder}"
        steps = self._training_steps()
        rows = [
            ("model", described),
            ("forward passes", self._forward_passes()),
            ("training steps", f"{steps:,}"),
        ]
        if size is None:
            return rows
        from fsd.models.language_model import load_tokenizer, memory, token_ids

        if self.texts is not None:
            tokenizer, _ = load_tokenizer(name, revision=self.model.revision)
            tokens = sum(map(len, token_ids(tokenizer, self.texts)))
            rows.append(("tokens", f"{tokens:,} in the texts to score"))
        low, high, device = memory(size, self.model, trained=bool(steps))
        return [
            *rows,
            ("memory", f"{byte_size(low)} to {byte_size(high)} on {device}"),
        ]

    def _training_steps(self) -> int:
        if self.training is None:
            return 0
        # The last batch of an epoch may be smaller, but is a step all the same.
        return math.ceil(len(self.trained) / self.training.batch_size) * self.training.epochs * self.rounds

    def _forward_passes(self) -> str:
        if self.texts is None:
            return "unknown before the download"
        work = ", ".join(f"{count * self.rounds:,} by {reader}" for reader, count in self.passes.items())
        return f"{sum(self.passes.values()) * self.rounds:,} texts ({work})"


def check_name(flag: str, name: str) -> None:
    """Check that a name can be part of the names of experiments and studies."""
    # Names of dots alone would be folders above the one that they are in.
    if not re.fullmatch(r"[\w.-]{1,100}", name) or set(name) == {"."}:
        quoted = name if len(name) <= 60 else f"{name[:57]}..."
        raise UsageError(f"{flag} must be 1 to 100 letters, digits, _, - and .; got {quoted!r}")


def passes(
    detectors: "Iterable[Detector]",
    texts: Sequence[str],
    model: ModelConfig,
    *,
    states: Sequence[str] = ("base", "tuned"),
    unseen: bool | Sequence[object] = True,
    labelled: "Labelled" = MappingProxyType({}),
    strict: bool | None = None,
    chat: bool = False,
) -> Passes:
    """Count the texts that each model scores, shared views once; refuse what cannot be computed, like `usable`.

    Args:
        detectors: what is to be computed.
        texts: the texts to score.
        model: the model, which is not loaded.
        states: states of the model in which the texts are scored.
        unseen: texts that the model cannot have seen, or whether there will be some.
        labelled: see `fsd.token_stats.Labelled`.
        strict: see `fsd.views.usable`.
        chat: the model is behind a chat API, which gives no token statistics.
    """
    from fsd.scoring.model import API, draws, reader_names
    from fsd.views import usable, view_in

    # As a mapping, since the flag has a hyphen.
    at_least(1, **{"max-batch-tokens": model.max_batch_tokens})
    by_form = _passes_by_form(model, len(texts), unseen, labelled)
    inputs = _inputs_to_count(model, by_form, labelled, unseen=bool(unseen))
    ways = draws(model)
    readers = []
    if not chat:
        readers = [name for name in reader_names(model) if name not in ("base", "tuned") or name in states]
        if model.model.startswith(API):
            strict = None  # an API has to be asked what it gives
    computable, _ = usable(list(detectors), texts, readers, inputs, strict=strict)
    counts = Counter[str]()
    # A set, because several detectors read the same view, which is computed once.
    views: set[View] = set()
    for detector in computable:
        views.update(view_in(state, name) for name in detector.views for state in states)
    counts.update(_pair_passes(views, len(texts)))
    for view in _single_views(views):
        if view.form in ways:
            draw = ways[view.form]
            generated = _generated_tokens(view.form, draw, texts, inputs)
            counts[f"{view.reader} generating about {generated:,} tokens"] += draw.total * len(texts)
        elif view.form == "gradient":
            counts[f"{view.reader} with gradients"] += len(texts)
        elif view.reader != "unigram":  # which is a table, no model
            counts[view.reader] += by_form.get(view.form, len(texts))
    return dict(sorted(counts.items()))


def _pair_passes(views: "Iterable[View]", texts: int) -> Counter[str]:
    """The passes by which two models are compared: each of them reads every text."""
    from fsd.views import halves

    counts = Counter[str]()
    for view in views:
        for single in halves(view):
            counts[single.reader] += texts
    return counts


def _single_views(views: "Iterable[View]") -> "set[View]":
    """The views of one model that do not come with those of two."""
    from fsd.views import PAIRS, halves

    single = {view for view in views if view.form not in PAIRS}
    return single.difference(*map(halves, views))


def _passes_by_form(
    model: ModelConfig,
    texts: int,
    unseen: bool | Sequence[object],
    labelled: "Labelled",
) -> dict[str, int]:
    """Form of view → its passes over all texts, where these are not one a text."""
    from fsd.scoring.model import KNOWN, WORD_SWAPS, both_sides

    usual = WORD_SWAPS if model.neighbour_model in (None, "words") else NEIGHBOURS
    passes = {
        "neighbours": (model.neighbours or usual) * texts,
        "swapped": WORD_SWAPS * texts,
        "repeated": 2 * texts,
    }
    # The same for all texts; each of them is scored alone, and as its second and its third copy.
    if not isinstance(unseen, bool) and unseen:
        passes["known"] = 3 * min(KNOWN, len(unseen))
    sides = both_sides(labelled, 0)
    if sides:
        passes["labelled"] = 3 * len(sides.prompts)
    return passes


def _inputs_to_count(
    model: ModelConfig,
    by_form: Mapping[str, int],
    labelled: "Labelled",
    *,
    unseen: bool,
) -> "ViewInputs":
    """Inputs by which `usable` decides as in the run: only whether they are there counts, not what they are."""
    from fsd.scoring.model import member_prefix
    from fsd.token_stats import Known
    from fsd.views import ViewInputs

    def no_copies(_: str) -> Sequence[str]:
        return ()

    prefix = "a prefix" if unseen else ""
    inputs = ViewInputs(
        prefix=prefix,
        swapped=no_copies,
        member_prefix=member_prefix(labelled, 0, 0),
    )
    if "known" in by_form:
        inputs = replace(inputs, known=Known([]))
    if "labelled" in by_form:
        inputs = replace(inputs, labelled=Known([]))
    # Word swaps take their words from the unseen texts.
    if unseen and (model.neighbour_model is not None or model.model == "embedded"):
        inputs = replace(inputs, neighbours=no_copies)
    return inputs


def _generated_tokens(form: str, draws: "Draws", texts: Sequence[str], inputs: "ViewInputs") -> int:
    """Tokens of all continuations of a form."""
    from fsd.scoring.api import BYTES_PER_TOKEN
    from fsd.token_stats import Prompt
    from fsd.views import FORMS

    if draws.tokens:
        return draws.total * draws.tokens * len(texts)
    # By default a continuation is as long as the text's own, whose tokens are estimated from its bytes.
    halves = [FORMS[form](Prompt(text), inputs)[0] for text in texts]
    return draws.total * sum(math.ceil(len(half.text.encode()) / BYTES_PER_TOKEN) for half in halves)


def files(names: Iterable[object], texts: int | None = None) -> str:
    """Files with their number of texts, if it is known."""
    listed = list(map(str, names))
    named = ", ".join(listed[:3])
    if len(listed) > 3:
        named += f" and {len(listed) - 3} more"
    return named if texts is None else f"{texts:,} texts in {named}"


def pretraining(recipe: Recipe, tokens: float) -> dict[str, str]:
    """Size of a model that is pretrained from scratch, and what it is trained on, over all passes and models."""
    # Twelve square matrices a layer (four of the attention, eight of the feed-forward part), and one that both embeds
    # tokens and predicts them.
    count = 12 * recipe.layers * recipe.hidden_size**2 + recipe.vocabulary * recipe.hidden_size
    return {
        "model": f"about {count:,} parameters, from scratch",
        "tokens": f"about {tokens:,.0f} to train on",
    }


def on_this_machine(name: str) -> bool:
    """Whether a file or model can be read without the network."""
    from fsd.models.gguf import SMOLLM2
    from fsd.net.hub import EMBEDDED

    return name in (SMOLLM2, *EMBEDDED) or Path(name).expanduser().exists()


def byte_size(number: float) -> str:
    """A number of bytes in a fitting unit."""
    power = min(int(math.log10(max(number, 1)) / 3), 4)
    return f"{number / 1000**power:.3g} {('B', 'kB', 'MB', 'GB', 'TB')[power]}"


def check_space(texts: Iterable[str]) -> None:
    """Refuse disks of temporary files and runs without room for tables of the texts, estimated far below the need."""
    # An eighth of the texts: a limit near the need would refuse runs that fit.
    needed = RUN_BYTES + sum(map(len, texts)) // 8
    for name, folder in (
        ("TMPDIR", Path(tempfile.gettempdir())),
        ("the working folder", Path.cwd()),
    ):
        free = shutil.disk_usage(folder).free
        if free < needed:
            raise UsageError(
                f"{name} must have at least {needed / 2**20:.1f} MiB of free space; {folder} has {free / 2**20:.1f} MiB"
            )
