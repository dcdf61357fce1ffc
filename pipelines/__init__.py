"""Entry points, `python -m pipelines.<name>`: one page each, which calls and does not compute."""

import sys
from importlib.util import find_spec

if not find_spec("tyro"):
    print(
        f"error: the packages of fsd must be installed in {sys.executable}; tyro is not: source .venv/bin/activate "
        "(after make setup), or pip install .",
        file=sys.stderr,
    )
    sys.exit(2)
