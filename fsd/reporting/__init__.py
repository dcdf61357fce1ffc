"""Figures, the HTML report and the tables on the terminal.

They show results and compute none.
"""
