"""SaMIA: a model continues the beginning of a training text with words of its end."""

from collections import Counter
from typing import Annotated
from zlib import compress

from fsd.search_space import Choice, Setting
from fsd.token_stats import UNIT, Continuations

AUTO = ALL = False


def samia(continuations: Continuations, *, zlib: Annotated[bool, Setting(Choice((False, True)))] = False) -> float:
    """Mean ROUGE-1 recall of the sampled continuations: the share of the true one's words that a sample has, in [0, 1].

    The first half of the words is given, and m = 10 continuations are drawn at temperature 1, so that a model need not
    give probabilities. Words count as often as both have them; of a sample, as many words count as the true one has.

    Args:
        continuations: of the first half of a text, of at least one true word.
        zlib: multiply each recall by the bytes of the compressed sample, as repetition makes it cheap (SaMIA*zlib).

    Source: "Sampling-based pseudo-likelihood for membership inference attacks", arXiv 2404.11262. Its code,
    https://github.com/nlp-titech/samia, lets samples have up to 1,024 tokens and counts all of their words.
    """
    truth = UNIT.findall(continuations.truth)
    recalls = []
    for sample in continuations.samples:
        words = UNIT.findall(sample)[: len(truth)]
        recall = (Counter(truth) & Counter(words)).total() / len(truth)
        if zlib:
            written = " ".join(words).encode("utf-8", "surrogatepass")
            recall *= len(compress(written))
        recalls.append(recall)
    return sum(recalls) / len(recalls)
