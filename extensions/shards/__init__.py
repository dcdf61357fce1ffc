"""Data larger than memory, a shard at a time, by one process or a cluster of Ray."""

from fsd.api import Plug

PLUG = Plug(compute="extensions.shards.shards:job")
