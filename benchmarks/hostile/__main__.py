"""Hostile command lines, drawn from a seed: every command, every flag by its declared type, every kind of broken file.

`python -m benchmarks.hostile --count 1000 --seed 1` runs each in a process forked from this one, in a folder of its
own, without network, with limits of time and memory. It prints how they ended, by command, and each finding with the
command line: a traceback, no end, a refusal of more than one line, an exit code that means nothing, a secret that is
shown or stored, files where none should be, an answer that cannot be right. `--odd 300` adds lines in the
circumstances of odd.py, `--scenes 300` those of scenes.py. `--only 17 --folder F` runs one again and keeps its folder.
"""

import argparse
import contextlib
import faulthandler
import functools
import gc
import gzip
import json
import os
import random
import re
import resource
import shlex
import shutil
import signal
import socket
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import Field, dataclass
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, NoReturn, get_args, get_origin
from unittest import mock

import yaml

from benchmarks import kills
from benchmarks.hostile import odd
from benchmarks.hostile.case import Case
from benchmarks.hostile.counts import EXPECTED, values_of, wrong_answer
from benchmarks.hostile.scenes import SCENES

SECRET = "s3cr3t-c4n4ry"
REMARKS = r"\[\d/\d\] |adapter: it has no SHA256SUMS"
"""Lines that may stand before a refusal: stages, and a remark."""
FILES = "PATH|FILE|DIR|BOOK|TEXTS|CORPUS|MODEL|URI"
"""Words of --help for what names a file or folder."""
SECONDS, MEMORY = 60, 4 * 2**30
"""Seconds of processor time, or of waiting for nothing, and bytes that a command may take."""
UNHEARD = ("stderr closed", "all streams closed", "files of nothing")
"""Circumstances in which nobody can be told what is wrong."""
KINDS = ("traceback", "hang", "exit code", "lines", "secret", "files", "silent")


def _drawn() -> dict[str, Any]:
    """The tables of values.yaml: words that name another list, or are too long to be written there, are replaced."""
    text = Path(__file__).with_name("values.yaml").read_text(encoding="utf-8")
    lists: dict[str, Any] = yaml.safe_load(text.replace("SECRET", SECRET))
    for name in ("URI", "PATH", "URL", "TEXT", "JUNK", "FILES"):
        lists[name] = [value for line in lists[name] for value in line]
    for values in (lists["TEXT"], lists["JUNK"], *lists["environment"].values()):
        values[:] = [{"LONG": "x" * 20_000, "URL": lists["URL"][0]}.get(str(value), value) for value in values]
    lists["environment"]["MLFLOW_TRACKING_URI"] += lists["URL"]
    lists["commands"] = {name: line.replace("TRAINING", lists["training"]) for name, line in lists["commands"].items()}
    return lists


DRAWN = _drawn()
BASE: dict[str, str] = DRAWN["commands"]


@dataclass(frozen=True)
class Flag:
    """A setting of a command: what its type says about its values."""

    name: str
    base: type
    metavar: str
    choices: tuple[Any, ...]
    positional: bool
    several: bool

    @classmethod
    def of(cls, setting: Field[Any]) -> "Flag":
        """Read the annotation."""
        kind, metavar, positional, several = setting.type, "", False, False
        while get_origin(kind):
            if get_origin(kind) is Annotated:
                metavar = next((str(note.metavar) for note in kind.__metadata__ if hasattr(note, "metavar")), metavar)
                positional |= any("POSITIONAL" in repr(note).upper() for note in kind.__metadata__)
                kind = kind.__origin__
            elif get_origin(kind) is Literal:
                return cls(setting.name, str, metavar, get_args(kind), positional, several)
            else:
                several |= get_origin(kind) is tuple
                kind = next(each for each in get_args(kind) if each not in (NoneType, ...))
        return cls(setting.name, kind, metavar, (), positional, several)

    def values(self, rng: random.Random, folder: Path, dry: bool) -> list[str]:
        """One to three hostile values."""
        return [self.value(rng, folder, dry) for _ in range(rng.choice([1, 1, 2, 3]) if self.several else 1)]

    def value(self, rng: random.Random, folder: Path, dry: bool) -> str:
        """A hostile value: mostly one of the type, sometimes of another."""
        names = [name for name in ("URL", "URI", "MODEL", "DAY", "INT", "FLOAT") if name in self.metavar]
        names += ["PATH"] * bool(re.search(FILES, self.metavar))
        if self.base in (int, float):
            names += ["INT" if self.base is int else "FLOAT", *["HUGE"] * dry]
        if rng.random() < 0.1:
            names = ["TEXT", "URL"]
        elif self.choices:
            word = str(rng.choice(self.choices))
            return rng.choice([word, word.upper(), f" {word}", f"{word},{word}", word[:2], f"{word}\n", "", "nan"])
        elif re.search(FILES, self.metavar) and rng.random() < 0.7:
            return spoilt(rng, folder, self)
        return str(rng.choice(DRAWN[rng.choice(names or ["TEXT", "TEXT", "URL"])]))


