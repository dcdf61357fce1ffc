"""From scores to conclusions: metrics with intervals, controls, calibration, and what the numbers support.

`results` puts them together as one long data frame.
"""
