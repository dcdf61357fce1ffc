import math
import zlib as stdlib

import numpy as np
import pytest

from detectors.loss import loss
from detectors.perplexity import perplexity
from detectors.zlib import zlib


def test_by_hand(make):
    # "ab" takes 10 bytes: header 2, one block of 3 + 8 + 8 + 7 bits = 4 bytes, checksum 4
    assert zlib(make([-1.0, -4.0], text="ab")) == (-1 - 4) / 2 / 10
    assert zlib(make([-math.log(2), -math.log(8)], text="ab"), log=False) == pytest.approx(-4 / 10, rel=1e-15)


def test_equals_a_streaming_compressor(make):
    for text in ("a", "to be or not to be " * 20, "Größe, café, naïve", "专利摘要：一种方法", "🙂\n\t\0"):
        stream = stdlib.compressobj()
        size = sum(len(stream.compress(bytes([byte]))) for byte in text.encode("utf-8")) + len(stream.flush())
        assert zlib(make([-1.0, -2.5, -3.0], text=text)) == pytest.approx((-1 - 2.5 - 3) / 3 / size, rel=1e-12)


def test_the_level_is_the_default_one(make):
    letters = "".join(np.random.default_rng(0).choice(list("ab"), size=5000))
    sizes = {level: len(stdlib.compress(letters.encode(), level)) for level in (-1, 1, 9)}
    assert len(set(sizes.values())) == 3
    assert zlib(make([-1.0], text=letters)) == -1 / sizes[-1]


def slow(text, log):
    return (loss(text) if log else perplexity(text)) / len(stdlib.compress(text.text.encode()))


def test_times_the_compressed_size_it_is_loss_or_perplexity(agree):
    agree(zlib, slow, "text", log=(True, False))
