"""Base scores of texts: their computation, whole or in shards, and their report."""
