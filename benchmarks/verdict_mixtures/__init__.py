"""Simulation: does the false-positive rate of verdicts hold for models that know several sources?"""
