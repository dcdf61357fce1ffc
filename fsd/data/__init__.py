"""Texts with labels: reading files, published benchmarks, near-duplicates, leak-safe splits.

Everything here returns `documents.Document`; nothing here knows a model.
"""
