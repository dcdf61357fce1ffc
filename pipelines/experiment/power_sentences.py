"""What stands beside a result that shows nothing: how often the procedure finds what is there."""

from collections.abc import Callable, Mapping

from fsd.evaluation.findings import AGAINST, Finding
from fsd.statistics.intervals import Estimate

TIMES = {1: "once", 2: "twice", 5: "five times"}
SIMULATED = "simulated, with what our small models keep of a reading (docs/power.md)"

Powers = Mapping[int, Estimate]
"""Times that a text was read → share of what is found."""


def by_times(shifts: Mapping[int, float], power: Callable[[float], Estimate]) -> dict[int, Estimate]:
    """The power at each number of readings, from the shift that stands for it."""
    return {times: power(shift) for times, shift in shifts.items()}


def percent(share: Estimate) -> str:
    """A share and its interval in whole percent: 67 % [58, 76]."""
    value, low, high = (f"{100 * number:.0f}" for number in share)
    return f"{value} % [{low}, {high}]"


def simulated_power(what: str, powers: Powers, finder: str = "this procedure") -> Finding:
    """How much is found of what was read once, twice and five times, by simulation."""
    shares = ", ".join(f"{TIMES[times]} {percent(share)}" for times, share in powers.items())
    line = f"power: of {what} seen in training, {finder} finds about this share, by how often they were seen: {shares}"
    return Finding(f"{line}; {SIMULATED}", AGAINST, f"power, simulated, of {what} by how often seen: {shares}")


def measured_power(share: Estimate, what: str, rate: float) -> Finding:
    """How much is found of texts that were read, as measured; how often each was read is not recorded."""
    return Finding(
        f"power: of {what} about {percent(share)} are found at a false-positive rate of {rate:.1%}: measured; how "
        "often each of them was seen in training is not recorded",
        AGAINST,
        f"power: {percent(share)} of known members are found",
    )
