"""Folders of shards: workers killed at ten moments, throughput by workers, and one large file: --help.

`kills` runs `fsd score --engine ray` with two workers on the embedded corpus and kills one of them with -9, ten times
or `--kills`, while models load and while shards are computed. `throughput` scores the same texts in this process, by
one worker and by two, in turns: seconds a shard, over the second half of the shards. `large` cuts a file into shards
and reads one. `many` scores short texts with two workers, kills a worker after a third of the shards and the whole
command after two thirds, starts it again, and compares every tenth shard with those of one process: seconds, memory,
equal rows.
"""

import argparse
import filecmp
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd
import psutil

from extensions.shards import files as shards
from fsd.data import embedded

ROOT = Path(__file__).parents[1]


def corpus(folder: Path, texts: int) -> Path:
    """The first texts of the embedded corpus, again and again."""
    known = [document.text for document in embedded.corpus()]
    lines = (json.dumps({"text": f"{at} {known[at % len(known)]}"}) + "\n" for at in range(texts))
    (folder / "texts.jsonl").write_text("".join(lines), encoding="utf-8")
    return folder / "texts.jsonl"


def start(file: Path, out: Path, rows: int, *options: str) -> "subprocess.Popen[bytes]":
    words = f"score --data {file} --out {out} --shard-rows {rows} --device cpu --detectors loss,min_k".split()
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_WAIT_POLICY": "passive"}
    log = (out.parent / "log").open("a")
    return subprocess.Popen([sys.executable, "-m", "pipelines", *words, *options], env=env, stdout=log, stderr=log)


def finished(process: "subprocess.Popen[bytes]") -> None:
    if process.wait():
        raise SystemExit(f"exit code {process.returncode}")


def alive(process: psutil.Process) -> bool:
    """Whether a process has not ended; nobody may ask for the result of one whose parent was killed."""
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def actors(process: "subprocess.Popen[bytes]") -> list[psutil.Process]:
    """The workers of Ray that are alive, in whatever state."""
    found = []
    for child in psutil.Process(process.pid).children(recursive=True):
        try:
            if "ray::Actor" in " ".join(child.cmdline()) and alive(child):
                found.append(child)
        except psutil.Error:
            continue
    return sorted(found, key=lambda child: child.create_time())


def kills(folder: Path, texts: int, rows: int, times: int) -> None:
    file = corpus(folder, texts)
    finished(start(file, folder / "whole", rows))
    names = sorted(path.name for path in (folder / "whole").iterdir())
    process = start(file, folder / "out", rows, "--engine", "ray", "--actors", "2")
    print("| kill | shards there | worker was |\n|---:|---:|---|")
    for number in range(1, times + 1):
        goal = max(0, number - 3) * (len(names) - 1) // times
        while True:
            done = len(list((folder / "out").glob("*.parquet")))
            workers = actors(process)
            if process.poll() is not None:
                raise SystemExit(f"it ended before kill {number}")
            if workers and done >= goal:
                break
            time.sleep(0.01)
        chosen = workers[number % len(workers)]
        what = chosen.cmdline()[0].split()[0].removeprefix("ray::")
        os.kill(chosen.pid, signal.SIGKILL)
        print(f"| {number} | {done} of {len(names) - 1} | {what}, {time.time() - chosen.create_time():.1f} s old |")
        chosen.wait(30)
    finished(process)
    _, differing, missing = filecmp.cmpfiles(folder / "whole", folder / "out", names, shallow=False)
    print(f"{len(names)} files, {len(differing)} differ, {len(missing)} are missing")


