"""Detectors and their views of a text: the token statistics that a detector names in its signature.

A view is a *reader* (the model or table that scores) and a *form* (what of the text it scores). Each needed
(reader, form) pair is computed once for all detectors together.
"""

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple

from fsd.errors import UsageError
from fsd.search_space import Space, declared
from fsd.token_stats import UNIT, Exemplars, Prompt, Prompts

Copies = Callable[[str], Sequence[str]]
"""Text → its changed copies."""
Settings = Mapping[str, Any]
"""Setting of a detector → its value."""


@dataclass(frozen=True)
class ViewInputs:
    """What forms need besides the text, each under the name of its form.

    `primed` is the context that comes before every text (ReCaLL's P), `member_primed` text → such a context of known
    members that are no relatives of the text, `neighbours` and `swapped` text → its changed copies. `nonmembers` are
    known ones, and `labelled` texts with known labels, the same for all texts; `unread` are known non-members that are
    read once, and not as copies after one another. `shots` is the number of texts in the contexts.

    A reference model may be fine-tuned on some of the known non-members, `adapting`. `adapted_unread` are others, which
    neither model has read.
    """

    primed: str = ""
    neighbours: Copies | None = None
    swapped: Copies | None = None
    member_primed: Callable[[str], str] | None = None
    nonmembers: Exemplars | None = None
    labelled: Exemplars | None = None
    unread: Exemplars | None = None
    adapted_unread: Exemplars | None = None
    adapting: Prompts = ()
    shots: int = 0


NO_INPUTS = ViewInputs()


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


@dataclass(frozen=True)
class Form:
    """What of a text is scored, and all that is to be known of it.

    One that known scorers read is an entry of `FORMS` alone. The detector gets one `TokenStats`, or what is said below.

    Attributes:
        prompts: the prompts of a text, which may follow a context of its own; that of a primed form takes its place.
        without: what is said where `ViewInputs` has nothing for the form; "" if it needs nothing.
        not_of_chats: why the form is not defined for chats; "" if it is.
        copies: whether the prompts are changed copies, which of some texts are the text itself.
        several: whether a text has several prompts, for which the detector gets a list.
        primed: whether the prompts follow a context of their own.
        common: whether the prompts are the same for all texts, which the base model alone scores: `Exemplars`.
        labels: whether labels must be known.
        further: whether it takes more than a forward pass a text: over other texts, a backward pass, or samples.
        gradient: whether the gradient of the text is taken: `GradientNorms`.
        draws: how the model continues the prompts: `Continuations`.
        compared: reader → the other model, with which it is compared over the whole vocabulary: `PairStats`.
        scored_as: the form by whose scorer the prompts are read, if not by that of their own.
    """

    prompts: Callable[[Prompt, ViewInputs], list[Prompt]]
    without: str = ""
    not_of_chats: str = ""
    copies: bool = False
    several: bool = False
    primed: bool = False
    common: bool = False
    labels: bool = False
    further: bool = False
    gradient: bool = False
    draws: Draws | None = None
    compared: Mapping[str, str] = field(default_factory=dict)
    scored_as: str = ""


CONTINUED = 128
"""Most words of a text's own continuation: half of the longest texts of SaMIA's paper."""
FEWEST_UNREAD = 20
"""Fewest texts from which is learnt what a score is for a text that was not read."""


def repetitions(prompt: Prompt) -> list[Prompt]:
    """The second and the third copy of a text, each after those before it and a space."""
    copy = f"{prompt.text} "
    return [prompt._replace(context=prompt.context + copy), prompt._replace(context=prompt.context + copy + copy)]


def _plain(prompt: Prompt, _: ViewInputs) -> list[Prompt]:
    return [prompt]


def _member_primed(prompt: Prompt, inputs: ViewInputs) -> list[Prompt]:
    if inputs.member_primed is None:
        return []
    return [prompt._replace(context=inputs.member_primed(prompt.text))]


def _continued(prompt: Prompt, _: ViewInputs) -> list[Prompt]:
    """The second half of a text, of at most `CONTINUED` words, after the first half."""
    ends = [word.end() for word in UNIT.finditer(prompt.text)]
    half = len(ends) // 2
    middle = ends[half - 1]
    end = ends[half:][:CONTINUED][-1]
    return [Prompt(prompt.text[middle:end], prompt.context + prompt.text[:middle])]


