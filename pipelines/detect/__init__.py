"""Verdicts with calibrated error rates on new texts, from a registered adapter: `fsd detect`."""
