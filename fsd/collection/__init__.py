"""Collect dated texts of a domain, and build a benchmark of members and non-members from them.

One engine for all domains: it reads a domain's `texts`, drops unsuitable ones and counts the reasons, resumes after an
interruption, and writes the file with its manifest. See docs/collecting.md.
"""
