"""Figures, the HTML report and the tables in the terminal.

They show results and compute nothing.
"""
