"""How long is waited before a service is asked again, and when it is given up."""

import pytest

from fsd.errors import UsageError
from fsd.net.retry import PATIENCE, Clock, Patience, UnfinishedError, retry_after

NOW = Clock(wall=lambda: 1_700_000_000.0)  # Tue, 14 Nov 2023 22:13:20 GMT


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("7", 7.0),
        (" 1.5 ", 1.5),
        ("Tue, 14 Nov 2023 22:13:50 GMT", 30.0),
        ("Tue, 14 Nov 2023 22:13:00 GMT", 0.0),
        ("-3", 0.0),
        ("inf", 0.0),
        ("nan", 0.0),
        ("soon", 0.0),
        ("", 0.0),
    ],
)
def test_retry_after(header: str, seconds: float) -> None:
    assert retry_after(header, NOW) == seconds


def test_waits_double_and_a_longer_wish_is_granted() -> None:
    faults = [UnfinishedError("HTTP 500"), UnfinishedError("HTTP 429", 60.0), UnfinishedError("HTTP 500")]
    pauses: list[float] = []

    def once() -> str:
        if faults:
            raise faults.pop(0)
        return "there"

    assert Patience("it", 4, 2.0, "").asked(once, pauses.append, "x") == "there"
    assert pauses == [2.0, 60.0, 8.0]


def test_it_is_given_up_after_the_attempts_or_when_the_wait_is_too_long() -> None:
    def never() -> str:
        raise UnfinishedError("HTTP 503")

    def tomorrow() -> str:
        raise UnfinishedError("HTTP 429", PATIENCE + 1)

    asked = Patience("the API", 3, 1.0, "come back").asked
    with pytest.raises(UsageError, match="the API must answer; 3 attempts at x failed: HTTP 503; come back"):
        asked(never, lambda _: None, "x")
    with pytest.raises(UsageError, match=r"must be asked again in 901 s \(HTTP 429\), not now; come back"):
        asked(tomorrow, lambda _: None, "x")