def _copied(prompt: Prompt, make: Copies | None) -> list[Prompt]:
    return prompt.copies(make) if make else []


def _all(texts: Exemplars | None) -> list[Prompt]:
    return list(chain.from_iterable(texts.prompts)) if texts else []


_PRIMED = "it puts other texts before a text"
_REPEATED = "it reads a text after copies of itself"
_CONTINUED = "it continues the first half of a text"
_GROUPS = "of two groups or more are given, as validation texts of `fsd run` are"

FORMS: dict[str, Form] = {"plain": Form(_plain), "gradient": Form(_plain, gradient=True, further=True)}
"""Form → its record. A parameter of a detector is the name of a form, read by the base model, or one of `READERS`."""
# Token by token, as InfoRMIA and WBC compare a target with a reference, and an audit a fine-tuned model with its base.
FORMS["difference"] = Form(_plain, compared={"base": "reference", "tuned": "reference"})
FORMS["adapted_difference"] = Form(_plain, compared={"base": "adapted_reference", "tuned": "adapted_reference"})
FORMS["change"] = Form(_plain, compared={"base": "tuned", "tuned": "base"})
FORMS["lower"] = Form(lambda prompt, _: prompt.copies(lambda text: [text.lower()]), copies=True)
# ReCaLL (arXiv 2406.15968).
FORMS["primed"] = Form(
    lambda prompt, inputs: [prompt._replace(context=inputs.primed)],
    without="no prefix of non-member texts is given",
    not_of_chats=_PRIMED,
    primed=True,
    further=True,
)
# CON-ReCaLL (arXiv 2409.03363), which compares both kinds of prefix.
FORMS["member_primed"] = Form(
    _member_primed, without=f"no known members {_GROUPS}", not_of_chats=_PRIMED, primed=True, labels=True, further=True
)
# Mattern et al. (arXiv 2305.18462).
FORMS["neighbours"] = Form(
    lambda prompt, inputs: _copied(prompt, inputs.neighbours),
    without="no neighbour model is given",
    copies=True,
    several=True,
    further=True,
)
# PAC (arXiv 2405.11930).
FORMS["swapped"] = replace(
    FORMS["neighbours"],
    prompts=lambda prompt, inputs: _copied(prompt, inputs.swapped),
    without="no copies with swapped words are given",
)
# The next three are those of CAMIA (arXiv 2409.13745) and of what is fitted to its signals.
FORMS["repeated"] = Form(lambda prompt, _: repetitions(prompt), not_of_chats=_REPEATED, several=True, further=True)
FORMS["nonmembers"] = Form(
    lambda _, inputs: _all(inputs.nonmembers),
    without="no known non-members are given, as unseen texts are",
    not_of_chats=_REPEATED,
    common=True,
    further=True,
)
FORMS["labelled"] = replace(
    FORMS["nonmembers"],
    prompts=lambda _, inputs: _all(inputs.labelled),
    without=f"no known members and non-members {_GROUPS}",
    labels=True,
)
# They are few, read once for all others, and as the texts themselves are: by both models.
FORMS["unread"] = Form(
    lambda _, inputs: _all(inputs.unread),
    without=f"fewer than {FEWEST_UNREAD} known non-members are given, as unseen texts are",
    common=True,
    scored_as="difference",
)
FORMS["adapted_unread"] = replace(
    FORMS["unread"], prompts=lambda _, inputs: _all(inputs.adapted_unread), scored_as="adapted_difference"
)
# SaMIA (arXiv 2404.11262) draws as many tokens as the text itself has.
FORMS["continuations"] = Form(_continued, not_of_chats=_CONTINUED, draws=Draws(10, 1.0, top_k=50), further=True)
# CDD (arXiv 2402.15938) compares with the most likely continuation.
_OUTPUTS = Draws(50, 0.8, tokens=100, greedy=True)
FORMS["outputs"] = Form(_continued, not_of_chats=_CONTINUED, draws=_OUTPUTS, further=True)

