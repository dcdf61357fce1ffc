"""Odd circumstances: files that no tool writes, an environment of nonsense, streams and disks that fail.

`oddly` changes a drawn case by one or two of them. Errors of files are raised where Python opens one, by an audit hook:
the n-th opening finds a disk that is full or broken, or a file that has vanished since it was looked at.
"""

import errno
import os
import random
import resource
import signal
import socket
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

DIGITS = "9" * 5000
"""A number longer than Python converts."""
PAIRS = 200_000
"""Columns of a very wide table."""


def _rows(value: str) -> bytes:
    """Rows of which one has a value, as it is written, beside its text."""
    good = '{"text": "one two three four five six seven", "label": 1, "date": "2020-01-01"}\n'
    return (good * 3 + good.replace('"2020-01-01"', value) + good.replace('"label": 1', f'"label": {value}')).encode()


def _wide(separator: str) -> bytes:
    return separator.join(map(str, range(PAIRS))).encode() + b"\n" + separator.join("x" * PAIRS).encode() + b"\n"


CONTENTS: dict[str, bytes] = {
    "digits": _rows(DIGITS),
    "exponent": _rows("1e400"),
    "minus zero": _rows("-0.0"),
    "infinite": _rows("Infinity"),
    "deep value": _rows("[" * 900 + "]" * 900),
    "deeper value": _rows("[" * 90_000 + "]" * 90_000),
    "escaped NUL": _rows('"\\u0000"'),
    "text with NUL": b'{"text": "a\\u0000b c d e f g", "label": 0}\n' * 4,
    "half a pair": b'{"text": "a \\ud83d b c d", "label": 0}\n' * 4,
    "BOM inside": b'{"text": "a b", "label": 1}\n\xef\xbb\xbf{"text": "c d", "label": 0}\n',
    "two BOMs": b"\xef\xbb\xbf" * 2 + b'{"text": "a b c", "label": 1}\n',
    "UTF-32": '{"text": "a b"}\n'.encode("utf-32"),
    "carriage returns": b'{"text": "a b c", "label": 1}\r{"text": "d e f", "label": 0}\r',
    "line separators": '{"text": "a b\u2028c\u0085d", "label": 1}\n'.encode() * 3,
    "blanks": b" " * 3_000_000,
    "new lines": b"\n" * 1_000_000,
    "wide JSON": (b'{"text": "a b c", ' + b", ".join(b'"%d": 1' % n for n in range(PAIRS)) + b"}\n") * 2,
    "wide CSV": b"text," + _wide(","),
    "wide TSV": b"text\t" + _wide("\t"),
    "open quote": b'text,label\n"' + b"a b\n" * 100_000,
    "long name of a column": b'{"' + b"n" * 1_000_000 + b'": "a b c"}\n',
    "long word": b'{"text": "' + b"w" * 2_000_000 + b'", "label": 1}\n',
    "marks": ('{"text": "' + "e\u0301\u0302" * 50_000 + '"}\n').encode(),
    "list in a list": b'[[{"text": "a b c"}]]',
    "dates": b"".join(b'{"text": "a b c %d", "label": 1, "date": "%d-01-01"}\n' % (n, 10**n) for n in range(9)),
    "yaml tag": b"!!python/object/apply:os.system [id]\n",
    "yaml of digits": f"seed: {DIGITS}\n".encode(),
    "yaml date": b"seed: 2024-01-01\nepochs: 1:30\n? [a, b]\n: c\n",
    "two documents": b"seed: 1\n---\nseed: 2\n",
    "zip": b"PK\x03\x04" + bytes(200),
    "header of a model": (2**62).to_bytes(8, "little") + b"{}",
    "header of nothing": (2).to_bytes(8, "little") + b"{}",
    "tensor outside": (80).to_bytes(8, "little")
    + b'{"w":{"dtype":"F32","shape":[9,9],"data_offsets":[0,324]}}'.ljust(80),
    "GGUF of counts": b"GGUF" + (3).to_bytes(4, "little") + b"\xff" * 16,
    "manifest": b'{"version": 1e999, "files": [{"path": "/etc/passwd", "size": -1, "sha256": null}]}',
}
"""What a file holds that no tool writes."""


def _socket(file: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(file))


def _two_links(file: Path) -> None:
    second = file.with_name(f"{file.name}.second")
    file.symlink_to(second.name)
    second.symlink_to(file.name)


def _large(file: Path) -> None:
    file.touch()
    os.truncate(file, 20 * 2**30)


def _many(file: Path) -> None:
    file.mkdir()
    for number in range(2000):
        (file / f"{number}.jsonl").touch()


def _below_itself(file: Path) -> None:
    file.mkdir()
    (file / "below").symlink_to("..")
    (file / "a.jsonl").write_bytes(CONTENTS["digits"])


