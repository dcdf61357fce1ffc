"""Detectors and their views of a text: the token statistics that a detector names in its signature.

A view is a *reader* (the model or table that scores) and a *form* (what of the text it scores). Each needed
(reader, form) pair is computed once for all detectors together.
"""

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from fsd.errors import UsageError
from fsd.search_space import Space
from fsd.token_stats import UNIT, Continuations, Exemplars, GradientNorms, PairStats, Prompt, TokenStats


class View(NamedTuple):
    """`reader` is one of base, tuned, reference, unigram; `form` is a key of `FORMS`."""

    reader: str
    form: str


Copies = Callable[[str], Sequence[str]]
"""Text → its changed copies."""
Settings = Mapping[str, Any]
"""Setting of a detector → its value."""


@dataclass(frozen=True)
class ViewInputs:
    """What forms need besides the text: the context of `primed` (ReCaLL's P), and text → its changed copies.

    `member_prefix` is text → the context of `member_primed`: known members that are no relatives of the text.
    `nonmembers` are known ones, and `labelled` texts with known labels, the same for all texts; `unread` are known
    non-members that are read once, and not as copies after one another. `shots` is the number of texts in the prefixes.
    """

    prefix: str = ""
    neighbours: Copies | None = None
    swapped: Copies | None = None
    member_prefix: Callable[[str], str] | None = None
    nonmembers: Exemplars | None = None
    labelled: Exemplars | None = None
    unread: Exemplars | None = None
    shots: int = 0


NO_INPUTS = ViewInputs()


def repetitions(prompt: Prompt) -> list[Prompt]:
    """The second and the third copy of a text, each after those before it and a space."""
    copy = f"{prompt.text} "
    return [prompt._replace(context=prompt.context + copy), prompt._replace(context=prompt.context + copy + copy)]


class Draws(NamedTuple):
    """How texts are continued: by `samples`, and perhaps by the most likely (`greedy`) continuation.

    They have at most `tokens` tokens, by default as many as the text's own continuation; without `top_k` any token may
    be drawn.
    """

    samples: int
    temperature: float
    top_k: int | None = None
    tokens: int | None = None
    greedy: bool = False

    @property
    def total(self) -> int:
        """Number of continuations."""
        return self.samples + self.greedy


DRAWS = {"continuations": Draws(10, 1.0, top_k=50), "outputs": Draws(50, 0.8, tokens=100, greedy=True)}
"""Forms that the model continues → how, as in the papers of SaMIA and CDD."""
CONTINUED = 128
"""Most words of a text's own continuation: half of the longest texts of SaMIA's paper."""


Form = Callable[[Prompt, ViewInputs], list[Prompt]]
"""The prompts of a text, which may follow a context of its own; that of `primed` takes its place."""


def _plain(prompt: Prompt, _: ViewInputs) -> list[Prompt]:
    return [prompt]


def _continued(prompt: Prompt, _: ViewInputs) -> list[Prompt]:
    """The second half of a text, of at most `CONTINUED` words, after the first half."""
    ends = [word.end() for word in UNIT.finditer(prompt.text)]
    half = len(ends) // 2
    middle = ends[half - 1]
    end = ends[half:][:CONTINUED][-1]
    return [Prompt(prompt.text[middle:end], prompt.context + prompt.text[:middle])]


def _member_primed(prompt: Prompt, inputs: ViewInputs) -> list[Prompt]:
    if inputs.member_prefix is None:
        return []
    return [prompt._replace(context=inputs.member_prefix(prompt.text))]


def _copies(inputs_field: str, prompt: Prompt, inputs: ViewInputs) -> list[Prompt]:
    """The changed copies that a field of the inputs makes."""
    make = getattr(inputs, inputs_field)
    return prompt.copies(make) if make else []


def _common(inputs_field: str, _: Prompt, inputs: ViewInputs) -> list[Prompt]:
    """The prompts of the texts that a field of the inputs has, the same for every text."""
    texts = getattr(inputs, inputs_field)
    return list(chain.from_iterable(texts.prompts)) if texts else []


FORMS: dict[str, Form] = {"plain": _plain, "gradient": _plain, "difference": _plain, "change": _plain}
"""Form → the prompts of a text."""
FORMS["lower"] = lambda prompt, _: prompt.copies(lambda text: [text.lower()])
FORMS["primed"] = lambda prompt, inputs: [prompt._replace(context=inputs.prefix)]
FORMS["member_primed"] = _member_primed
for name in ("neighbours", "swapped"):
    FORMS[name] = partial(_copies, name)