READERS = {"text": "base"} | {name: name for name in ("tuned", "reference", "adapted_reference", "unigram")}
"""Parameter of a detector → what reads the text as it is."""
ADAPTED = "adapted_"
"""Prefix of a view, and of a detector, for which the reference model is fine-tuned on texts that were not read."""
DRAWS = {name: form.draws for name, form in FORMS.items() if form.draws}
"""Forms that the model continues → how."""


class View(NamedTuple):
    """`reader` is one of base, tuned, reference, unigram; `form` is a key of `FORMS`."""

    reader: str
    form: str

    @classmethod
    def named(cls, parameter: str) -> "View":
        """The view for base scores that a parameter of a detector names; KeyError if there is none."""
        if parameter in READERS:
            return cls(READERS[parameter], "plain")
        if parameter not in FORMS:
            raise KeyError(f"a view must be one of {', '.join(READERS | FORMS)}; got {parameter}")
        return cls("base", parameter)

    @property
    def record(self) -> Form:
        """All that is to be known of the form."""
        return FORMS[self.form]

    @property
    def readers(self) -> set[str]:
        """What reads the text: states of the model, a reference model, or a table."""
        return {half.reader for half in self.scored.halves} or {self.reader}

    def in_state(self, state: str) -> "View":
        """The view for scores in a state of the model, in which the tuned model takes the base's place."""
        return View(state, self.form) if self.reader == "base" and not self.record.common else self

    @property
    def scored(self) -> "View":
        """The view by whose scorer this one is read."""
        return View(self.reader, self.record.scored_as or self.form)

    @property
    def scorer(self) -> str:
        """Name of the scorer: that of the reader, or one of its own for gradients, samples and two models."""
        reader, name = self.scored
        form = FORMS[name]
        separate = form.gradient or form.draws or form.compared
        return f"{reader}.{name}" if separate else reader

    @property
    def halves(self) -> tuple["View", ...]:
        """The views of either model alone that come with a view of two models; none for other views."""
        if not self.record.compared:
            return ()
        return View(self.reader, "plain"), View(self.record.compared[self.reader], "plain")


