"""One-line changes that a test must notice: see __main__.py."""