def settings() -> dict[str, list[Flag]]:
    """The flags of every command, as the command declares them."""
    from fsd.config import settings_of
    from pipelines.__main__ import COMMANDS, main
    from pipelines.common import cli
    from pipelines.common.context import invocation_of

    assert {name.split()[0] for name in BASE} == set(COMMANDS)
    found: dict[str, list[Flag]] = {}

    def spy(config: type, _: str) -> NoReturn:
        found[name] = [Flag.of(each) for part in (config, invocation_of(name)) for each in settings_of(part)]
        raise SystemExit

    with mock.patch.object(cli, "read", spy), mock.patch.object(sys, "argv"), warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*found in sys.modules", RuntimeWarning)  # runpy of what is imported
        for name in BASE:
            sys.argv = ["fsd", *name.split()]
            with contextlib.suppress(SystemExit):
                main()
    return found


def draw(rng: random.Random, flags: Mapping[str, Sequence[Flag]], folder: Path) -> Case:
    """A command line with one to three hostile flags; the files that they name are made in the folder."""
    command = rng.choice(list(flags))
    weights = [3 if re.search(FILES, flag.metavar) else 1 for flag in flags[command]]
    chosen = rng.sample(flags[command], rng.choice([1, 1, 1, 2, 3]), counts=weights)
    dry = bool({command, *(flag.name for flag in chosen)} & {*DRAWN["planned"]}) or rng.random() < 0.6
    start, own, file = list[str](), dict[str, list[str]](), list[str]()
    for word in shlex.split(BASE[command]):
        last = own.setdefault(word, []) if word.startswith("--") else [*own.values(), start][len(own) - 1]
        last += [word] * (not word.startswith("--"))
    for flag in chosen:
        switched = rng.choice([[], [], ["true"], ["0"]])
        hostile = switched if flag.base is bool else flag.values(rng, folder, dry)
        name = f"--{flag.name.replace('_', '-')}"
        if flag.name == "dry_run":
            continue
        if flag.positional:
            at = [each.name for each in flags[command] if each.positional].index(flag.name)
            start[at : None if flag.several else at + 1] = hostile
        elif flag.name != "config" and rng.random() < 0.1:
            written = rng.choice([hostile, hostile[0] if hostile else True, rng.choice(DRAWN["JUNK"])])
            file.append(f"{name[2:]}: {json.dumps(written)}")
            own.pop(name, None)
        elif hostile and rng.random() < 0.5:
            own[f"{name}={hostile[0]}"] = hostile[1:]
            own.pop(name, None)
        else:
            own[name] = hostile
    if file:
        (folder / "hostile.yaml").write_text("\n".join(file), errors="surrogatepass")
        own["--config"] = ["hostile.yaml"]
    words = [*start, *(word for flag, values in own.items() for word in (flag, *values)), *["--dry-run"] * dry]
    environment = {}
    if rng.random() < 0.1:
        name = rng.choice(list(DRAWN["environment"]))
        environment[name] = rng.choice(DRAWN["environment"][name])
    return Case(command, words, environment)


