"""What the blind audit finds, and how often it errs: python -m benchmarks.blind_audit --help.

The labels of the embedded corpus are permuted, so that nothing but chance tells members from non-members; then one word
is planted in a share of the members. A classifier that knew the word would reach an AUC of .5 + share / 2. Without a
plant, the interval of the AUC should contain .5, and no word should have a corrected p-value below .05, in at least 95
of 100 permutations.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import tyro

from fsd.data import embedded
from fsd.data.near_duplicates import families
from fsd.evaluation.audit import blind
from fsd.evaluation.text_classifiers import telling_word
from fsd.token_stats import IntArray


@dataclass(frozen=True)
class Settings:
    """What is planted, and how often."""

    shares: tuple[float, ...] = (1.0, 0.5, 0.25, 0.0)
    """Shares of the members that the word is planted in; 0 plants nothing."""
    permutations: int = 20
    """Number of permutations of the labels for each share."""
    word: str = "quibblesome"
    """The word, which should not occur in the corpus."""
    seed: int = 0
    """Seed of the first permutation."""


def plant(texts: Sequence[str], chosen: IntArray, word: str, rng: np.random.Generator) -> list[str]:
    """The texts with the word at a random place in the chosen ones."""
    planted = list(texts)
    for at in chosen:
        words = planted[at].split(" ")
        planted[at] = " ".join(np.insert(np.array(words, dtype=object), rng.integers(1, len(words)), word))
    return planted


def main(settings: Settings) -> None:
    """Print one line per share: mean and range of the AUC, intervals that contain .5, and the telling word."""
    documents = list(embedded.corpus())
    group = np.array(families(documents))
    labels = np.array([document.member for document in documents], dtype=bool)
    print(
        "share | AUC mean [lowest, highest] | interval contains .5 | planted word named | word with p < .05 | s per run"
    )
    for share in settings.shares:
        aucs, inside, named, significant = [], 0, 0, 0
        start = time.process_time()
        for seed in range(settings.seed, settings.seed + settings.permutations):
            rng = np.random.default_rng(seed)
            member = rng.permutation(labels)
            carriers = rng.permutation(np.flatnonzero(member))[: round(share * member.sum())]
            texts = plant([document.text for document in documents], carriers, settings.word, rng)
            auc = blind(texts, member.tolist(), group.tolist(), seed=seed).auc
            telling = telling_word(texts, member, group, seed=seed)
            assert auc is not None
            assert telling is not None
            aucs.append(auc.value)
            inside += auc.low <= 0.5 <= auc.high
            named += settings.word in telling.phrase
            significant += telling.p < 0.05
        runs = settings.permutations
        print(
            f"{share:5.2f} | {np.mean(aucs):.3f} [{min(aucs):.3f}, {max(aucs):.3f}] | {inside} of {runs} | "
            f"{named} of {runs} | {significant} of {runs} | {(time.process_time() - start) / runs:.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main(tyro.cli(Settings, description=__doc__))
