"""Canaries: random variants of a text, one of which is published, and the exact rank of its score among the others.

Each document gets one of N equally likely variants. A model that was not trained on the published one cannot prefer it,
so the rank of its score among all N is uniform, whatever the model, the detector and the documents are. This is the
test that critics of membership inference accept (Zhang et al. 2024, https://arxiv.org/abs/2409.19798); the canaries
follow Carlini et al. 2019 (https://arxiv.org/abs/1802.08232), the rephrased documents STAMP
(https://arxiv.org/abs/2504.13416).

Every draw is a SHA-256 hash of the seed, the position and the document's text, so that anybody can repeat it in any
language, and two collections never share their canaries.
"""

import hashlib
import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle

from fsd.api import UsageError

RARITIES = ("common", "medium", "rare")
LEAST_WORDS = 100
"""Fewest distinct words to draw from."""
SPARE = 100
"""Least number of possible canaries per variant, so that equal ones are rare."""
MOST_VARIANTS = 100_000
LONGEST = 100
MOST_REPETITIONS = 10_000


DocumentKey = tuple[str, str]
"""Id of a document, and the hash of its text."""


def draw(below: int, seed: str, *position: object) -> int:
    """A uniform integer from 0 to `below` − 1: SHA-256 of seed and position, joined by U+001F, modulo `below`."""
    message = "\x1f".join(map(str, (seed, *position)))
    # 256 bits make the bias of the modulo smaller than anybody could measure.
    return int.from_bytes(hashlib.sha256(message.encode()).digest()) % below


@dataclass(frozen=True)
class Scheme:
    """How the variants of a document's canary are drawn."""

    seed: str
    """Secret until the test; who knows it knows which variants were published."""
    variants: int
    """N, the number of equally likely variants per document."""
    length: int
    """Number of words or digits of a canary."""
    words: Sequence[str] = ()
    """Words to draw from; none for digits."""
    distinct: bool = False
    """Whether no word stands twice in a canary."""

    def check(self) -> None:
        """A UsageError unless the variants of a document can differ."""
        if not (2 <= self.variants <= MOST_VARIANTS and 1 <= self.length <= LONGEST):
            raise UsageError(
                f"variants must be from 2 to {MOST_VARIANTS:,} and length from 1 to {LONGEST}; got {self.variants:,} "
                f"variants of length {self.length}"
            )
        symbols = len(self.words) or 10
        needed = SPARE * self.variants
        possible = math.perm(symbols, self.length) if self.distinct else symbols**self.length
        if possible < needed:
            unit = "words" if self.words else "digits"
            raise UsageError(
                f"length must allow {needed:,} different canaries for {self.variants} variants; got "
                f"{self.length} out of {symbols} {unit}"
            )

    def _symbols(self, attempt: tuple[object, ...], below: int) -> list[int]:
        """The symbols of a canary; where a word must not stand twice, it is drawn again until it is another one."""
        symbols = []
        for place in range(self.length):
            symbol = draw(below, self.seed, *attempt, place)
            repeat = 0
            while self.distinct and symbol in symbols:
                repeat += 1
                symbol = draw(below, self.seed, *attempt, place, repeat)
            symbols.append(symbol)
        return symbols

    def candidates(self, document: DocumentKey) -> list[str]:
        """The N different variants of the canary of a document, given by its id and the hash of its text."""
        pool = self.words or "0123456789"
        kind = "word" if self.words else "digit"
        separator = " " if self.words else ""
        different: dict[str, None] = {}
        # Equal draws are skipped. `check` makes them rare, but a sealed list of somebody else may have passed by it.
        for attempt in range(10 * self.variants):
            drawn = self._symbols((kind, *document, attempt), len(pool))
            different[separator.join(pool[symbol] for symbol in drawn)] = None
            if len(different) == self.variants:
                return list(different)
        raise UsageError(f"words must give {self.variants:,} different canaries; got {len(different):,}")


def published_index(seed: str, document: DocumentKey, variants: int) -> int:
    """The index of the variant of a document that is published: uniform, and independent of the other documents."""
    return draw(variants, seed, "published", *document)


def repetitions_of(seed: str, documents: Sequence[DocumentKey], levels: Sequence[int]) -> dict[DocumentKey, int]:
    """How often each document is published: the levels in equal shares, in random order."""
    order = sorted(documents, key=lambda document: draw(2**64, seed, "order", *document))
    return dict(zip(order, cycle(levels)))


def word_pool(texts: Sequence[str], rarity: str) -> list[str]:
    """The third of the words of three or more ASCII letters that is most common, medium or rare in the texts."""
    # Other letters and shorter words would cost some tokenizers several tokens, and others one.
    plain = re.compile("[a-z]{3,}")
    counts = Counter[str]()
    for text in texts:
        counts.update(filter(plain.fullmatch, text.lower().split()))
    # Equally frequent words stay in the order of the alphabet, so that the same texts give the same canaries.
    ranked = sorted(sorted(counts), key=counts.__getitem__, reverse=True)
    # By rank and not by count: every rarity has equally many words to draw from.
    third = RARITIES.index(rarity)
    pool = ranked[third * len(ranked) // 3 : (third + 1) * len(ranked) // 3]
    if len(pool) < LEAST_WORDS:
        raise UsageError(
            f"texts must have at least {3 * LEAST_WORDS} different words of three or more letters to draw canaries "
            f"from; got {len(ranked)}: give more texts by --words"
        )
    return sorted(pool)
