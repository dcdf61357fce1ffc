"""Where the pages of the documentation are: they come with the checkout, and with the wheel."""

from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

CHECKOUT = Path(__file__).parents[2] / "docs"
INSTALLED = "share/doc/fsd"


def page(name: str) -> Path:
    """The file of a page: in the checkout, or where the wheel put it; `docs/NAME` where neither has it."""
    in_checkout = CHECKOUT / name
    if in_checkout.is_file():
        return in_checkout
    # The record of the installation knows the place under any scheme: --user, --prefix, a virtual environment.
    try:
        recorded = files("fsd") or []
    except PackageNotFoundError:
        recorded = []
    for path in recorded:
        if path.as_posix().endswith(f"{INSTALLED}/{name}"):
            return Path(str(path.locate())).resolve()
    return Path("docs") / name
