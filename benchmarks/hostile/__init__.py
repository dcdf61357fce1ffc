"""Hostile command lines: see __main__.py."""