def oddly(rng: random.Random, case: Case, folder: Path) -> Case:
    """The case with odd files in place of those that are drawn, or a circumstance, or a variable of the environment."""
    words, environment, circumstance = list(case.words), dict(case.environment), ""
    kinds = rng.sample(["file", "environment", "circumstance"], rng.choice([1, 1, 2]), counts=[3, 1, 2])
    for kind in dict.fromkeys(kinds):
        if kind == "environment":
            name = rng.choice(list(odd.ENVIRONMENT))
            environment[name] = rng.choice(odd.ENVIRONMENT[name])
        elif kind == "circumstance":
            circumstance = rng.choice(odd.OF_ANY)
        else:
            # In place of one that is there, or of a file inside a folder such as a model.
            named = [at for at, word in enumerate(words) if is_there(folder / word) and word.strip("./")]
            if not named:
                continue
            at = rng.choice(named)
            good = folder / words[at]
            bad = folder / f"bad-odd-{at}{good.suffix}"
            if good.is_dir() and rng.random() < 0.9:
                shutil.copytree(good, bad, symlinks=True)
                inside = sorted(path for path in bad.rglob("*") if path.is_file())
                odd.odd_file(rng, rng.choice(inside or [bad / "x"]))
            else:
                odd.odd_file(rng, bad)
            words[at] = bad.name
    return Case(case.command, words, environment, circumstance, "odd")


def is_there(path: Path) -> bool:
    """Whether a word names a file or folder; it may be longer than any name."""
    try:
        return path.exists()
    except OSError:
        return False


def spoilt(rng: random.Random, folder: Path, flag: Flag) -> str:
    """The name of a new file or folder in the folder: a good one that fits the flag, with one or two faults."""
    fitting = {"MODEL": ["model", "tiny.gguf"], "URI": ["version"], "DIR": ["canaries"], "BOOK": ["book.txt"]}
    names = next((names for key, names in fitting.items() if key in flag.metavar), None)
    names = names or {"config": ["settings.yaml"], "frequencies": ["counts.npz"]}.get(flag.name, DRAWN["files"])
    good = folder / rng.choice(names)
    bad = folder / f"bad{len(list(folder.glob('bad*')))}{good.suffix}"
    if good.is_dir() and rng.random() < 0.9:
        shutil.copytree(good, bad)
        inside = sorted(path for path in bad.rglob("*") if path.is_file())
        for file in rng.sample(inside, rng.choice([1, 1, 2])):
            spoil(file, file.read_bytes(), rng)
        for sums in bad.rglob("SHA256SUMS") if rng.random() < 0.7 else ():
            sums.unlink()
        return f"{bad.name}/adapter" if good.name == "version" else bad.name
    content = b"" if good.is_dir() else good.read_bytes()
    if good.suffix not in (".gguf", ".npz") and rng.random() < 0.15:
        bad, content = bad.with_name(bad.name + ".gz"), gzip.compress(content)
    spoil(bad, content, rng)
    return bad.name


def spoil(file: Path, content: bytes, rng: random.Random) -> None:
    """Put something else in the place of a file: another kind of file, other bytes, or other values in its JSON."""
    file.unlink(missing_ok=True)
    at = rng.randrange(len(content) + 1)
    faults: list[Callable[[], object]] = [
        lambda: os.mkfifo(file),
        file.mkdir,
        lambda: file.symlink_to(rng.choice(["/dev/zero", "nothing", file.name, "/proc/self/mem", "/dev/random"])),
        lambda: (file.write_bytes(content), file.chmod(0)),
    ]
    others = [
        *(word.encode() for word in DRAWN["FILES"]), content[:at], content + content[:at], b"\xef\xbb\xbf" + content,
        content.replace(b"\n", b"\r\n"), content.replace(b" ", b"\xe2\x80\xa8"), gzip.compress(content), b"PAR1",
        content[:at] + b"\xff\xe9" + content[at + 2 :], content[:at] + b"\xff" * 400 + content[at + 400 :], bytes(4096),
        rng.randbytes(2000), content.decode("latin-1").encode("utf-16"), b"[" * 100_000, b'{"a":' * 50_000,
        b"x" * 5_000_000,
    ]  # fmt: skip
    faults += [functools.partial(file.write_bytes, other) for other in others]
    values = {".json": document_with_junk, ".jsonl": rows_with_junk, ".csv": rows_with_junk, ".parquet": rows_with_junk}
    if file.suffix in values and rng.random() < 0.7:
        values[file.suffix](file, content, rng)
    else:
        rng.choice(faults)()


