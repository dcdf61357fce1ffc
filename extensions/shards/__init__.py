"""Data larger than memory, a shard at a time, by one process or a cluster of Ray."""
