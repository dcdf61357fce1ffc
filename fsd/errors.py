"""The error for invalid input."""


class UsageError(ValueError):
    """Invalid input from the user; the message is one line: what must hold, what was given, what is allowed.

    Pipelines print it to stderr without a traceback and exit with code 2.
    """
