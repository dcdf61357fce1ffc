"""The errors that a user can mend."""


class UsageError(ValueError):
    """Invalid input from the user; the message is one line: what must hold, what was given, what is allowed.

    Pipelines print it to stderr without a traceback and exit with code 2.
    """


class StorageError(Exception):
    """Results were computed but cannot be stored: a full disk, or a tracking server that does not answer.

    The message is one line: what is not stored, and why. Pipelines print it without a traceback and exit with code 1.
    """
