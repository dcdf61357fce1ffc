"""Verdicts on single texts and whole sets: calibration, and the checks that must pass before one is given."""
