"""Token statistics of a text under a language model, from one forward pass."""

import json
import math
import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, cycle, islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fsd.files import JSON
from fsd.unspaced import SCORED_UNSPACED

BoolArray = NDArray[np.bool_]
FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

STD_FLOOR = 1e-6
"""Lower bound of the standard deviation of the log-probability, in nats; smaller values are rounding noise."""
OPENING = 16
"""Tokens at the beginning of a text that `TokenStats.typicality` leaves out, unless these are half of the text."""
TIE = 1e-5
"""Difference of two log-probabilities, in nats, that is rounding noise."""
UNSPACED = SCORED_UNSPACED
"""Characters of scripts without spaces (Chinese, Japanese), as part of a regular expression."""
UNIT = re.compile(rf"[{UNSPACED}]|[^\s{UNSPACED}]+")
"""What spaces separate; in scripts without spaces, each character."""

TokenIds = list[int]
"""Token ids of a text."""
IDS = re.compile("\ufdd0([0-9]+(?:,[0-9]+)*)\ufdd0")
"""Token ids in a text that no characters stand for, between two characters that Unicode leaves to programs."""


def written(ids: Iterable[int]) -> str:
    """A text that stands for token ids, as `IDS` finds them and `token_ids` of a model gives them back."""
    return f"\ufdd0{','.join(map(str, ids))}\ufdd0"


class Turn(NamedTuple):
    """What one side of a chat says; a role of "" is that of plain text, which no template surrounds."""

    role: str
    content: str
    further: str = ""
    """The other fields of the message, such as `tool_calls`, as a JSON object; with `content` if that is null."""

    @property
    def identity(self) -> tuple[str, ...]:
        """What tells the turn from others."""
        if self.further:
            return tuple(self)
        return self[:2]

    @property
    def message(self) -> JSON:
        """The turn as a template reads it: transformers passes on no field that is null."""
        message = {"role": self.role, "content": self.content, **json.loads(self.further or "{}")}
        return {name: value for name, value in message.items() if value is not None}

    @property
    def calls(self) -> list[JSON]:
        """The calls of tools, each with a name and arguments."""
        calls = self.message.get(TOOL_CALLS) or []
        return [call.get("function") or call for call in calls]

    @property
    def words(self) -> str:
        """What is said, and what is called."""
        if not self.further:
            return self.content
        parts = [self.message.get(name) for name in REASONING]
        parts.append(self.content)
        for call in self.calls:
            arguments = call.get("arguments", "")
            if not isinstance(arguments, str):
                arguments = json.dumps(arguments, ensure_ascii=False)
            parts.append(f"{call['name']} {arguments}")
        return "\n".join(filter(None, parts))


TOOL_CALLS = "tool_calls"
REASONING = ("reasoning_content", "reasoning", "thinking")
"""Fields of a message, of which templates read those that a model was made for."""

ASSISTANT = "assistant"
"""The role whose turns are answers."""