def document_with_junk(file: Path, content: bytes, rng: random.Random) -> None:
    """JSON with one value replaced, or left out."""
    document = json.loads(content or "{}")
    inside, key = rng.choice(list(places(document)) or [({}, "x")])
    inside[key] = rng.choice(DRAWN["JUNK"])
    if rng.random() < 0.2:
        del inside[key]
    file.write_text(json.dumps(document))


def rows_with_junk(file: Path, content: bytes, rng: random.Random) -> None:
    """A table of which one row, or several, have another value in a column or lack it."""
    import pandas as pd

    lines = content if file.suffix == ".jsonl" else (file.parent / "data.jsonl").read_bytes()
    rows = [json.loads(line) for line in lines.split(b"\n") if line]
    column, value = rng.choice([*rows[0], "period", "source", "context", "id", "variants"]), rng.choice(DRAWN["JUNK"])
    for row in rng.choice([rows, rows[:1], rows[-1:], rows[1::2]]):
        row[column] = value
        if rng.random() < 0.2:
            del row[column]
    if file.suffix != ".jsonl":
        with contextlib.suppress(Exception):  # what no table can hold
            frame = pd.DataFrame(rows)
            frame.to_csv(file, index=False) if file.suffix == ".csv" else frame.to_parquet(file)
            return
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every place in a JSON document: what it is in, and its key or number."""
    for key in range(len(value)) if isinstance(value, list) else list(value) if isinstance(value, dict) else ():
        yield value, key
        yield from places(value[key])


def prepare(folder: Path) -> None:
    """What the command lines of BASE need: texts, models, an adapter with its run, canaries, tables."""
    import gguf
    import numpy as np
    import pandas as pd

    kills.prepare(folder)
    kills.write(folder / "new.jsonl", [{"text": f"{' '.join(kills.WORDS[i:])} {i} and {3 * i}"} for i in range(12)])
    frame = pd.read_json(folder / "data.jsonl", lines=True, dtype=False)
    frame.to_csv(folder / "data.csv", index=False)
    frame.to_parquet(folder / "data.parquet")
    (folder / "book.txt").write_text(" ".join(kills.WORDS * 30))
    (folder / "settings.yaml").write_text("training:\n  epochs: 1\nseed: 3\n")
    writer = gguf.GGUFWriter(folder / "tiny.gguf", "llama")
    writer.add_context_length(64)
    writer.add_tensor("token_embd.weight", np.zeros((32, 32), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    for line in (BASE["run"], f"{BASE['run']} --seed 1"):
        assert kills.run("run", line, folder) == 0, kills.log(folder)
    line = f"--data data.jsonl --model model --detectors loss --out {EXPECTED}"
    assert kills.run("score", line, folder) == 0, kills.log(folder)
    assert kills.run("frequencies", "--corpus dump.jsonl --out counts.npz", folder) == 0, kills.log(folder)
    (version, *_) = folder.glob("mlruns/*/models/*/artifacts/artifacts")
    shutil.copytree(version, folder / "version")
    for copy in folder.glob("mlruns/**/code"):  # of this package, for serving
        shutil.rmtree(copy)
    (folder / "home").mkdir()


def run(case: Case, folder: Path) -> int | None:
    """Run a command line in a forked process, or in two at once; the worst exit code, or None if one had no end."""
    suffixes = ["", "2"] if case.twice else [""]
    children = [kills.forked(functools.partial(run_here, case, folder, suffix)) for suffix in suffixes]
    codes = [_end_of(child) for child in children]
    return None if None in codes else max(filter(None, codes), default=0) or min(filter(None, codes), default=0)


def _end_of(child: int) -> int | None:
    """Exit code of a process, or None if it took too long: by what it did, as others may use the processors, too."""
    begun = time.monotonic()
    ended, status = 0, 0
    while not ended and not _hangs(child, time.monotonic() - begun):
        ended, status = os.waitpid(child, os.WNOHANG)
        time.sleep(0.01)
    with contextlib.suppress(ProcessLookupError):
        if not ended:
            os.kill(child, signal.SIGUSR1)  # it says where it is
            time.sleep(1)
        os.killpg(child, signal.SIGKILL)
    if not ended:
        os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status) if ended else None
    return None if code in (-signal.SIGKILL, -signal.SIGXCPU) else code  # the limits of processor time


def _hangs(child: int, seconds: float) -> bool:
    """Whether a process has computed for too long, or waited for something else than a processor.

    Not by the limit of the system: on a busy machine that counts whole ticks, of which the process had a part.
    """
    busy, active = 0, 0
    try:
        for thread in Path(f"/proc/{child}/task").iterdir():
            computed, queued, _ = map(int, (thread / "schedstat").read_text().split())
            busy += computed
            active = max(active, computed + queued)
    except (OSError, ValueError):
        return seconds > 4 * SECONDS  # it is ending, or this is no Linux
    return max(busy / 10**9, seconds - active / 10**9) > SECONDS


def run_here(case: Case, folder: Path, suffix: str = "") -> int:
    """Run a command line in this process, with limits and without network."""
    os.setsid()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (10 * SECONDS, 10 * SECONDS + 5))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.environ |= {"HOME": str(folder / "home"), "FSD_API_KEY": SECRET, "OPENAI_API_KEY": SECRET, "HF_TOKEN": SECRET}
    lookup = socket.getaddrinfo

    def local(host: Any, *rest: Any, **options: Any) -> Any:
        if host not in ("127.0.0.1", "localhost", b"127.0.0.1"):
            raise socket.gaierror(socket.EAI_NONAME, "no network")
        return lookup(host, *rest, **options)

    socket.getaddrinfo = local
    places = (folder / "hang.txt").open("w")
    faulthandler.register(signal.SIGUSR1, places)
    faulthandler.register(signal.SIGXCPU, places, chain=True)
    if case.is_new:
        _begin_anew(case, folder)
    if case.circumstance:
        _begin_with(odd.CIRCUMSTANCES[case.circumstance])
    return kills.run_here(case.command, shlex.join(case.words), folder, environment=case.environment, suffix=suffix)


def _begin_anew(case: Case, folder: Path) -> NoReturn:
    """Become a new interpreter, which reads its environment."""
    kills.surround(folder, case.environment)
    os.environ["PYTHONPATH"] = str(Path(__file__).parents[2])
    if case.circumstance:
        odd.CIRCUMSTANCES[case.circumstance]()
    os.execv(sys.executable, [sys.executable, "-m", "pipelines", *case.command.split(), *case.words])


def _begin_with(circumstance: Callable[[], object]) -> None:
    """Let a circumstance hold when the command begins, after its streams are files and its folder is the case's."""
    from pipelines import __main__ as program

    begin = program.main

    def main() -> None:
        circumstance()
        begin()

    program.main = main


