"""Texts with labels: reading files, published benchmarks, near-duplicates, leak-safe splits.

The functions return `documents.Document`; none of them needs a model.
"""