class Chat(NamedTuple):
    """The turns of a chat, of which the answers are scored and the others are given.

    Attributes:
        turns: the turns, in order.
        given: number of turns that are the prompt, where a file divides prompt and completion; else the answers are the
            turns of the assistant.
        origin: file:line that the chat comes from, for messages.
        whole: whether all turns are scored, as a model is trained that learns prompts too.
        tools: the tools that the template describes, as a JSON list; "" for none.
        settings: what else the template is given, as a JSON object; "" for nothing.
        layout: what a file's columns are read as, where they are not those of TRL; for messages.
    """

    turns: tuple[Turn, ...]
    given: int | None = None
    origin: str = ""
    whole: bool = False
    tools: str = ""
    settings: str = ""
    layout: str = ""

    @property
    def identity(self) -> list[Any]:
        """What tells the chat from others, wherever it is from."""
        turns = [turn.identity for turn in self.turns]
        identity = [turns, self.given, "", self.whole]
        # Chats without tools keep the identity that they have always had.
        if self.tools or self.settings:
            identity += [self.tools, self.settings]
        return identity

    @property
    def given_to_template(self) -> JSON:
        """What a template reads besides the turns."""
        values: JSON = json.loads(self.settings or "{}")
        if self.tools:
            values["tools"] = json.loads(self.tools)
        return values

    def until(self, count: int) -> "Chat":
        """The chat of the first turns alone."""
        return self._replace(turns=self.turns[:count])

    @property
    def templated(self) -> bool:
        """Whether the turns are written by a template of the model; plain texts just follow one another."""
        return any(turn.role for turn in self.turns)

    @property
    def words(self) -> str:
        """What is said in all turns, without roles."""
        return BETWEEN.join(filter(None, (turn.words for turn in self.turns)))

    @property
    def answers(self) -> list[int]:
        """The numbers of the turns that are scored."""
        numbers = range(len(self.turns))
        if self.whole:
            return list(numbers)
        if self.given is not None:
            return list(numbers[self.given :])
        return [number for number in numbers if self.turns[number].role == ASSISTANT]

    @property
    def scored(self) -> str:
        """What is said in the turns that are scored."""
        return BETWEEN.join(self.turns[number].words for number in self.answers)

    @property
    def spoken(self) -> list[int]:
        """The numbers of the turns that are scored and say something, other than by a call."""
        return [number for number in self.answers if self.turns[number].content.strip()]

    def with_answers(self, contents: Iterable[str]) -> "Chat":
        """The same chat with other contents of the turns that are `spoken`."""
        turns = list(self.turns)
        for number, content in zip(self.spoken, contents, strict=True):
            turns[number] = turns[number]._replace(content=content)
        return self._replace(turns=tuple(turns))


BETWEEN = "\n\n"
"""What stands between the turns of a chat where they are read as one text."""


class Marked(NamedTuple):
    """The token ids of a chat, and whether each is scored."""

    ids: tuple[int, ...]
    scored: tuple[bool, ...]


class Prompt(NamedTuple):
    """A text to be scored, conditioned on `context`, which is not scored.

    Of a chat, `text` is what is said in its answers, and what comes before them is in `chat`; once a template has
    written it, `marked` has its tokens.
    """

    text: str
    context: str = ""
    chat: Chat | None = None
    marked: Marked | None = None

    def copies(self, make: Callable[[str], Iterable[str]]) -> "list[Prompt]":
        """The changed copies of a text, in its place; of a chat, what its answers say is changed, and no call."""
        if self.chat is None:
            return [self._replace(text=copy) for copy in make(self.text)]
        changed = [list(make(self.chat.turns[number].content)) for number in self.chat.spoken]
        # Where tools are called alone, nothing is said that could be changed.
        if not changed:
            return [self for _ in make(self.text)]
        # A masked model makes fewer copies of a short answer, which then stand beside several of a long one.
        count = max(map(len, changed))
        rows = [islice(cycle(copies), count) for copies in changed]
        return [of_chat(self.chat.with_answers(contents)) for contents in zip(*rows, strict=True)]


AnyTexts = Sequence[str | Prompt]
"""Texts by themselves, or as prompts."""


def of_chat(chat: Chat) -> Prompt:
    """The prompt of a chat, whose answers are scored."""
    return Prompt(chat.scored, chat=chat)


def as_prompt(text: str | Prompt) -> Prompt:
    """A text as a prompt of its own; a prompt as it is."""
    return Prompt(text) if isinstance(text, str) else text


def scored_prompts(texts: "Iterable[str | Prompt]", *, whole: bool) -> list[Prompt]:
    """Texts as prompts; of chats the `whole` is scored, or the answers alone."""
    prompts = []
    for text in texts:
        prompt = as_prompt(text)
        if whole and prompt.chat:
            prompt = of_chat(prompt.chat._replace(whole=True))
        prompts.append(prompt)
    return prompts


