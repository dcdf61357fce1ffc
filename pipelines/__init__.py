"""Entry points, `python -m pipelines.<name>`: one page each, which calls and does not compute."""

import sys
from importlib import import_module

try:
    import_module("fsd")  # it says what is not installed; bound, it would hide the module pipelines.fsd
except ModuleNotFoundError as error:
    print(f"error: {error}", file=sys.stderr)
    sys.exit(2)
