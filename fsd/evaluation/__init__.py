"""Metrics with intervals, and the controls, calibrations and sentences that make a verdict of them."""
