"""Collect dated texts of a domain, and build a benchmark of members and non-members from them.

One engine for all domains: it reads a domain's `texts`, drops unsuitable ones and counts the reasons, resumes after an
interruption, and writes the file with its manifest. See docs/collecting.md.
"""

from fsd.collection.benchmark_card import Card, build, markdown, write_benchmark
from fsd.collection.engine import Collection, CollectionSpec, collect, log_manifest, reusable

__all__ = [
    "Card",
    "Collection",
    "CollectionSpec",
    "build",
    "collect",
    "log_manifest",
    "markdown",
    "reusable",
    "write_benchmark",
]
