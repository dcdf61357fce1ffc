"""Targets of our own whose training texts are all known, and every score on them: `fsd study lab`."""