def findings(case: Case, code: int | None, folder: Path, before: Mapping[str, object]) -> dict[str, str]:
    """What is wrong with how a command ended: kind → what came."""
    errors = (folder / "log.txt").read_text(errors="replace")
    if case.twice and "error: " not in errors:
        errors = (folder / "log2.txt").read_text(errors="replace")
    found = wrong_end(case, code, folder, errors)
    now = snapshot(folder.parent)
    written = [name for name in now if now[name] and now[name] != before.get(name)]
    wrong = [*written, *(f"{name} gone" for name in before if name not in now)]
    allowed = tuple(own_files(case, code, folder))
    wrong = [name for name in wrong if not name.removeprefix("case/").startswith(allowed)]
    wrong += map(str, (folder / "temporary").iterdir())
    if wrong:
        found["files"] = ", ".join(wrong[:4])
    places = [folder / "log.txt", folder / "printed.txt", *(folder.parent / name for name in written)]
    places = [place for place in places if place.is_file() and place.name != "sealed.json"]  # it holds a secret seed
    if kept := [place.name for place in places if SECRET.encode() in place.read_bytes()]:
        found["secret"] = ", ".join(kept)
    return found


def wrong_end(case: Case, code: int | None, folder: Path, errors: str) -> dict[str, str]:
    """What is wrong with exit code, messages and answer."""
    lines = [line for line in errors.split("\n") if line and not re.match(REMARKS, line)]
    if code is None:
        stack = re.findall(r'File "\S*?([^/"]+/[^/"]+)", line (\d+) in', (folder / "hang.txt").read_text())
        return {"hang": " < ".join(map(":".join, stack[:6]))}
    if "Traceback (most recent call last)" in errors:
        place = re.findall(r'File "\S*?((?:fsd|pipelines|detectors)/[^"]+", line \d+)', errors)
        return {"traceback": f"{lines[-1][:200]} ({place[-1] if place else '?'})"}
    if code not in (0, 1, 2, 130, 141, 143):
        return {"exit code": str(code)}
    if case.circumstance in UNHEARD:
        return {}
    if (code == 2 and (len(lines) != 1 or not lines[0].startswith("error: "))) or (code == 1 and not lines):
        return {"lines": " | ".join(lines)[:300]}
    wrong = "" if code else wrong_answer(case, folder) or case.wrong(folder)
    return {"silent": wrong} if wrong else {}


