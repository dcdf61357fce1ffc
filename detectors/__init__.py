"""Detectors, one per file, discovered by file name.

A detector is a pure function with the name of its file. Its positional parameters are views of the text (see
`fsd.views.FORMS`), its keyword-only parameters are settings with the paper's defaults, and with a
`fsd.search_space.Setting` in their annotation, which says what they may be and what is searched. It returns S(x), where
higher means more likely a member. The file may also define `NEEDS`, the fields of `TokenStats` that it uses besides
text and logp (token, mean, std, top); `AUTO = False`, which leaves it out of the default set, and `ALL = False`, by
which it is computed by name alone; and `fallback`, a function with the same parameters that says why a fallback was
used for the score of a text, and which one ("why; what"), or returns None.
"""

import importlib
import inspect
import pkgutil
from types import ModuleType
from typing import Any

from fsd.errors import UsageError, one_of
from fsd.views import ADAPTED, Detector, View

__all__ = ["Detector", "load", "names"]


def names(which: str = "") -> tuple[str, ...]:
    """Names of all detectors, in alphabetical order, or of those that `auto` or `all` stands for."""
    every = sorted(module.name for module in pkgutil.iter_modules(__path__))
    if not which:
        return tuple(every)
    return tuple(name for name in every if getattr(_module(name), which.upper(), True))


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"{__name__}.{name}")


def load(name: str, /, **settings: Any) -> Detector:
    """Load a detector by name; `settings` override the paper's defaults.

    `adapted_NAME` is a detector that compares with a reference model, against the reference fine-tuned on unread texts.

    Raises:
        UsageError: for an unknown name or setting, a value of another type or out of range, or a file with `SEARCH`.
    """
    if name.startswith(ADAPTED) and name not in names():
        return load(name.removeprefix(ADAPTED), **settings).adapted()
    if name not in names():
        raise UsageError(one_of("detector", names(), name))
    module = _module(name)
    # As of release 0.2.0, which would be read by nobody.
    if hasattr(module, "SEARCH"):
        raise UsageError(f"detector {name} must say what is searched by a Setting of fsd.search_space, not by SEARCH")
    function = getattr(module, name)
    views = []
    defaults = {}
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY:
            defaults[parameter.name] = parameter.default
        else:
            View.named(parameter.name)
            views.append(parameter.name)
    detector = Detector(
        name=name,
        function=function,
        views=tuple(views),
        settings=defaults,
        fallback=getattr(module, "fallback", None),
        needs=getattr(module, "NEEDS", ()),
    )
    return detector.with_settings(**settings)