def throughput(folder: Path, texts: int, rows: int, rounds: int) -> None:
    file = corpus(folder, texts)
    ways = {
        "no engine": [],
        "1 worker": ["--engine", "ray", "--actors", "1"],
        "2 workers": ["--engine", "ray", "--actors", "2"],
    }
    spent: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(rounds):
        for name, options in ways.items():
            out = folder / f"{name.replace(' ', '')}{turn}"
            begun = time.perf_counter()
            finished(start(file, out, rows, *options))
            ends = sorted(path.stat().st_mtime for path in out.glob("*.parquet"))
            half = ends[len(ends) // 2 :]  # all workers have their models by then
            spent[name].append((half[-1] - half[0]) / (len(half) - 1))
            whole = time.perf_counter() - begun
            print(f"round {turn + 1}, {name}: {spent[name][-1]:.2f} s a shard in the second half, {whole:.1f} s in all")
    base = spent["no engine"]
    for name, own in spent.items():
        ratios = ", ".join(f"{b / a:.2f}" for a, b in zip(own, base, strict=True))
        print(f"{name}: speed against no engine in the same round {ratios}")


def large(folder: Path, size: int) -> None:
    line = json.dumps({"text": "word " * 200}).encode() + b"\n"
    file = folder / "large.jsonl"
    with file.open("wb") as out:
        for _ in range(size // len(line) // 1000):
            out.write(line * 1000)
    before, begun = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10, time.perf_counter()
    _, found = shards.cut(shards.find([str(file)]), 10_000)
    cut = time.perf_counter()
    rows = found[len(found) // 2].read()
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10 - before
    seconds = cut - begun, time.perf_counter() - cut
    print(f"{size / 1e9:.2f} GB, {len(found)} shards: cut in {seconds[0]:.1f} s, one read in {seconds[1]:.2f} s")
    print(f"{len(rows):,} rows of {len(line):,} bytes; memory grew by {grown:.0f} MiB")


@dataclass
class Usage:
    """Peak memory of a command and all its children, in each third of the shards."""

    peaks: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0])

    def look(self, process: "subprocess.Popen[bytes]", share: float) -> None:
        """Add up what the processes hold now, shared pages divided among them; share is that of the finished shards."""
        total = 0.0
        for each in [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]:
            try:
                total += each.memory_full_info().pss / 2**20
            except psutil.Error:
                continue
        third = min(2, int(3 * share))
        self.peaks[third] = max(self.peaks[third], total)


def watched(process: "subprocess.Popen[bytes]", out: Path, shards_in_all: int, until: float, usage: Usage) -> int:
    """Wait until a share of the shards is there, or the command has ended; the number that is there."""
    while True:
        done = len(list(out.glob("*.parquet")))
        if process.poll() is not None or done >= until * shards_in_all:
            return done
        usage.look(process, done / shards_in_all)
        time.sleep(0.2)


def short_texts(folder: Path, texts: int, words: int) -> Path:
    """Pieces of the embedded corpus, each with its number, so that no two are equal."""
    known = [document.text.split() for document in embedded.corpus()]
    with (folder / "texts.jsonl").open("w", encoding="utf-8") as lines:
        for number in range(texts):
            source = known[number % len(known)]
            start_word = number // len(known) * 7 % max(1, len(source) - words)
            text = " ".join([str(number), *source[start_word : start_word + words]])
            lines.write(json.dumps({"text": text}) + "\n")
    return folder / "texts.jsonl"


def every_tenth(file: Path, rows: int) -> Path:
    """A file of the rows of every tenth shard, so that one process scores them as shards of the same texts."""
    sample = file.with_name("sample.jsonl")
    with file.open(encoding="utf-8") as lines, sample.open("w", encoding="utf-8") as kept:
        kept.writelines(line for number, line in enumerate(lines) if number // rows % 10 == 0)
    return sample


def many(folder: Path, texts: int, rows: int, words: int) -> None:
    file, out, usage = short_texts(folder, texts, words), folder / "out", Usage()
    total = -(-texts // rows)
    engine = ("--engine", "ray", "--actors", "2")
    begun = time.perf_counter()
    process = start(file, out, rows, *engine)

    done = watched(process, out, total, 1 / 3, usage)
    if process.poll() is not None:
        raise SystemExit(f"it ended before a worker was killed: take more than {texts} texts")
    victim = actors(process)[0]
    os.kill(victim.pid, signal.SIGKILL)
    print(f"{time.perf_counter() - begun:.0f} s: a worker killed after {done} of {total} shards", flush=True)

    done = watched(process, out, total, 2 / 3, usage)
    workers = actors(process)
    process.kill()
    process.wait()
    print(f"{time.perf_counter() - begun:.0f} s: the command killed after {done} of {total} shards", flush=True)
    end = time.monotonic() + 60
    # Ray's own agents end a minute later.
    while any(map(alive, workers)) and time.monotonic() < end:
        time.sleep(0.2)

    process = start(file, out, rows, *engine)
    watched(process, out, total, 2, usage)
    finished(process)
    peaks = ", ".join(f"{peak:,.0f}" for peak in usage.peaks)
    print(f"{time.perf_counter() - begun:.0f} s: ended; peak MiB in each third of the shards: {peaks}", flush=True)

    sample = every_tenth(file, rows)
    finished(start(sample, folder / "one", rows))
    compare(out, folder / "one", texts)


def compare(out: Path, one: Path, texts: int) -> None:
    """Print whether each text has one row, and whether every tenth shard holds the numbers of one process."""
    table = pd.read_parquet(out, columns=["text"])
    numbers = table["text"].str.split(n=1).str[0].astype(int)
    print(f"{len(table):,} rows, {numbers.nunique():,} texts of {texts:,}")
    equal = 0
    samples = sorted(one.glob("*.parquet"))
    for place, path in enumerate(samples):
        expected = pd.read_parquet(path).drop(columns="source")
        scored = pd.read_parquet(out / f"{10 * place:06}.parquet").drop(columns="source")
        equal += scored.equals(expected)
    print(f"{equal} of {len(samples)} shards equal those of one process, every number bitwise")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["kills", "throughput", "large", "many"])
    parser.add_argument("--texts", type=int, default=400)
    parser.add_argument("--rows", type=int, default=10, help="rows of a shard")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kills", type=int, default=10, help="workers that are killed")
    parser.add_argument("--words", type=int, default=20, help="words of a text of `many`")
    parser.add_argument("--size", type=float, default=1e9, help="bytes of the large file")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        if options.part == "kills":
            kills(Path(name), options.texts, options.rows, options.kills)
        elif options.part == "throughput":
            throughput(Path(name), options.texts, options.rows, options.rounds)
        elif options.part == "many":
            many(Path(name), options.texts, options.rows, options.words)
        else:
            large(Path(name), int(options.size))


if __name__ == "__main__":
    main()