Prompts = Sequence[Prompt]


def texts_of(prompts: Iterable[Prompt]) -> list[str]:
    """What is scored of prompts, as texts."""
    return [prompt.text for prompt in prompts]


def chats_of(prompts: Iterable[Prompt]) -> list[Chat]:
    """The chats among prompts."""
    return [prompt.chat for prompt in prompts if prompt.chat]


NUMBERS = ("token", "logp", "mean", "std", "top")
"""Fields with one number a token."""
COMPARED = ("mean", "std", "reference_mean")
"""Those of two models that are compared."""


@dataclass(frozen=True, slots=True)
class TokenStats:
    """Statistics of the T ≥ 1 tokens of `text`, in nats.

    A start token precedes the text, so that the first token is scored too (DC-PDD, arXiv 2409.14781, §3.2). A
    completions API does not return the whole distribution: `mean`, `std` and `top` are then NaN, and `token` is −1 if
    it returns no ids.

    Attributes:
        text: the text without its context.
        token: (T,) token ids x_t.
        logp: (T,) log p(x_t | x_<t).
        mean: (T,) expectation of log p(v | x_<t) over v ~ p, which is minus the entropy.
        std: (T,) standard deviation of log p(v | x_<t) over v ~ p, at least `STD_FLOOR`.
        top: (T,) largest log p(v | x_<t) over all v; NaN if it is not given.
    """

    text: str
    token: IntArray
    logp: FloatArray
    mean: FloatArray
    std: FloatArray
    top: FloatArray = None  # type: ignore[assignment]  # NaN if it is not given

    def __post_init__(self) -> None:
        if self.top is None:
            # A frozen dataclass has no other way to fill in a default that depends on another field.
            object.__setattr__(self, "top", np.full(self.logp.shape, np.nan))
        shapes = {getattr(self, name).shape for name in NUMBERS}
        if len(shapes) != 1 or self.token.ndim != 1 or self.token.size == 0:
            raise ValueError(f"token, logp, mean, std and top must share one shape (T,) with T >= 1, got {shapes}")

    def take(self, chosen: BoolArray) -> "TokenStats":
        """The statistics of the chosen ones of the tokens, of which there must be one."""
        kept = {name: getattr(self, name)[chosen] for name in NUMBERS}
        return replace(self, **kept)

    @property
    def predicted(self) -> BoolArray:
        """(T,) whether each token is the most likely one, as greedy decoding takes it; ties count."""
        return self.logp >= self.top - TIE

    @property
    def typicality(self) -> float:
        """How probable the text is beside what the model would write itself: Σ (log p − its mean) / Σ std.

        It is 0 on average for what the model draws at temperature 1, above that for less random draws, and below it for
        most of what others wrote.

        Source: Fast-DetectGPT (Bao et al. 2024, https://arxiv.org/abs/2310.05130, eq. 5), which divides by the root of
        the sum of squares, a unit that grows with the length.
        """
        # The first tokens of a text are a surprise whoever wrote it.
        later = slice(OPENING if self.logp.size > 2 * OPENING else 0, None)
        return float((self.logp - self.mean)[later].sum() / self.std[later].sum())


