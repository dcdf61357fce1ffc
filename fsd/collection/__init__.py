"""Collecting dated texts from public sources: one file per domain, and the engine that they share."""
