"""`python -m pipelines.detect`: is this text a member?

Verdicts with calibrated error rates from a registered adapter.
"""
