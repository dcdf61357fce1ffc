"""Optuna studies of detector and adapter settings on validation texts.

`objective` evaluates settings by cross-validation, `optuna_study` runs the studies, which several processes can share,
and compares the winners with the defaults on the test texts.
"""
