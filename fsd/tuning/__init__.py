"""Optuna studies of detector and adapter settings on validation texts.

`objective` evaluates settings by cross-validation, `optuna_study` runs the studies, `optuna_storage` opens the storages
that hold them, and `comparison` compares the winners with the defaults on the test texts.
"""
