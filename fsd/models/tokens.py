"""Texts → token ids, the same wherever they are scored."""

from collections.abc import Sequence
from typing import Any

from fsd.errors import UsageError


def token_ids(tokenizer: Any, texts: Sequence[str]) -> list[list[int]]:
    """Token ids of each text, no special tokens added and none read out of the text's characters.

    A text that quotes "<|endoftext|>" is text: taken for the token itself it would start a new document.

    Args:
        tokenizer: a fast transformers tokenizer.
        texts: N texts.

    Raises:
        UsageError: for a text of no tokens.
    """
    rows = tokenizer(list(texts), add_special_tokens=False, split_special_tokens=True, verbose=False)
    ids: list[list[int]] = rows["input_ids"]
    for text, row in zip(texts, ids, strict=True):
        if not row:
            raise UsageError(f"a text must have at least one token; got {text[:40]!r}")
    return ids
