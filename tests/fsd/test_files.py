"""Files that are regular, bounded and in UTF-8."""

import hashlib
import os

import pytest

from fsd.errors import UsageError
from fsd.files import CHECKSUMS, LARGEST, checksum_lines, checksums, digest, read_text


def test_what_may_have_no_end_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zero").symlink_to("/dev/zero")
    (tmp_path / "large").touch()
    os.truncate(tmp_path / "large", LARGEST + 1)
    (tmp_path / "latin").write_bytes(b"caf\xe9")
    (tmp_path / "utf16").write_bytes("cafe".encode("utf-16-le"))
    for name, reason in (
        ("pipe", "it is no regular file"),
        ("zero", "it is no regular file"),
        (".", "is a directory"),
        ("large", "it has 4,294,967,297 bytes, more than 4,294,967,296"),
        ("latin", "it is not: save it as plain text in UTF-8"),
        ("utf16", "it has NUL bytes, as UTF-16 has"),
        ("none", "no such file or directory"),
    ):
        with pytest.raises(UsageError, match=f"must be a readable text file in UTF-8; {reason}$"):
            read_text(tmp_path / name)
        if name not in ("latin", "utf16"):
            with pytest.raises(UsageError, match=f"must be a file that can be read; {reason}$"):
                digest(tmp_path / name)


def test_text_digest_and_checksums(tmp_path):
    (tmp_path / "a").write_bytes(b"\xef\xbb\xbfone\r\ntwo\xe2\x80\xa8three\rfour")
    assert read_text(tmp_path / "a") == "one\ntwo\u2028three\nfour"
    assert digest(tmp_path / "a", tmp_path / "a") == hashlib.sha256((tmp_path / "a").read_bytes() * 2).hexdigest()
    assert checksums(tmp_path) is None
    (tmp_path / CHECKSUMS).write_text(f"ab12  a b\nbroken\n{checksum_lines({'c': b''})}")
    assert checksums(tmp_path) == {"a b": "ab12", "c": hashlib.sha256(b"").hexdigest()}