FORMS["repeated"] = lambda prompt, _: repetitions(prompt)
for name in ("nonmembers", "labelled", "unread"):
    FORMS[name] = partial(_common, name)
FORMS |= dict.fromkeys(DRAWS, _continued)

VIEWS = {"text": View("base", "plain"), "tuned": View("tuned", "plain")}
VIEWS |= {form: View("base", form) for form in FORMS if form != "plain"}
VIEWS["reference"] = View("reference", "plain")
VIEWS["unigram"] = View("unigram", "plain")
"""Parameter name of a detector → its view for base scores; for tuned scores the tuned model takes the base's place,
except for forms in `COMMON`.

The argument is one `TokenStats`, or a list for forms in `LISTS`; `GradientNorms` for `gradient`, `Exemplars` for
forms in `COMMON`, `Continuations` for forms in `DRAWS`, and `PairStats` for forms in `PAIRS`.
"""

PAIRS = {"difference": {"base": "reference", "tuned": "reference"}, "change": {"base": "tuned", "tuned": "base"}}
"""Form for which two models are compared over the whole vocabulary → reader → the other reader."""

COPIES = frozenset({"lower", "neighbours", "swapped"})
"""Forms of changed copies, which of some texts are the text itself."""

LISTS = frozenset({"neighbours", "swapped", "repeated"})
"""Forms of several prompts per text, for which the detector receives a list."""

PRIMED = frozenset({"primed", "member_primed"})
"""Forms whose prompts follow a context of their own."""

NOT_OF_CHATS = {
    **dict.fromkeys(PRIMED, "it puts other texts before a text"),
    **dict.fromkeys(("repeated", "nonmembers", "labelled"), "it reads a text after copies of itself"),
    **dict.fromkeys(DRAWS, "it continues the first half of a text"),
}
"""Form that is not defined for chats → why."""

FEWEST_UNREAD = 20
"""Fewest texts from which is learnt what a score is for a text that was not read."""

COMMON = frozenset({"nonmembers", "labelled", "unread"})
"""Forms of prompts that are the same for all texts, which the base model alone scores."""

FURTHER = PRIMED | LISTS | COMMON - {"unread"} | {"gradient"} | set(DRAWS)
"""Views that take more than a forward pass a text: over other texts, a backward pass, or samples.

`unread` texts are few, and read once for all others.
"""


def view_in(state: str, name: str) -> View:
    """The view of that name for scores in a state of the model, "base" or "tuned"."""
    view = VIEWS[name]
    return View(state, view.form) if view.reader == "base" and view.form not in COMMON else view


def scorer_of(view: View) -> str:
    """Name of the scorer of a view: that of its reader, or one of its own for gradients, samples and two models."""
    # Unread texts are scored as the texts themselves are, by both models.
    form = "difference" if view.form == "unread" else view.form
    separate = form == "gradient" or form in DRAWS or form in PAIRS
    return f"{view.reader}.{form}" if separate else view.reader


def halves(view: View) -> tuple[View, ...]:
    """The views of either model alone that come with a view of two models; none for other views."""
    if view.form not in PAIRS:
        return ()
    return View(view.reader, "plain"), View(PAIRS[view.form][view.reader], "plain")