@dataclass(frozen=True, slots=True)
class PairStats:
    """Statistics of the T ≥ 1 tokens of a text under two models of one vocabulary, in nats.

    At each position the models, `target` with p and `reference` with q, are compared over the whole vocabulary, by
    Δ_v = log p(v | x_<t) − log q(v | x_<t).

    Attributes:
        target: statistics under the first model alone.
        reference: statistics of the same tokens under the second model alone.
        mean: (T,) expectation of Δ_v over v ~ p, the divergence of p from q.
        std: (T,) standard deviation of Δ_v over v ~ p, at least `STD_FLOOR`.
        reference_mean: (T,) expectation of Δ_v over v ~ q, minus the divergence of q from p.
        alone: whether each model by itself gives the same statistics of the text; a text beyond the shorter context of
            the two is read in other windows.
    """

    target: TokenStats
    reference: TokenStats
    mean: FloatArray
    std: FloatArray
    reference_mean: FloatArray
    alone: bool = True

    def __post_init__(self) -> None:
        check_same_tokens(self.target, self.reference)

    def take(self, chosen: BoolArray) -> "PairStats":
        """The statistics of the chosen ones of the tokens, of which there must be one."""
        kept = {name: getattr(self, name)[chosen] for name in COMPARED}
        return replace(self, target=self.target.take(chosen), reference=self.reference.take(chosen), **kept)

    @property
    def token(self) -> IntArray:
        """(T,) token ids, which both have."""
        return self.target.token

    @property
    def ratio(self) -> FloatArray:
        """(T,) log-ratios Δ of the text's own tokens."""
        return self.target.logp - self.reference.logp


Scored = tuple[Prompt, TokenStats]
"""A prompt and the statistics of its text."""


class GradientNorms(NamedTuple):
    """Norms of the gradient of a text's loss by all weights of a model: Σ|g|, (Σ g²)^½ and max |g|."""

    l1: float
    l2: float
    largest: float


class Continuations(NamedTuple):
    """Continuations of the beginning of a text: its own (`truth`), sampled ones, and the most likely one, if drawn."""

    truth: str
    samples: tuple[str, ...]
    greedy: str = ""


Scorer = Callable[[Prompts], Iterable[Any]]
"""Maps prompts to their `TokenStats`, `GradientNorms` or `Continuations`, in the same order: the target model, its
adapter off or on, a reference model, a table of token frequencies, or an API."""
Scorers = Mapping[str, Scorer]
"""Scorers by name."""


def score_rows(scorer: Scorer, rows: Sequence[Prompts]) -> list[list[Any]]:
    """Statistics of rows of prompts, in rows of the same lengths, from one call of the scorer.

    One call for all prompts lets the scorer compute repeated prompts once and fill its batches.
    """
    statistics = iter(scorer(list(chain.from_iterable(rows))))
    return [list(islice(statistics, len(row))) for row in rows]


Tokenize = Callable[[Sequence[str]], list[TokenIds]]
"""Texts → the token ids of each."""
Labelled = Mapping[str, tuple[int, bool]]
"""Text → its family, and whether it is a member."""
UNLABELLED: Labelled = {}


class Exemplars:
    """Texts that others are compared with. What a model gives for them, and what is made of that, is computed once.

    Attributes:
        prompts: the prompts of each text, one or more.
        labelled: the texts, if their labels are known, and the others of their families.
    """

    def __init__(self, prompts: Sequence[Prompts], labelled: Labelled = UNLABELLED) -> None:
        self.prompts = prompts
        self.labelled = labelled
        self._scorer: Scorer | None = None
        self._rows: list[list[Any]] = []
        self._results: dict[Hashable, Any] = {}

    def __getstate__(self) -> dict[str, Any]:
        """The state without the scorer, which holds a model: another process asks for no statistics."""
        return vars(self) | {"_scorer": None}

    def score_with(self, scorer: Scorer) -> "Exemplars":
        """Keep the statistics of all prompts by a scorer, and return itself."""
        # Every chunk of texts asks for the same statistics: they are kept until another scorer comes.
        if scorer is not self._scorer:
            self._rows = score_rows(scorer, self.prompts)
            self._scorer = scorer
            self._results = {}
        return self

    def of(self, make: Callable[..., FloatArray], **options: Any) -> FloatArray:
        """`make(*statistics, **options)` of each text, as rows."""

        def rows() -> FloatArray:
            return np.array([make(*row, **options) for row in self._rows])

        result: FloatArray = self._result(rows, make, *sorted(options.items()))
        return result

    def once(self, make: Callable[..., Any], **options: Any) -> Any:
        """`make(self, **options)`, computed once for the statistics of one scorer."""
        return self._result(partial(make, self, **options), make, *sorted(options.items()))

    def fitted(
        self,
        fit: Callable[..., FloatArray],
        text: str,
        make: Callable[..., FloatArray],
        components: int,
        **options: Any,
    ) -> FloatArray:
        """`fit(rows, members, components)` to the rows of `of` of all texts that are of another family."""
        family, _ = self.labelled.get(text, (None, False))

        def fit_without_family() -> FloatArray:
            unrelated = []
            members = []
            for row, prompts in enumerate(self.prompts):
                relatives, member = self.labelled[prompts[0].text]
                # A relative of the text among the texts of the fit would give its label away.
                if relatives != family:
                    unrelated.append(row)
                    members.append(float(member))
            rows = self.of(make, **options)
            return fit(rows[unrelated], np.array(members), components)

        result: FloatArray = self._result(fit_without_family, fit, family, components, make, *sorted(options.items()))
        return result

    def _result(self, compute: Callable[[], Any], *key: Hashable) -> Any:
        """What was computed for a key, once for the statistics of one scorer."""
        if key not in self._results:
            self._results[key] = compute()
        return self._results[key]


