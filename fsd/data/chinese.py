"""Words of Chinese texts, which have no spaces between them: by jieba, as in the DC-PDD paper."""

import re
import warnings
from typing import Any

from fsd.errors import UsageError
from fsd.unspaced import HAN, IS_KANA

IS_HAN = re.compile(f"[{HAN}]")
SHARE = 0.3
"""Least share of Chinese characters among those of a Chinese text."""


def is_chinese(text: str) -> bool:
    """Whether the text is written in Chinese; Japanese, which has kana besides, is not."""
    if IS_KANA.search(text):
        return False
    return bool(text) and len(IS_HAN.findall(text)) >= SHARE * len(text)


def ends(text: str) -> list[int]:
    """The position in a Chinese text after each of its words; punctuation marks and spaces are words of their own.

    The code of the DC-PDD paper (arXiv 2409.14781) counts in the same way. A UsageError without jieba.
    """
    position = 0
    positions = []
    for word in _jieba().cut(text):
        position += len(word)
        positions.append(position)
    return positions


def _jieba() -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of deprecations inside the package
            import jieba
    except ImportError as error:
        raise UsageError(
            "texts in Chinese must be segmented by jieba, which is not installed: pip install 'fsd[chinese]'"
        ) from error
    jieba.setLogLevel("WARNING")
    return jieba