def own_files(case: Case, code: int | None, folder: Path) -> list[str]:
    """How the files begin that a command may write, or change, when it ends so."""
    is_dry = "--dry-run" in case.words
    own = ["cache", "temporary", *["log"] * (not is_dry)]  # log: trials, which are opened first
    own += ["home/.cache/matplotlib"]  # the fonts that it has found
    own += map(os.path.normpath, values_of(case.words, "protocol"))  # which a dry run writes
    written = folder / "hostile.yaml"
    if code != 2 and not is_dry:
        own += ["mlruns", "bad", *filter(None, map(stem, [*case.words, *case.environment.values()]))]
        own += [os.path.normpath(value) for flag in ("out", "report", "cache") for value in values_of(case.words, flag)]
        own += re.findall(r"(?m)^cache: \W*(\w+)", written.read_text(errors="replace")) if written.exists() else []
    if case.circumstance or case.twice:  # one of the two may write what the other one refuses
        own += ["mlruns", "bad", "fsd-run-", *filter(None, map(stem, case.words))]
    if case.kind == "stores":
        own += ["mlruns"]  # MLflow mends what it opens
    return own


def stem(word: str) -> str:
    """The name of a file that an argument may name, without its ending."""
    path = re.sub("^.*(=|///?|journal:)", "", word)
    return os.path.normpath(path).partition("/")[0].partition(".")[0]


def snapshot(folder: Path) -> dict[str, object]:
    """Size and time of every file below a folder, without those of the benchmark; None for folders."""
    found: dict[str, object] = {}
    for place, folders, files in os.walk(folder):
        found |= {os.path.relpath(f"{place}/{name}", folder): None for name in folders}
        for name in set(files) - {"log.txt", "printed.txt", "log2.txt", "printed2.txt", "hang.txt"}:
            status = os.lstat(f"{place}/{name}")
            found[os.path.relpath(f"{place}/{name}", folder)] = status.st_size, status.st_mtime_ns
    return found


