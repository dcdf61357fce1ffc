"""What a test of canaries, or of an order, would have found, simulated on the scores of its variants."""

from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from fsd.api import Finding, choice_power
from pipelines.api import by_times, simulated_power

READ_CANARY = {1: 0.1, 2: 0.3, 5: 1.1}
"""Times that a document was read → standard deviations by which its canary rises among its variants.

From the median p-values, −Φ⁻¹(p); five times between four and eight (docs/evidence/canaries.tsv).
"""


def canary_power(values: Sequence[NDArray[Any]], level: float, seed: int) -> Finding:
    """The same for canaries that were read once, twice and five times; `level` is corrected for the detectors."""
    powers = by_times(READ_CANARY, lambda shift: choice_power(values, shift, level, seed))
    return simulated_power(f"sets of {len(values)} documents", powers, "the exact test")