@dataclass(frozen=True)
class Detector:
    """A detector function with fixed settings.

    Attributes:
        name: name of the file and the function.
        function: maps views to the score.
        views: names of the views, in the order of the positional parameters.
        settings: values of the keyword-only parameters.
        fallback: returns the name of the fallback used for a text, or None.
        needs: fields of `TokenStats` used besides text and logp, which an API may not provide.
        base_settings: values of settings that differ for the score of the base model by itself; the FSD, a difference
            of two scores with equal settings, never uses them.
    """

    name: str
    function: Callable[..., float]
    views: tuple[str, ...]
    settings: Settings = field(default_factory=dict)
    fallback: Callable[..., str | None] | None = None
    needs: tuple[str, ...] = ()
    base_settings: Settings = field(default_factory=dict)

    @property
    def search(self) -> Space:
        """Search space of the settings that can be tuned."""
        return {name: setting.search for name, setting in declared(self.function).items() if setting.search}

    @property
    def forms(self) -> list[Form]:
        """The forms of the views."""
        return [View.named(name).record for name in self.views]

    @property
    def paired(self) -> bool:
        """Whether the detector compares base and tuned model itself: its score is an FSD; it has no base score."""
        second = {form.compared.get("base") for form in self.forms}
        return "tuned" in self.views or "tuned" in second

    @property
    def reads_reference(self) -> bool:
        """Whether the detector compares with a reference model."""
        readers = set().union(*(View.named(name).readers for name in self.views))
        return not readers.isdisjoint({"reference", "adapted_reference"})

    @property
    def adapts_reference(self) -> bool:
        """Whether that model is fine-tuned first."""
        return any(name.startswith(ADAPTED) for name in self.views)

    @property
    def needs_labels(self) -> bool:
        """Whether the detector needs texts with known labels."""
        return any(form.labels for form in self.forms)

    @property
    def further(self) -> bool:
        """Whether the detector takes more than a forward pass a text."""
        return any(form.further for form in self.forms)

    @property
    def not_of_chats(self) -> str:
        """Why the detector is not defined for chats; "" if it is."""
        for form in self.forms:
            if form.not_of_chats:
                return f"{form.not_of_chats}, which is not defined for chats"
        return ""

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

    def adapted(self) -> "Detector":
        """The same detector against a reference model that was fine-tuned on texts that were not read.

        Raises:
            UsageError: for a detector that compares with no reference model.
        """
        if not self.reads_reference:
            raise UsageError(f"{ADAPTED}NAME must be of a detector that reads a reference model; {self.name} does not")
        views = [ADAPTED + name if ADAPTED + name in READERS | FORMS else name for name in self.views]
        return replace(self, name=ADAPTED + self.name, views=tuple(views))

    def with_settings(self, **settings: Any) -> "Detector":
        """The same detector with other values of some settings, for the base score and the FSD.

        Raises:
            UsageError: for an unknown setting, or a value of another type or out of range.
        """
        settings = self._checked(settings)
        # What is set here holds for both scores, in place of an earlier setting of the base score.
        base = {key: value for key, value in self.base_settings.items() if key not in settings}
        return replace(self, settings={**self.settings, **settings}, base_settings=base)

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
        return replace(self, base_settings=differing)

    @property
    def for_base(self) -> "Detector":
        """The detector with the settings of the base score."""
        return replace(self, settings=self.settings_in("base"), base_settings={})

    def settings_in(self, state: str) -> Settings:
        """The settings of the score in a state of the model."""
        return {**self.settings, **self.base_settings} if state == "base" else self.settings

    def _checked(self, settings: Settings) -> dict[str, Any]:
        """The settings, with lists, which JSON gives, as tuples."""
        checked = {}
        for key, value in settings.items():
            if key not in self.settings:
                allowed = ", ".join(self.settings) or "none"
                raise UsageError(f"setting of {self.name} must be one of {allowed}; got {key!r}")
            if isinstance(value, list) and isinstance(self.settings[key], tuple):
                value = tuple(value)
            self._check(key, value)
            checked[key] = value
        return checked

    def _check(self, key: str, value: Any) -> None:
        name = f"{self.name}.{key}"
        default = self.settings[key]
        # A whole number is also a valid real one. A truth value is a number to Python, and to nobody else.
        allowed = (int, float) if isinstance(default, int | float) else type(default)
        if not isinstance(value, allowed) or isinstance(value, bool) != isinstance(default, bool):
            raise UsageError(f"{name} must be of the type of its default {default!r}; got {value!r}")
        setting = declared(self.function).get(key)
        if setting and not setting.holds(value):
            raise UsageError(f"{name} must be {setting.must}; got {value!r}")


_MISSING_READERS = {
    "adapted_reference": "no reference model is given, which could be fine-tuned",
    "base": "a chat API gives text alone, which samia and cdd take",
    "unigram": "no unigram table is given (--frequencies)",
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
            if reason := self._unavailable(View.named(name)):
                return reason
        return f"the API does not give what it needs: {', '.join(absent)}" if absent else None

    def _unavailable(self, view: View) -> str | None:
        form = view.record
        if form.draws:
            if self.short_text:
                return f"a text to be continued must have at least two words; got {self.short_text}"
            # Samples have a scorer of their own, with which every model comes, also one without log-probabilities.
            return None
        for reader in sorted(view.readers):
            if reader not in self.scorers:
                return _MISSING_READERS.get(reader, f"no {reader} model is given")
        if "adapted_reference" in view.readers and not self.inputs.adapting:
            return f"its reference is fine-tuned by fsd run, on half of at least {2 * FEWEST_UNREAD} unseen texts"
        if form.compared and view.scorer not in self.scorers:
            return "it compares whole distributions: both models must be local"
        if form.gradient and view.scorer not in self.scorers:
            return "no gradient can be computed: the model must be local, on one device and not quantized"
        if form.without and not getattr(self.inputs, view.form):
            return form.without
        if view.form == "lower" and not self.has_case:
            return "the texts' script has no upper and lower case"
        return None


Detectors = Sequence[Detector]


def reading(views: Set[str], detectors: Detectors) -> list[str]:
    """The names of the detectors that read one of some views."""
    return [detector.name for detector in detectors if not views.isdisjoint(detector.views)]


def not_of_chats(detectors: Detectors) -> dict[str, str]:
    """The detectors that are not defined for chats, and why."""
    return {detector.name: detector.not_of_chats for detector in detectors if detector.not_of_chats}


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
