"""What an extension may take of the commands: the names of `api.pyi` beside this file."""

from fsd.api import looked_up

__getattr__ = looked_up(__file__)