@dataclass(frozen=True)
class Detector:
    """A detector function with fixed settings.

    Attributes:
        name: name of the file and the function.
        function: maps views to the score.
        views: names of the views, in the order of the positional parameters.
        settings: values of the keyword-only parameters.
        search: search space of the settings that can be tuned.
        fallback: returns the name of the fallback used for a text, or None.
        needs: fields of `TokenStats` used besides text and logp, which an API may not provide.
        base_settings: values of settings that differ for the score of the base model by itself; the FSD, a difference
            of two scores with equal settings, never uses them.
    """

    name: str
    function: Callable[..., float]
    views: tuple[str, ...]
    settings: Settings
    search: Space
    fallback: Callable[..., str | None] | None = None
    needs: tuple[str, ...] = ()
    base_settings: Settings = field(default_factory=dict)

    @property
    def paired(self) -> bool:
        """Whether the detector compares base and tuned model itself: its score is an FSD; it has no base score."""
        return not {"tuned", "change"}.isdisjoint(self.views)

    @property
    def needs_labels(self) -> bool:
        """Whether the detector needs texts with known labels."""
        return not {"member_primed", "labelled"}.isdisjoint(self.views)

    def __call__(self, statistics: Mapping[str, Any]) -> float:
        """S(x) of one text from its token statistics by view name.

        Raises:
            ValueError: if the score is not finite.
        """
        score = float(self.function(*(statistics[view] for view in self.views), **self.settings))
        if not math.isfinite(score):
            raise ValueError(f"detector {self.name} must give a finite score, got {score}")
        return score

    def fallback_of(self, statistics: Mapping[str, Any]) -> str | None:
        """Name of the fallback used for the score of a text, or None."""
        if self.fallback is None:
            return None
        return self.fallback(*(statistics[view] for view in self.views), **self.settings)

    def with_settings(self, **settings: Any) -> "Detector":
        """The same detector with other values of some settings, for the base score and the FSD.

        Raises:
            UsageError: for an unknown setting, or a value of another type or out of range.
        """
        settings = self._checked(settings)
        # What is set here holds for both scores, in place of an earlier setting of the base score.
        base = {key: value for key, value in self.base_settings.items() if key not in settings}
        return replace(self, settings={**self.settings, **settings}, base_settings=base)._tried(settings)

    def with_base_settings(self, **settings: Any) -> "Detector":
        """The same detector with values of some settings that hold for the base score alone.

        Raises:
            UsageError: for an unknown setting, a value of another type or out of range, or a detector without a base
                score.
        """
        settings = self._checked(settings)
        if self.paired and settings:
            raise UsageError(f"settings of a base score must be of a detector that has one; got {self.name!r}")
        base = {**self.base_settings, **settings}
        # A base setting like the common one is none: where there are some, the FSD is computed apart.
        differing = {key: value for key, value in base.items() if value != self.settings[key]}
        return replace(self, base_settings=differing)._tried(settings)

    @property
    def for_base(self) -> "Detector":
        """The detector with the settings of the base score."""
        return replace(self, settings=self.settings_in("base"), base_settings={})

    def settings_in(self, state: str) -> Settings:
        """The settings of the score in a state of the model."""
        return {**self.settings, **self.base_settings} if state == "base" else self.settings

    def _tried(self, settings: Settings) -> "Detector":
        """The detector itself, which refuses settings out of range when it is computed, here on four tokens."""
        if settings:
            values = _probe()
            self.for_base({name: values.get(VIEWS[name].form, values["plain"]) for name in self.views})
        return self

    def _checked(self, settings: Settings) -> dict[str, Any]:
        """The settings, with lists, which JSON gives, as tuples."""
        checked = {}
        for key, value in settings.items():
            if key not in self.settings:
                allowed = ", ".join(self.settings) or "none"
                raise UsageError(f"setting of {self.name} must be one of {allowed}; got {key!r}")
            if isinstance(value, list) and isinstance(self.settings[key], tuple):
                value = tuple(value)
            _check_type(f"{self.name}.{key}", value, self.settings[key])
            checked[key] = value
        return checked


@cache
def _probe() -> dict[str, Any]:
    """Form → statistics of four invented tokens, which every detector can score."""
    losses = -np.arange(1.0, 5.0)
    text = TokenStats("probe", np.arange(4), losses, losses, np.ones(4), np.zeros(4))
    # Labelled texts must be of both kinds and of two families, as a fit leaves the family of the text out.
    labelled = Exemplars([[Prompt("a")] * 2, [Prompt("b")] * 2], {"a": (0, True), "b": (1, False)})
    labelled.score_with(lambda prompts: [text] * len(prompts))
    pair = PairStats(text, text, losses, np.ones(4), losses)
    unread = Exemplars([[Prompt("a")], [Prompt("b")]])
    unread.score_with(lambda prompts: [pair] * len(prompts))
    statistics = {"plain": text, "gradient": GradientNorms(1.0, 1.0, 1.0)}
    statistics |= dict.fromkeys(PAIRS, pair)
    statistics |= {form: [text] for form in LISTS}
    statistics |= dict.fromkeys(COMMON, labelled)
    statistics |= dict.fromkeys(DRAWS, Continuations("probe", ("probe",), "probe"))
    statistics["unread"] = unread
    return statistics


def _check_type(name: str, value: Any, default: Any) -> None:
    # A whole number is also a valid real one. A truth value is a number to Python, and to nobody else.
    allowed = (int, float) if isinstance(default, int | float) else type(default)
    if not isinstance(value, allowed) or isinstance(value, bool) != isinstance(default, bool):
        raise UsageError(f"{name} must be of the type of its default {default!r}; got {value!r}")


