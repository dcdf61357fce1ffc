"""Optuna studies of detector and adapter settings on validation texts.

`objective` gives a setting its value, `optuna_study` searches, `comparison` judges the winner on the test texts.
"""
