"""The one error a user can cause."""


class UsageError(ValueError):
    """A user's mistake: the message says what must hold, what came and what is allowed, on one line.

    Pipelines print it to stderr and exit with code 2; it never shows a traceback.
    """