_GROUPS = "of two groups or more are given, as validation texts of `fsd run` are"
_MISSING_INPUTS = {
    "primed": "no prefix of non-member texts is given",
    "member_primed": f"no known members {_GROUPS}",
    "neighbours": "no neighbour model is given",
    "swapped": "no copies with swapped words are given",
    "nonmembers": "no known non-members are given, as unseen texts are",
    "labelled": f"no known members and non-members {_GROUPS}",
    "unread": f"fewer than {FEWEST_UNREAD} known non-members are given, as unseen texts are",
}
"""Form that needs a field of `ViewInputs` → what to say without it."""
_INPUTS_FIELDS = {"primed": "prefix", "member_primed": "member_prefix"}
"""Form → the field that it needs, where the two have different names."""
_MISSING_READERS = {
    "base": "a chat API gives text alone, which samia and cdd take",
    "unigram": "no unigram table is given",
}


@dataclass(frozen=True)
class _Available:
    """What detectors can be computed with: texts, scorers by name, and the inputs of forms."""

    texts: Sequence[str]
    scorers: Collection[str]
    inputs: ViewInputs

    @cached_property
    def lacks(self) -> Collection[str]:
        """Fields of `TokenStats` that the base's scorer does not give."""
        base = self.scorers.get("base") if isinstance(self.scorers, Mapping) else None
        return getattr(base, "lacks", ())

    @cached_property
    def has_case(self) -> bool:
        """Whether more than half of the letters have an upper and a lower case: a few foreign words do not count."""
        counts = Counter(chain.from_iterable(self.texts))
        letters = 0
        cased = 0
        for sign, count in counts.items():
            if sign.isalpha():
                letters += count
            if sign.lower() != sign.upper():
                cased += count
        return cased > letters / 2

    @cached_property
    def short_text(self) -> str:
        """The first text of fewer than two words, for a message; empty if there is none."""
        for text in self.texts:
            if len(UNIT.findall(text)) < 2:
                return repr(text[:40])
        return ""

    def why_not(self, detector: Detector) -> str | None:
        """Why a detector cannot be computed; None if it can."""
        absent = [name for name in detector.needs if name in self.lacks]
        # Token ids have a remedy, so they are named first.
        if "token" in absent:
            return "it needs token ids, which --tokenizer MODEL gives"
        for name in detector.views:
            if reason := self._unavailable(VIEWS[name]):
                return reason
        return f"the API does not give what it needs: {', '.join(absent)}" if absent else None

    def _unavailable(self, view: View) -> str | None:
        form = view.form
        if form in DRAWS:
            if self.short_text:
                return f"a text to be continued must have at least two words; got {self.short_text}"
            # Samples have a scorer of their own, with which every model comes, also one without log-probabilities.
            return None
        for reader in (view.reader, *(half.reader for half in halves(view))):
            if reader not in self.scorers:
                return _MISSING_READERS.get(reader, f"no {reader} model is given")
        if form in PAIRS and scorer_of(view) not in self.scorers:
            return "it compares whole distributions: both models must be local"
        if form == "gradient" and scorer_of(view) not in self.scorers:
            return "no gradient can be computed: the model must be local, on one device and not quantized"
        inputs_field = _INPUTS_FIELDS.get(form, form)
        if form in _MISSING_INPUTS and not getattr(self.inputs, inputs_field):
            return _MISSING_INPUTS[form]
        if form == "lower" and not self.has_case:
            return "the texts' script has no upper and lower case"
        return None


Detectors = Sequence[Detector]


def not_of_chats(detectors: Detectors) -> dict[str, str]:
    """The detectors that are not defined for chats, and why."""
    reasons = {}
    for detector in detectors:
        for name in detector.views:
            reason = NOT_OF_CHATS.get(VIEWS[name].form)
            if reason:
                reasons[detector.name] = f"{reason}, which is not defined for chats"
    return reasons


def usable(
    detectors: Detectors,
    texts: Sequence[str],
    scorers: Collection[str],
    inputs: ViewInputs = NO_INPUTS,
    *,
    excluded: Mapping[str, str] | None = None,
    strict: bool | None = None,
    use: str = "computed here",
) -> tuple[list[Detector], dict[str, str]]:
    """The detectors that can be computed on texts, and for each of the others the reason why not.

    `scorers` are those by reader, or the readers' names alone; `excluded` has reasons of the caller. If `strict`, every
    detector must be usable, if False, one must; None requires nothing. `use` says what for in the error.
    """
    available = _Available(texts, scorers, inputs)
    excluded = excluded or {}
    computable = []
    left_out = {}
    for detector in detectors:
        if detector.name in excluded:
            continue
        if reason := available.why_not(detector):
            left_out[detector.name] = reason
        else:
            computable.append(detector)
    left_out |= excluded
    if left_out and strict is not None and (strict or not computable):
        name, reason = next(iter(left_out.items()))
        raise UsageError(f"detector {name} cannot be {use}: {reason}")
    return computable, left_out