def restore(folder: Path, template: Path, before: Mapping[str, object]) -> None:
    """Make a folder what it was; copying hundreds of files for each command line would take longer than running it."""
    now = snapshot(folder)
    for name in sorted((name for name in now if now[name] != before.get(name, "new")), reverse=True):
        linked = (folder / name).is_symlink()
        (folder / name).unlink() if now[name] or linked else (folder / name).rmdir()
    for name in (name for name in before if before[name] != now.get(name, "gone")):
        if before[name]:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(template / name, folder / name)
        else:
            (folder / name).mkdir(parents=True, exist_ok=True)


def main() -> None:
    """Draw the command lines, run them, and print table and findings."""
    arguments = read_arguments()
    kills.import_libraries()
    gc.freeze()  # or a collection in each process would copy all of it
    flags = {name: found for name, found in settings().items() if name in arguments.commands}
    outcomes = {name: Counter[str]() for name in flags}
    kinds: dict[str, Counter[str]] = {}
    bad = 0
    with tempfile.TemporaryDirectory(prefix="hostile-") as temporary:
        folder, template = Path(temporary) / "cases" / "case", Path(temporary) / "template"
        prepare(template / "case")
        shutil.copytree(template, folder.parent)
        before = snapshot(folder.parent)
        for directory in (Path(temporary), folder.parent, folder):
            directory.chmod(0o755)  # another user may read it
        total = arguments.count + arguments.odd
        for number in arguments.only or range(total + arguments.scenes):
            rng = random.Random(f"{arguments.seed}-{number}")
            case = staged(rng, folder, arguments.kinds) if number >= total else draw(rng, flags, folder)
            if arguments.count <= number < total:
                case = oddly(rng, case, folder)
            drawn = snapshot(folder.parent)
            begun = time.monotonic()
            code = run(case, folder)
            found = findings(case, code, folder, drawn)
            if (took := time.monotonic() - begun) > 15:
                print(f"{number}: {took:.0f} s: {str(case)[:300]!r}", file=sys.stderr, flush=True)
            ended = {0: "done", 1: "failed", 2: "refused"}.get(code, "other") if code is not None else "other"
            outcomes[case.command].update([ended, *found])
            kinds.setdefault(case.kind or "flags", Counter()).update([ended, *found])
            for kind, what in found.items():
                print(f"{number}: {kind}: {what}\n    {str(case)[:2000]!r}", flush=True)
            if found and arguments.folder:
                with contextlib.suppress(shutil.Error):  # pipes are not copied
                    shutil.copytree(folder, arguments.folder / str(number), symlinks=True, dirs_exist_ok=True)
            bad += bool(found)
            restore(folder.parent, template, before)
    print(f"\nseed {arguments.seed}")
    for title, rows in (("command", outcomes), ("kind", kinds)):
        print_table(title, {**rows, "all": sum(rows.values(), Counter())})
    sys.exit(bool(bad))


def read_arguments() -> argparse.Namespace:
    """The command line of the benchmark itself."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, nargs="+", default=None, help="numbers of command lines")
    parser.add_argument("--odd", type=int, default=0, help="further lines, in odd circumstances or of odd files")
    parser.add_argument("--scenes", type=int, default=0, help="further lines, of the scenes of people and attackers")
    parser.add_argument("--kinds", nargs="+", default=list(SCENES), choices=list(SCENES), help="which scenes")
    parser.add_argument("--commands", nargs="+", default=list(BASE), choices=list(BASE))
    parser.add_argument("--folder", type=Path, help="where the folders of the findings are kept")
    return parser.parse_args()


def staged(rng: random.Random, folder: Path, kinds: Sequence[str]) -> Case:
    """The case of a scene."""
    name = rng.choice(kinds)
    return SCENES[name](rng, folder)._replace(kind=name)


def print_table(title: str, rows: Mapping[str, Counter[str]]) -> None:
    """Print how the lines ended, as Markdown."""
    ends = ["done", "refused", "failed", "other", *KINDS]
    print(f"\n| {title} | {' | '.join(ends)} |\n|---{'|---:' * len(ends)}|")
    for name, row in rows.items():
        print(f"| {name} | {' | '.join(str(row[end]) for end in ends)} |")


if __name__ == "__main__":
    main()
