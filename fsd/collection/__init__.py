"""Collecting dated texts of a domain, and building a benchmark of two sides from them.

One engine for all domains: it asks a domain's `texts` for what it has, drops what must not be in the set and says
why, survives being killed, and writes the file and its manifest. See docs/collecting.md.
"""

from fsd.collection.benchmark_card import Card, build, markdown, write_benchmark
from fsd.collection.engine import Collected, Order, collect, log_manifest, reusable

__all__ = ["Card", "Collected", "Order", "build", "collect", "log_manifest", "markdown", "reusable", "write_benchmark"]
