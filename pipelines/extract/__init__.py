"""Extraction: how likely a model is to continue passages of a book with the book's own words.

`__main__` is the command, `works` reads and scores works, `report` shows the result, `demo` an embedded example.
"""
