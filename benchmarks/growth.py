"""How seconds and memory grow with the number of texts, command by command: python -m benchmarks.growth --help.

Each command and size runs in a process of its own, on texts of 30 words drawn at random, with a random model so small
that everything but the forward pass shows. Seconds are processor time and memory is the peak, of the process and its
children. The exponent is the slope of both logarithms between the two largest sizes, from which the smallest is taken,
since it is mostly the start: 1 is linear, and n log n is 1.1 from 10,000 to 100,000.
"""

import argparse
import json
import math
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from datetime import date
from multiprocessing import Process
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.kills import make_model

if TYPE_CHECKING:
    import pandas as pd

UNSEEN, WORDS = 64, 30
DETECTORS = "--detectors min_k,min_k_pp,surp"
PLAIN = f"{DETECTORS} --model MODEL --device cpu --cache none"
RUN = f"--data TEXTS {PLAIN} --unseen UNSEEN --placebo none --audit-repeats 1 --epochs 1"
READ = (
    "from fsd.data.near_duplicates import families; from fsd.data.readers import read_files; "
    "documents = read_files(['TEXTS']); groups = families(documents)"
)
COMMANDS = {
    "score": f"-m pipelines score --data TEXTS {PLAIN} --out OUT.parquet",
    "score in shards": f"-m pipelines score --data TEXTS {DETECTORS} --model MODEL --device cpu --out OUT",
    "detect": "-m pipelines detect TEXTS --adapter models:/fsd-arxiv/1 --device cpu --out OUT.parquet --same-source",
    "detect in shards": "-m pipelines detect TEXTS --adapter models:/fsd-arxiv/1 --device cpu --out OUT",
    "run": f"-m pipelines run {RUN}",
    "tune": f"-m pipelines tune {RUN} --trials 5 --folds 2 --repeats 1 --storage journal:OUT.log",
    "contamination": "-m pipelines contamination TEXTS --model MODEL --device cpu --cache none --known OTHERS",
    "overlap": "-m pipelines overlap TEXTS TEXTS --out OUT.parquet",
    "near-duplicates": f"-c {READ}",
    "blind classifier": f"-c {READ}; from fsd.text_audit.audit import blind; "
    "blind([d.text for d in documents], [bool(d.member) for d in documents], groups)",
    "audit": f"-c {READ}; from fsd.data.splitting import Split; from fsd.text_audit.audit import audit; "
    "audit(Split([], [], documents))",
}
COLUMNS = ["command", "texts", "seconds", "MiB", "wall"]


def prepare(folder: Path, sizes: Iterable[int]) -> None:
    """Model and texts, in a process of its own: the peak of a child counts what its parent held when it began."""
    make_model(folder / "model", 0, hidden=16, layers=1, context=512)
    rows(folder / "unseen.jsonl", UNSEEN, seed=1)
    for count in sizes:
        rows(folder / f"{count}.jsonl", count)
        rows(folder / f"others-{count}.jsonl", count, seed=2)


def texts(count: int, seed: int = 0) -> list[str]:
    """Texts of random words."""
    import numpy as np

    from fsd.data import embedded

    vocabulary = np.array(sorted({word for document in embedded.corpus() for word in document.text.split()}))
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(vocabulary, WORDS)) for _ in range(count)]


def rows(path: Path, count: int, seed: int = 0) -> None:
    """Labelled texts; those of another seed, as for the adapter, are non-members."""
    values = enumerate(texts(count, seed))
    lines = (json.dumps({"text": text, "label": int(seed == 0 and at % 2)}) + "\n" for at, text in values)
    path.write_text("".join(lines), encoding="utf-8")


def measured(name: str, count: int, folder: Path) -> tuple[float, float]:
    """Processor seconds, and MiB at the peak, of a command on some texts."""
    own = folder / f"{name.replace(' ', '_')}-{count}"
    words = {
        "TEXTS": f"{folder}/{count}.jsonl",
        "OTHERS": f"{folder}/others-{count}.jsonl",
        "UNSEEN": f"{folder}/unseen.jsonl",
        "MODEL": f"{folder}/model",
        "OUT": str(own),
    }
    command = COMMANDS[name]
    for word, value in words.items():
        command = command.replace(word, value)
    arguments = ["-c", command[3:]] if command.startswith("-c") else command.split()
    cache = tempfile.mkdtemp(prefix="cache-", dir=folder)
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1]), "OMP_WAIT_POLICY": "passive", "FSD_CACHE": cache}
    with (folder / "log").open("a") as log:
        process = subprocess.Popen([sys.executable, *arguments], cwd=folder, env=env, stdout=log, stderr=log)
        _, status, used = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{name} of {count} texts failed:\n{(folder / 'log').read_text()[-2000:]}")
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 2**10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1000, 10_000, 100_000], help="numbers of texts")
    parser.add_argument("--commands", nargs="+", default=list(COMMANDS), choices=list(COMMANDS), metavar="NAME")
    parser.add_argument("--figure", type=Path, help="write a figure, .png")
    parser.add_argument("--table", type=Path, help="add the numbers to this CSV file, whose earlier rows are drawn too")
    options = parser.parse_args()
    print(f"{date.today()}, {platform.machine()}, {os.cpu_count()} CPUs; processor seconds and peak MiB")
    found = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        own = Process(target=prepare, args=(folder, {1000, *options.sizes}))
        own.start()
        own.join()
        if {"detect", "detect in shards"} & set(options.commands):
            measured("run", 1000, folder)  # registers the adapter
        for each in options.commands:
            for count in sorted(options.sizes):
                begun = time.perf_counter()
                seconds, peak = measured(each, count, folder)
                found.append((each, count, seconds, peak, time.perf_counter() - begun))
                print(f"{each:<18}{count:>10,}{seconds:>10.1f} s{peak:>10.0f} MiB", flush=True)
    import pandas as pd

    table = pd.DataFrame(found, columns=COLUMNS)
    if options.table:
        if options.table.exists():
            table = pd.concat([pd.read_csv(options.table), table])
        table.to_csv(options.table, index=False)
    for each, own in table.sort_values("texts").groupby("command", sort=False):
        if len(own) > 2:
            a, b, c = own[COLUMNS[1:4]].to_numpy()[[0, -2, -1]]
            power = math.log((c - a)[1] / (b - a)[1]) / math.log((c - a)[0] / (b - a)[0])
            print(f"{each:<18} seconds ~ texts^{power:.2f}, memory {(c - b)[2] / (c - b)[0] * 2**10:+.1f} KiB a text")
    if options.figure:
        draw(table, options.figure)


def draw(table: "pd.DataFrame", path: Path) -> None:
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.8), layout="constrained")
    for axis, column, what in zip(
        figure.subplots(1, 2), ("seconds", "MiB"), ("processor seconds", "peak MiB"), strict=True
    ):
        axis.set_prop_cycle(color=colormaps["tab20"].colors[::2] + colormaps["tab20"].colors[1::2])
        for name, own in table.groupby("command", sort=False):
            axis.loglog(own["texts"], own[column], "o-", label=name, markersize=4)
        axis.set(xlabel="texts", ylabel=what)
        axis.grid(alpha=0.3)
    figure.axes[1].legend(fontsize=8, bbox_to_anchor=(1, 1))
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
