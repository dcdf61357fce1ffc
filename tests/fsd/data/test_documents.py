import hashlib
from datetime import date, datetime

from fsd.data.documents import content_hash, utc_day


def test_content_hash_is_sha256_of_utf8() -> None:
    assert content_hash("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert content_hash("é") == hashlib.sha256(b"\xc3\xa9").hexdigest()


def test_the_day_of_a_time_is_that_of_utc() -> None:
    assert utc_day(datetime(2024, 1, 6, 0, 30)) == date(2024, 1, 6)
    assert utc_day(datetime.fromisoformat("2024-01-06T00:30+09:00")) == date(2024, 1, 5)