Scores = dict[str, FloatArray]
"""(N,) scores of N texts by detector name; higher means more likely a member."""


def lowest_mean(values: FloatArray, k: float) -> float:
    """Mean of the n lowest of T ≥ 1 values, n = max(1, int(k·T)).

    At least one value is used, so that short texts have a score: int(k·T) is 0 below five tokens for k = 0.2. The
    values are added in ascending order, so that the result is independent of the order of the tokens.

    Args:
        values: (T,) one value per token.
        k: share of the tokens, in (0, 1].
    """
    n = max(1, int(k * values.size))
    return float(np.sort(values)[:n].sum()) / n


WINDOW_SIZES = (2, 3, 4, 6, 9, 13, 18, 25, 32, 40)
"""Sizes of the windows of `wbc`, in tokens, as in its authors' configuration and appendix (arXiv 2601.02751)."""


def window_votes(values: FloatArray, sizes: Sequence[int]) -> float:
    """Share of the windows of consecutive values whose sum is above 0, averaged over the sizes of windows.

    T values shorter than a window are one window, so that they count once for each size above T.

    Args:
        values: (T,) one value per token, T ≥ 1.
        sizes: sizes of windows, in tokens, at least one.
    """
    sums = np.concatenate([[0.0], np.cumsum(values)])
    shares = []
    for size in sizes:
        window = min(size, values.size)
        shares.append(np.mean(sums[window:] > sums[:-window]))
    return float(np.mean(shares))


def loss_ratio(numerator: TokenStats, denominator: TokenStats, *, log: bool = True) -> float:
    """Ratio of two losses, where the loss is minus the mean log-probability of the tokens.

    Args:
        numerator: token statistics of one text.
        denominator: token statistics of another text, or of the same under another model.
        log: the ratio of the losses; off, that of the perplexities exp(loss).

    Raises:
        ValueError: if the loss of the denominator is zero, i.e. every token has probability one, and `log` is on.
    """
    above = float(numerator.logp.mean())
    below = float(denominator.logp.mean())
    if not log:
        return math.exp(below - above)
    if below == 0:
        raise ValueError(f"a ratio of losses needs a loss above 0, got 0 for the text {denominator.text[:40]!r}")
    return above / below


def check_same_tokens(text: TokenStats, compared: TokenStats) -> None:
    """Check that statistics to be compared token by token have the same tokens.

    Raises:
        ValueError: if they differ, as with two tokenizers.
    """
    if not np.array_equal(text.token, compared.token):
        sizes = f"{text.token.size} and {compared.token.size} tokens"
        raise ValueError(f"statistics of one text must have the same tokens, got {sizes} for {text.text[:40]!r}")
