"""Texts: reading, cleaning, splitting, published benchmarks, and the data that comes with the package."""
