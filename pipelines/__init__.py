"""Entry points, `python -m pipelines.<name>`: one page each, which calls and does not compute."""

import sys

try:
    import fsd  # noqa: F401 - it says what is not installed
except ModuleNotFoundError as error:
    print(f"error: {error}", file=sys.stderr)
    sys.exit(2)