def _odd_table(file: Path) -> None:
    """Columns of types that Python, or a text, cannot hold."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    texts = pa.array([b"a b \xff", b"c d e"], pa.binary()).view(pa.string())
    columns = [
        {"text": ["a b", "c d"], "date": pa.array([2**60, 0], pa.timestamp("us")), "label": [1, 0]},
        {"text": texts, "label": [1, 0]},
        {"text": pa.array(["a b", "c d"]).dictionary_encode(), "label": pa.array([None, None])},
        {"text": pa.array([b"a b", b"c d"]), "label": [1, 0]},
        {"text": ["a b", "c d"], "label": pa.array([1, 0], pa.float16())},
        {"text": ["a b", "c d"], "label": pa.array([1, 0], pa.decimal256(60, 20))},
        {"text": ["a b", "c d"], "group": pa.array([[("x", 1)], []], pa.map_(pa.string(), pa.int8()))},
        {"text": ["a b", "c d"], **{str(number): [1, 2] for number in range(10_000)}},
        {"text": pa.nulls(2), "label": [1, 0]},
        {"text": pa.array([["a b"], ["c d"]])},
    ]
    pq.write_table(pa.table(columns[len(file.name) % len(columns)]), file.with_suffix(".parquet"))
    file.with_suffix(".parquet").rename(file)


def _objects(file: Path) -> None:
    import numpy as np

    with file.open("wb") as stream:
        np.savez(stream, counts=np.array([{"a": 1}, None], object), tokenizer=np.float64("nan"))


MADE: dict[str, Callable[[Path], object]] = {
    "socket": _socket,
    "two links": _two_links,
    "20 GiB of nothing": _large,
    "2,000 empty files": _many,
    "a folder below itself": _below_itself,
    "odd table": _odd_table,
    "objects": _objects,
    "own descriptor": lambda file: file.symlink_to("/proc/self/fd/0"),
    "terminal": lambda file: file.symlink_to("/dev/tty"),
    "link to a folder": lambda file: file.symlink_to("."),
}
"""What is no file at all, or one that must be written by a library."""

_VALUES: dict[str, list[str]] = {
    "OMP_NUM_THREADS MKL_NUM_THREADS COLUMNS LINES": ["-1", "x", "1e9", "99999999999999999999"],
    "WORLD_SIZE RANK LOCAL_RANK MASTER_PORT": ["x", "-1", "0", ""],
    "HOME XDG_CACHE_HOME HF_HOME MPLCONFIGDIR": ["", "/dev/null", "/nowhere", "x" * 5000],
    "HTTP_PROXY HTTPS_PROXY ALL_PROXY": ["nonsense", "http://[", "socks9://x:1", "\u00fc"],
    "LANG LC_ALL TZ TERM PYTHONIOENCODING": ["Nowhere/X", "C", "", "\u202e"],
    "FSD_API_KEY HF_TOKEN": ["", "a\nb: c", "\u00fc" * 40, "x" * 100_000],
    "MLFLOW_RUN_ID MLFLOW_EXPERIMENT_ID MLFLOW_EXPERIMENT_NAME MLFLOW_TAGS": ["x", "{", "99", ""],
    "MLFLOW_HTTP_REQUEST_TIMEOUT MLFLOW_HTTP_REQUEST_MAX_RETRIES": ["x", "-1", ""],
    "MLFLOW_REGISTRY_URI": ["x", "http://127.0.0.1:1", ""],
    "MLFLOW_ARTIFACT_ROOT": ["/dev/null", "s3://x"],
    "CUDA_VISIBLE_DEVICES": ["x", "99", "-1"],
    "MPLBACKEND": ["nonsense", "TkAgg"],
    "RAY_ADDRESS": ["nowhere:1", "auto"],
    "PATH": ["", "/nowhere"],
    "HF_HUB_OFFLINE NO_COLOR FORCE_COLOR TOKENIZERS_PARALLELISM PYTHONHASHSEED SOURCE_DATE_EPOCH": ["banana", ""],
    "SSL_CERT_FILE": ["/dev/null"],
}
ENVIRONMENT = {name: values for names, values in _VALUES.items() for name in names.split()}
"""Variable → values that are none of it."""


def _closed(number: int) -> Callable[[], None]:
    return lambda: os.close(number)


def _replaced(number: int, path: str) -> Callable[[], None]:
    return lambda: os.dup2(os.open(path, os.O_RDWR), number)


def _broken_pipe() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    os.dup2(writing, 1)


def _folder_gone() -> None:
    folder = tempfile.mkdtemp(dir="/tmp")
    os.chdir(folder)
    Path(folder).rmdir()


def _set_limit(kind: int, most: int) -> Callable[[], None]:
    return lambda: resource.setrlimit(kind, (most, most))


def _little_memory(more: int) -> Callable[[], None]:
    """Let the process take only so many bytes more than it has."""

    def install() -> None:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        most = pages * resource.getpagesize() + more
        resource.setrlimit(resource.RLIMIT_AS, (most, most))

    return install


def _another_user() -> None:
    """Nobody, who may read everything and write nothing."""
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)


def _all_closed() -> None:
    for number in range(3):
        os.close(number)


def _without_threads() -> None:
    _another_user()
    resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))


def _changing(name: str, what: str, number: int) -> Callable[[], None]:
    """A file changes just before its n-th opening, as if somebody else wrote it."""

    def install() -> None:
        opened = 0
        file = Path(name).absolute()
        change = {
            "cut": lambda: os.truncate(file, file.stat().st_size // 2),
            "grown": lambda: file.write_bytes(file.read_bytes() * 3),
            "replaced": lambda: file.write_bytes(b'{"text": "quite another text of nobody", "label": 1}\n'),
            "gone": file.unlink,
            "a folder": lambda: (file.unlink(), file.mkdir()),
        }[what]

        def hook(event: str, arguments: Any) -> None:
            nonlocal opened
            if event != "open" or not isinstance(arguments[0], str) or Path(arguments[0]).absolute() != file:
                return
            opened += 1
            if opened == number:
                change()

        sys.addaudithook(hook)

    return install


def _failing(number: int, *, writing: bool, code: int) -> Callable[[], None]:
    """The n-th file that is opened, for writing or reading, fails."""

    def install() -> None:
        opened = 0
        place = Path.cwd()

        def hook(event: str, arguments: Any) -> None:
            nonlocal opened
            if event != "open" or not isinstance(arguments[0], str):
                return
            path, _, flags = arguments
            writes = bool((flags or 0) & (os.O_WRONLY | os.O_RDWR))
            # Libraries read their own files, which are not the user's; what is left in a folder that cannot be read is
            # nobody's fault.
            is_passing = "temporary" in path or "/.fsd-" in path
            is_own = (place / path).is_relative_to(place) and not is_passing
            if writes != writing or not is_own:
                return
            opened += 1
            if opened == number:
                raise OSError(code, os.strerror(code), path)

        sys.addaudithook(hook)

    return install


CIRCUMSTANCES: dict[str, Callable[[], object]] = {
    "stdin closed": _closed(0),
    "stdout closed": _closed(1),
    "stderr closed": _closed(2),
    "stdout full": _replaced(1, "/dev/full"),
    "stdout a broken pipe": _broken_pipe,
    "few open files": lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40)),
    "small files": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000)),
    "folder gone": _folder_gone,
    "umask of all": lambda: os.umask(0o777),
    **{f"full disk at {n}": _failing(n, writing=True, code=errno.ENOSPC) for n in (1, 2, 3, 5, 8, 13, 21)},
    **{f"read-only disk at {n}": _failing(n, writing=True, code=errno.EROFS) for n in (1, 2, 4, 9)},
    **{f"vanished at {n}": _failing(n, writing=False, code=errno.ENOENT) for n in (1, 2, 3, 5, 8, 13)},
    **{f"broken disk at {n}": _failing(n, writing=False, code=errno.EIO) for n in (1, 2, 3, 5, 8, 13)},
    "64 open files": _set_limit(resource.RLIMIT_NOFILE, 64),
    "40 open files": _set_limit(resource.RLIMIT_NOFILE, 40),
    "200 MB of memory more": _little_memory(200 * 10**6),
    "20 MB of memory more": _little_memory(20 * 10**6),
    "files of 64 kB": _set_limit(resource.RLIMIT_FSIZE, 2**16),
    "files of nothing": _set_limit(resource.RLIMIT_FSIZE, 0),
    "all streams closed": _all_closed,
    "another user": _another_user,
    "no more threads": _without_threads,
    "signals ignored": lambda: [signal.signal(each, signal.SIG_IGN) for each in (signal.SIGTERM, signal.SIGPIPE)],
    **{
        f"other.jsonl {what} at {n}": _changing("other.jsonl", what, n)
        for what in ("cut", "grown", "replaced", "gone", "a folder")
        for n in (1, 2, 3, 5)
    },
    **{f"no right at {n}": _failing(n, writing=False, code=errno.EACCES) for n in (1, 2, 4)},
}
"""What happens to the process, before the command begins."""
OF_ANY = [name for name in CIRCUMSTANCES if not name.startswith("other.jsonl")]
"""Those that need no file of a scene."""


def odd_file(rng: random.Random, file: Path) -> None:
    """Put something odd in the place of a file."""
    file.unlink(missing_ok=True)
    if rng.random() < 0.3:
        MADE[rng.choice(list(MADE))](file)
    else:
        file.write_bytes(CONTENTS[rng.choice(list(CONTENTS))])
