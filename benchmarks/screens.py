"""What commands leave on a terminal, and how long they are silent: python -m benchmarks.screens [NAME ...].

Each command runs on the embedded model in one temporary folder, on terminals of 80 and 120 columns (`--columns`).
Printed are, in Markdown, what each command leaves on stdout, and a table of the seconds until the first sign and of the
longest silence, with the line after which it was. docs/screens shows some of these screens.
"""

import argparse
import fcntl
import json
import os
import pty
import re
import select
import struct
import subprocess
import sys
import tempfile
import termios
import time
from pathlib import Path
from typing import NamedTuple

from fsd.data.embedded import corpus

MODEL = "--layers 1 --hidden-size 16 --heads 2 --vocabulary 300 --context 48 --passes 1 --exposures 1 --device cpu"
COMMANDS = {
    "run": "fsd run --domain arxiv",
    "tune": "fsd tune --domain arxiv --detectors dc_pdd,min_k --trials 20",
    "detect": "fsd detect new.jsonl --adapter models:/fsd-arxiv/1",
    "canary demo": "fsd canary demo",
    "extract": "fsd extract book.txt --control other.txt",
    "contamination": "fsd contamination suspect.jsonl --known known.jsonl --sets 1 --level 0.5",
    "adapter-audit": "fsd adapter-audit --data audit.jsonl --adapter models:/fsd-arxiv/1",
    "score": "fsd score --data audit.jsonl --out scores.csv",
    "canary make": "fsd canary make --data new.jsonl --out canaries-{columns}",
    "canary test": "fsd canary test canaries-{columns} --withheld 99",
    "compare": "fsd compare models:/fsd-arxiv/1 models:/fsd-arxiv/2",
    "extract --demo": "fsd extract --demo",
    "adapter-audit --demo": "fsd adapter-audit --demo",
    "ui": "fsd ui --port 5077",
    "pretrain": f"fsd pretrain --members suspect.jsonl --background known.jsonl --out model-{{columns}} {MODEL}",
    "collect": "fsd collect --domain local --options path=dated.jsonl --limit 5 --after 2024-03-02 --min-words 5",
    "frequencies": "fsd frequencies --corpus known.jsonl --out table.npz --model embedded",
    "study": "fsd study fsd-t3 --epochs 1",
}
SERVED = 60.0
"""Seconds after which a command that serves pages is ended."""


class Seen(NamedTuple):
    """What a command left on stdout, its seconds, those until the first sign, and the longest silence with its line."""

    screen: str
    total: float
    first: float
    silence: float
    after: str


def watch(line: str, columns: int, folder: Path) -> Seen:
    """Run a command with stdout and stderr on terminals of their own."""
    (out, to_out), (err, to_err) = pty.openpty(), pty.openpty()
    for terminal in (to_out, to_err):
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    kept = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    environment = {**kept, "TERM": "xterm", "PATH": f"{Path(sys.executable).parent}:{kept['PATH']}"}
    begun = last = time.monotonic()
    process = subprocess.Popen(line.split(), cwd=folder, stdin=to_out, stdout=to_out, stderr=to_err, env=environment)
    os.close(to_out)
    os.close(to_err)
    texts, open_ones, signs = {out: b"", err: b""}, [out, err], []
    while open_ones:
        for source in select.select(open_ones, [], [], 1.0)[0]:
            try:
                part = os.read(source, 2**16)
            except OSError:  # how Linux reports that the other side is closed
                open_ones.remove(source)
                continue
            now, before = time.monotonic(), texts[source]
            signs.append((now - last, now - begun, re.split(r"[\r\n]+", before.decode(errors="replace").rstrip())[-1]))
            last, texts[source] = now, before + part
        if line.startswith("fsd ui") and time.monotonic() - begun > SERVED:
            process.terminate()
    process.wait()
    screen = re.sub(r" *\r", "", re.sub(r"\x1b\[[0-9;]*m", "", texts[out].decode()))
    gap, _, after = max(signs)
    return Seen(screen.rstrip(), time.monotonic() - begun, signs[0][1], gap, after.strip())


def write_inputs(folder: Path) -> None:
    """The files that the commands read, made of the embedded corpus."""
    documents = list(corpus())
    members, others = ([d.text for d in documents if d.member is side] for side in (True, False))
    rows: dict[str, list[dict[str, object]]] = {
        "new": [{"text": text} for text in (*members[:20], *others[:20])],
        "suspect": [{"text": text} for text in members[:30]],
        "known": [{"text": text} for text in others[:70]],
        "audit": [{"text": text, "label": int(at < 50)} for at, text in enumerate(others[60:160])],
        "dated": [{"text": text, "date": "2025-01-01"} for text in others[:30]],
    }
    for name, of_file in rows.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in of_file), encoding="utf-8")
    (folder / "book.txt").write_text(" ".join(members[:10]), encoding="utf-8")
    (folder / "other.txt").write_text(" ".join(others[:10]), encoding="utf-8")


def main() -> None:
    """Run the commands in one folder, and print their screens and the table of silences."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=[*COMMANDS], metavar="NAME", help=", ".join(COMMANDS))
    parser.add_argument("--columns", nargs="+", type=int, default=[80, 120])
    parser.add_argument("--folder", type=Path, help="where earlier runs are; a new one by default")
    config = parser.parse_args()
    folder = config.folder or Path(tempfile.mkdtemp(prefix="fsd-screens-"))
    write_inputs(folder)
    table = ["| command | seconds | first sign | longest silence | after |", "|---|---:|---:|---:|---|"]
    for name in config.names:
        for columns in config.columns:
            line = COMMANDS[name].format(columns=columns)
            seen = watch(line, columns, folder)
            print(
                f"{columns} columns, {seen.screen.count(chr(10)) + 1} lines:\n\n```\n$ {line}\n{seen.screen}\n```\n",
                flush=True,
            )
            table.append(f"| `{line}` | {seen.total:.0f} | {seen.first:.1f} | {seen.silence:.1f} | {seen.after[:40]} |")
    print("\n".join(table))


if __name__ == "__main__":
    main()
