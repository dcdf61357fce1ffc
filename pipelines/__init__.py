"""Entry points, `python -m pipelines.<name>`: one page each, which calls and does not compute."""
