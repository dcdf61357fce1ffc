import hashlib

import pytest

from fsd.data.documents import Document, content_hash, refuse_shared
from fsd.errors import UsageError


def test_content_hash_is_sha256_of_utf8() -> None:
    assert content_hash("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert content_hash("é") == hashlib.sha256(b"\xc3\xa9").hexdigest()


def test_shared_texts_are_refused_and_listed() -> None:
    fine = [Document("a", True), Document("b", False), Document("a", True), Document("a"), Document("A", False)]
    refuse_shared(fine)
    with pytest.raises(UsageError, match=r"1 is labelled both 1 and 0 \(member = non-member\): 'a' = f:7$"):
        refuse_shared([*fine, Document(" a\n", False, source="f:7")])
    many = [Document(str(i), m, source=f"{'non' * (not m)}{i}") for m in (True, False) for i in range(12)]
    with pytest.raises(UsageError, match=r"12 are .*: 0 = non0; .*; 9 = non9; and 2 more$") as raised:
        refuse_shared(many)
    assert "\n" not in str(raised.value)
