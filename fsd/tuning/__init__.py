"""Optuna studies of detector and adapter settings on validation texts."""
