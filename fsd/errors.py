"""The errors that a user can mend, and what makes a message safe to show and to keep."""

import errno
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches

# Repetitions are bounded, so that a long text takes no time.
_NAMES = "token|secret|passw(?:or)?d|pass|pwd|auth|code|signature|sig|credential|key"
_SECRETS = (
    # A token may stand in place of the user.
    (re.compile(r"(https?://?)[^\s/@]{1,999}@", re.IGNORECASE), r"\1***@"),
    # One slash: as a path.
    (re.compile(r"(://?[^\s/:@]{0,99}):\S{0,999}@"), r"\1:***@"),
    # The value of a query, whose signs may be escaped.
    (re.compile(rf"((?:[?&#;]|%3b)[^?=&#;\s]{{0,40}}(?:{_NAMES})(?:=|%3d))[^&\s'\")]+", re.IGNORECASE), r"\1***"),
)
# Characters of a token; a shorter one stands in many words.
_SHORTEST = 6


# Variables of the environment whose values stand in no message, even if a server repeats them.
_TOKENS = ("FSD_API_KEY", "OPENAI_API_KEY", "HF_TOKEN", "MLFLOW_TRACKING_TOKEN", "MLFLOW_TRACKING_PASSWORD")
LONGEST = 2000
"""Characters of a message, whatever it quotes."""
_READ = 100_000
# Errors of a disk that is full or cannot be written; and what libraries say of them that have errors of their own.
_NOT_STORED = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG, errno.EIO)
_OF_A_DISK = re.compile(
    "No space left on device|database or disk is full|disk I/O error|File too large|Disk quota exceeded|"
    "Read-only file system",
    re.IGNORECASE,
)
# What PyTorch says of a CPU and of a GPU, in a RuntimeError.
_OF_MEMORY = re.compile("can't allocate memory|CUDA out of memory|CUDA error: out of memory")
_LIBRARIES = (
    "sqlite3",
    "sqlalchemy",
    "safetensors",
    "safetensors_rust",
    "mlflow",
    "optuna",
    "pyarrow",
    "shutil",
    "builtins",
)


class UsageError(ValueError):
    """Invalid input from the user; the message is one line: what must hold, what was given, what is allowed.

    Pipelines print it and exit with code 2. It may quote files and servers: control characters and credentials are
    replaced.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message_line(message))


class StorageError(Exception):
    """Results were computed but cannot be stored; the message is one line: what is not stored, and why.

    Pipelines print it with their own command, which continues, and exit with code 1.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message_line(message))


class CheckFailed(Exception):  # noqa: N818 - the command worked: its answer is not the one that was wanted
    """An answer that fails what was asked of it, by a gate or a verification; the message is one line.

    Pipelines print it after the answer, and exit with code 1.
    """

    def __init__(self, message: str) -> None:
        super().__init__(printable(without_credentials(message)))


DRIVERS = {"psycopg": "fsd[postgres]", "psycopg2": "psycopg2-binary", "MySQLdb": "mysqlclient"}
"""Module of a database driver → package to install, where the names differ."""


def import_failure(error: ImportError) -> str:
    """Message of a failed import, with the command that installs the module if it is missing."""
    if isinstance(error, ModuleNotFoundError) and error.name:
        return f"{error}: pip install '{DRIVERS.get(error.name, error.name)}'"
    return str(error)


def message_line(message: str) -> str:
    """A message on one line of at most `LONGEST` characters, without credentials and control characters."""
    # Half of a credential would not be found any more: what is shown is cut afterwards.
    message = without_credentials(_cut(message, _READ))
    for name in _TOKENS:
        token = os.environ.get(name, "").strip()
        if len(token) >= _SHORTEST:
            message = without_credentials(message, token)
    return printable(_cut(message, LONGEST))


def _cut(text: str, longest: int) -> str:
    """The text, or its beginning and its end."""
    if len(text) <= longest:
        return text
    return f"{text[: longest // 2]} … {text[-longest // 2 :]}"


def disk_failure(error: BaseException) -> str:
    """What a disk that is full or cannot be written says, whichever library passes it on; "" for other errors."""
    for cause in _causes(error):
        if isinstance(cause, OSError) and cause.errno in _NOT_STORED:
            return os.strerror(cause.errno)
        words = _OF_A_DISK.search(str(cause))
        if words and type(cause).__module__.partition(".")[0] in _LIBRARIES:
            return words[0]
    return ""


def memory_failure(error: BaseException) -> str:
    """What is said of a memory that does not suffice, whichever library passes it on; "" for other errors."""
    for cause in _causes(error):
        is_of_system = isinstance(cause, OSError) and cause.errno == errno.ENOMEM
        if isinstance(cause, MemoryError) or is_of_system or _OF_MEMORY.search(str(cause)):
            return first_line(cause)
    return ""


def _causes(error: BaseException) -> Iterator[BaseException]:
    """An error, and what it came from."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = getattr(cause, "orig", None) or cause.__cause__ or cause.__context__


def without_credentials(text: str, secret: str = "") -> str:
    """The text with `***` in place of passwords and tokens in URLs: before an @, or as a query's key, token, ...

    And with `[key]` in place of a secret, in capitals or small letters.
    """
    for pattern, replacement in _SECRETS:
        text = pattern.sub(replacement, text)
    if secret:
        return re.sub(re.escape(secret), "[key]", text, flags=re.IGNORECASE)
    return text


def printable(text: str) -> str:
    """The text on one line without control and formatting characters, which could command a terminal or reverse it."""
    if text.isprintable():  # as nearly every text is
        return text
    characters = []
    for character in text:
        if not character.isprintable():
            character = " " if character.isspace() else "\ufffd"
        characters.append(character)
    return "".join(characters)


def first_line(error: BaseException) -> str:
    """The first line of an error's message, for a message of one line."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


@contextmanager
def refusing(must: str, *kinds: type[Exception]) -> Iterator[None]:
    """Turn errors of some kinds, by default of any, into a `UsageError`: what must hold, and their first line.

    A memory that does not suffice is no fault of what is read.
    """
    try:
        yield
    except UsageError:
        raise
    except Exception as error:
        if memory_failure(error) or (kinds and not isinstance(error, kinds)):
            raise
        raise UsageError(f"{must}{first_line(error)}") from error


def quoted(value: object) -> str:
    """A value as it is written in Python, of at most 60 characters."""
    text = repr(value)
    if len(text) <= 60:
        return text
    return f"{text[:57]}..."


def counted(number: int, noun: str) -> str:
    """A number with its noun: 1 text, 2,000 texts."""
    if number == 1:
        return f"1 {noun}"
    return f"{number:,} {noun}s"


def at_least(least: int, unit: str = "", /, **values: float | None) -> None:
    """Refuse the first number below the least; None is none."""
    for name, value in values.items():
        if value is not None and value < least:
            raise UsageError(f"{name} must be at least {least}{unit}; got {value}")


def one_of(what: str, allowed: Iterable[str], got: str) -> str:
    """The message for an unknown name, with the nearest of those allowed."""
    names = list(allowed)
    nearest = get_close_matches(got, names, 1)
    hint = f"; did you mean {nearest[0]}?" if nearest else ""
    return f"{what} must be one of {', '.join(names)}; got {got!r}{hint}"
