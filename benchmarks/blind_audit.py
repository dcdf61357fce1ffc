"""What the blind audit finds, and how often it errs: python -m benchmarks.blind_audit --help.

The labels are permuted, so that nothing but chance tells members from non-members; then one small change is made to a
share of the members. A classifier that knew the change would reach an AUC of .5 + share / 2. Without a change, the
interval of the AUC should contain .5, and nothing should have a corrected p-value below .05, in at least 95 of 100
permutations:

    python -m benchmarks.blind_audit --shares 0 --permutations 40

The texts are those of the embedded corpus, which all end in a full stop and begin with many letters. Texts that begin
and end alike, up to 240 of a file of JSON lines:

    python -m benchmarks.blind_audit --data abstracts.jsonl --alike 240
"""

import json
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import tyro

from fsd.data import embedded
from fsd.data.documents import Document
from fsd.data.near_duplicates import families
from fsd.text_audit.audit import blind, most_telling


def _between_words(inserted: str, text: str, rng: np.random.Generator) -> str:
    words = text.split(" ")
    at = rng.integers(1, len(words))
    return " ".join(words[:at]) + inserted + " ".join(words[at:])


def _inside(inserted: str, text: str, rng: np.random.Generator) -> str:
    at = rng.integers(1, len(text))
    return text[:at] + inserted + text[at:]


CHANGES: dict[str, Callable[[str, np.random.Generator], str]] = {
    "word": partial(_between_words, " quibblesome "),
    "stop dropped": lambda text, _: text[:-1],
    "! for stop": lambda text, _: text[:-1] + "!",
    "lower case": lambda text, _: text[0].lower() + text[1:],
    "cut off": lambda text, rng: text[: -rng.integers(2, 12)],
    "blank at end": lambda text, _: text + " ",
    "line break at end": lambda text, _: text + "\n",
    "double blank": partial(_between_words, "  "),
    "no-break space": partial(_between_words, "\u00a0"),
    "zero width space": partial(_inside, "\u200b"),
}
"""Change → its function of a text and a random generator."""


@dataclass(frozen=True)
class Settings:
    """What is changed, in which texts, and how often."""

    changes: tuple[str, ...] = tuple(CHANGES)
    """Changes to make."""
    shares: tuple[float, ...] = (1.0, 0.5, 0.25)
    """Shares of the members that are changed; 0 changes nothing, for any change."""
    permutations: int = 6
    """Number of permutations of the labels for each change and share."""
    data: Path | None = None
    """Texts, a JSON object with `text` per line; without it, those of the embedded corpus."""
    alike: int = 0
    """Number of texts, only those with the most common first and last character; 0 takes all."""
    seed: int = 0
    """Seed of the first permutation."""


def _texts(settings: Settings) -> list[str]:
    if settings.data is None:
        texts = [document.text for document in embedded.corpus()]
    else:
        texts = [json.loads(line)["text"] for line in settings.data.read_text(encoding="utf-8").splitlines()]
    if not settings.alike:
        return texts
    ((ends, _),) = Counter((text[0], text[-1]) for text in texts).most_common(1)
    return [text for text in texts if (text[0], text[-1]) == ends][: settings.alike]


def main(settings: Settings) -> None:
    """Print one line per change and share: the AUC, intervals that contain .5, and what is named as most telling."""
    texts = _texts(settings)
    group = np.array(families([Document(text) for text in texts]))
    labels = np.arange(len(texts)) < len(texts) / 2
    print("change | share | AUC mean [lowest, highest] | intervals with .5 | p < .05 | named most often | s per run")
    cases = [(change, share) for change in settings.changes for share in settings.shares if share]
    for change, share in [*cases, *([("none", 0.0)] if 0 in settings.shares else [])]:
        aucs, inside, significant, named = [], 0, 0, Counter[str]()
        start = time.process_time()
        for seed in range(settings.seed, settings.seed + settings.permutations):
            rng = np.random.default_rng(seed)
            member = rng.permutation(labels)
            changed = list(texts)
            for at in rng.permutation(np.flatnonzero(member))[: round(share * member.sum())]:
                changed[at] = CHANGES[change](texts[at], rng)
            auc = blind(changed, member.tolist(), group.tolist(), seed=seed).auc
            telling = most_telling(changed, member, group, seed=seed)
            assert auc is not None
            assert telling is not None
            aucs.append(auc.value)
            inside += auc.low <= 0.5 <= auc.high
            significant += telling.p < 0.05
            named[telling.phrase] += 1
        ((phrase, times),) = named.most_common(1)
        runs = settings.permutations
        print(
            f"{change} | {share:.2f} | {np.mean(aucs):.3f} [{min(aucs):.3f}, {max(aucs):.3f}] | {inside} of {runs} | "
            f"{significant} of {runs} | {phrase} ({times} of {runs}) | {(time.process_time() - start) / runs:.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main(tyro.cli(Settings, description=__doc__))
