"""Tasks of the evaluation harness as texts: what a benchmark asks, as its evaluation writes it."""

from fsd.api import Plug

PLUG = Plug(entry="extensions.tasks.harness:entry")
