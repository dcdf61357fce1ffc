"""Bad input to every command: exit code 2, one line that names what must hold, no traceback, nothing written.

The table of all cases, docs/bad_input.md, is written by

    BAD_INPUT_TABLE=docs/bad_input.md python -m pytest tests/pipelines/test_bad_input.py
"""

import gzip
import json
import os
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines import __main__ as program

pytestmark = pytest.mark.filterwarnings("ignore:.*found in sys.modules:RuntimeWarning")  # runpy of what is imported

LONG = "x" * 300
BASE = {
    "run": "--data {good.jsonl} --model {tiny} --placebo none",
    "score": "--data {good.jsonl} --model {tiny} --out out.csv --detectors loss",
    "detect": "{unlabelled.jsonl} --adapter nowhere",
    "tune": "--data {good.jsonl} --model {tiny} --placebo none --validation 0.4 --storage journal:trials.log",
    "study": "",
    "collect": "--domain arxiv --limit 5 --after 2024-01-01",
    "pretrain": "--members {good.jsonl} --background {more.jsonl} --out out --layers 1 --hidden-size 32 --passes 1",
    "frequencies": "--corpus {good.jsonl} --out t.npz --model {tiny}",
    "canary make": "--data {good.jsonl} --out out",
    "canary test": "{empty_folder} --model {tiny}",
    "extract": "{book.txt} --model {tiny}",
    "adapter-audit": "--data {good.jsonl} --model {tiny} --adapter nowhere",
    "contamination": "{unlabelled.jsonl} --model {tiny}",
}
"""Arguments of a command beside those of a case, which replace them."""
FORM = re.compile(r"error: .*\b(must|may|cannot be computed|Unrecognized options|Missing value|too few)\b.*\n")
LEFT = {"tune": {"trials.log"}}
"""What a command may leave: the storage of the trials, which is opened, empty, before the model is loaded."""


class Case(NamedTuple):
    """A command line, with files of the fixture `inputs` in braces, and a part of its message."""

    command: str
    arguments: str
    message: str

    def __str__(self) -> str:
        return f"{self.command} {self.arguments.replace(LONG, 'LONG')}"

    def words(self, inputs: Path, tiny: Path) -> list[str]:
        """The arguments after `fsd`."""
        given = set(re.findall(r"--[a-z-]+", self.arguments))
        base = BASE.get(self.command, "")
        flags = [f"{flag} {value}" for flag, value in re.findall(r"(--[a-z-]+) (\S+)", base) if flag not in given]
        positional = base.partition(" --")[0] if self.arguments.startswith("--") and not base.startswith("--") else ""
        line = " ".join([self.command, positional, *flags, self.arguments])
        places = {"tiny": tiny, "inputs": inputs}
        return [
            re.sub(r"\{(.+?)\}", lambda name: str(places.get(name[1], inputs / name[1])), word.replace("LONG", LONG))
            for word in shlex.split(line)
        ]


# Data files, wrong in themselves: content → part of the message

ROW = {"text": "one two three", "label": 1}


def _lines(*rows: object) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


DEEP = 100_000
FILES: dict[str, tuple[bytes, str]] = {
    "empty.jsonl": (b"", "must have at least one row"),
    "blank.jsonl": (b"\n \n\t\n", "must have at least one row"),
    "binary.jsonl": (bytes(range(256)) * 8, "must be"),
    "zeros.jsonl": (bytes(4096), "must be encoded in UTF-8"),
    "utf16.jsonl": ('{"text": "a"}\n'.encode("utf-16"), "must be encoded in UTF-8"),
    "latin.csv": ("text,label\ncafé au lait,1\n".encode("latin-1"), "must be encoded in UTF-8"),
    "utf16.csv": ("text,label\na b c,1\n".encode("utf-16"), "must be encoded in UTF-8"),
    "half.jsonl": (b'{"text": "one two", "label": 1}\n{"text": "three', "half.jsonl:2: must be one JSON object"),
    "single_quotes.jsonl": (b"{'text': 'one two', 'label': 1}\n", "must be one JSON object a line"),
    "prose.jsonl": (b"Not JSON at all.\n", "must be one JSON object a line"),
    "deep.jsonl": (b"[" * DEEP, "must be one JSON object a line"),
    "deep_row.jsonl": (b'{"text": "a b", "label": 1, "x": ' + b"[" * DEEP, "must be one JSON object"),
    "number.jsonl": (b"3\n", "a row must be a JSON object; got 3"),
    "null.jsonl": (b"null\n", "a row must be a JSON object; got None"),
    "lists.json": (b"[[1, 2], [3, 4]]", "a row must be a JSON object; got [1, 2]"),
    "strings.json": (b'["one", "two"]', "a row must be a JSON object; got 'one'"),
    "no_rows.json": (b"[]", "must have at least one row"),
    "no_text.jsonl": (_lines({"words": "one two", "label": 1}), "text must be in column"),
    "text_null.jsonl": (_lines({**ROW, "text": None}), "text must be a string that is not blank; got None"),
    "text_number.jsonl": (_lines({**ROW, "text": 7}), "text must be a string that is not blank; got 7"),
    "text_empty.jsonl": (_lines({**ROW, "text": ""}), "text must be a string that is not blank; got ''"),
    "text_list.jsonl": (_lines({**ROW, "text": ["a"]}), "text must be a string that is not blank"),
    "text_surrogate.jsonl": (b'{"text": "one \\ud800 two", "label": 1}\n', "text must be valid Unicode"),
    "label_two.jsonl": (_lines({**ROW, "label": 2}), "label must be 1 or true (member), 0 or false"),
    "label_negative.jsonl": (_lines({**ROW, "label": -1}), "label must be 1 or true"),
    "label_word.jsonl": (_lines({**ROW, "label": "member"}), "label must be 1 or true"),
    "label_half.jsonl": (_lines({**ROW, "label": 0.5}), "label must be 1 or true"),
    "label_list.jsonl": (_lines({**ROW, "label": [1]}), "label must be 1 or true"),
    "label_nan.jsonl": (b'{"text": "one two", "label": NaN}\n', "label must be 1 or true"),
    "label_empty.jsonl": (_lines({**ROW, "label": ""}), "label must be 1 or true"),
    "date_word.jsonl": (_lines({**ROW, "date": "yesterday"}), "date must begin as year-month-day"),
    "date_month.jsonl": (_lines({**ROW, "date": "2023-13-01"}), "date must begin as year-month-day"),
    "group_list.jsonl": (_lines({**ROW, "group": ["a"]}), "group must be a string or a number"),
    "group_object.jsonl": (_lines({**ROW, "group": {"a": 1}}), "group must be a string or a number"),
    "twice.csv": (b"text,label,text\na b,1,c d\n", "columns must have different names"),
    "header.csv": (b"text,label\n", "must have at least one row"),
    "ragged.csv": (b"text,label\na b,1\nc d,0,7\n", "a row must have 2 fields like the header; got 3"),
    "quote.csv": (b'text,label\n"a b,1\n', "must be valid CSV"),
    "no_text.csv": (b"words,label\na b,1\n", "text must be in column"),
    "blank_cell.csv": (b"text,label\n,1\n", "text must be a string that is not blank"),
    "label.tsv": (b"text\tlabel\na b\tyes\n", "label must be 1 or true"),
    "not.parquet": (b"PAR1 no", "must be a Parquet file"),
    "empty.parquet": (b"", "must be a Parquet file"),
    "not.jsonl.gz": (b"not gzip", "must be a whole gzip file"),
    "half.jsonl.gz": (gzip.compress(b'{"text": "a b"}\n' * 900)[:40], "must be a whole gzip file"),
    "not.jsonl.zst": (b"not zst", "must be a whole zstd file"),
    "not.csv.bz2": (b"not bz2", "must be a whole bz2 file"),
    "text.pdf": (b"%PDF-1.4", "must end in"),
    "text.docx": (b"PK", "must end in"),
    "noending": (_lines(ROW), "must end in"),
}

CONFIGS: dict[str, tuple[bytes, str]] = {
    "unknown.yaml": (b"epoch: 2\n", "keys must be flags of the command; got 'epoch'; nearest is epochs"),
    "unknown_in_group.yaml": (b"training: {rang: 2}\n", "keys of training must be flags of the command; got 'rang'"),
    "unknown.toml": (b"lerning-rate = 1e-3\n", "nearest is learning-rate"),
    "word.yaml": (b"epochs: three\n", "epochs must be a whole number; got 'three'"),
    "half_number.toml": (b"epochs = 1.5\n", "epochs must be a whole number; got '1.5'"),
    "list.yaml": (b"epochs: [1, 2]\n", "epochs must be one value; got a list"),
    "nothing.yaml": (b"epochs:\n", "epochs must be one value; got nothing"),
    "truth.yaml": (b"skip-invalid: perhaps\n", "skip-invalid must be true or false; got 'perhaps'"),
    "choice.yaml": (b"method: lara\n", "method must be one of lora, ia3, adalora; got 'lara'"),
    "nested.yaml": (b"data: [[a]]\n", "data must be a list of single values"),
    "range.yaml": (b"batch-size: 0\n", "batch-size must be greater than 0; got 0"),
    "twice.yaml": (b"seed: 1\nseed: 2\n", "key 'seed' stands twice"),
    "twice.toml": (b"seed = 1\nseed = 2\n", "config must be valid TOML"),
    "two_spellings.yaml": (b"batch-size: 1\nbatch_size: 2\n", "'batch_size' stands twice"),
    "open.yaml": (b"seed: [1\n", "config must be valid YAML"),
    "sequence.yaml": (b"- seed\n", "config must map flags to values"),
    "empty.yaml": (b"", "config must map flags to values"),
    "later.yaml": (b"version: 2\nseed: 1\n", "config must be of version 1"),
    "tune.yaml": (b"command: tune\nseed: 1\n", "config must be of the command run"),
    "itself.yaml": (b"config: other.yaml\n", "keys must be flags of the command; got 'config'"),
    "object.yaml": (b"!!python/object/apply:os.system [echo]\n", "config must be valid YAML"),
    "latin.yaml": ("domain: \xe9\n".encode("latin-1"), "config must be encoded in UTF-8"),
    "config.ini": (b"seed=1\n", "config must be a file that ends in .yaml, .yml, .toml"),
}
"""Configuration files: content → part of the message."""

PATHS: dict[str, str] = {
    "nowhere.jsonl": "must exist; there is no",
    "{folder.jsonl}": "folder",
    "{loop.jsonl}": "loop of links|there is no",
    "{dangling.jsonl}": "must exist; there is no",
    "{unreadable.jsonl}": "must be readable",
    "{pipe.jsonl}": "must exist; there is no",
    "{null.csv}": "must exist; there is no",
    "nowhere/LONG/x.jsonl": "there is no",
    "LONG.jsonl": "there is no|at most 255 bytes",
    "{no_text.parquet}": "text must be in column",
    "{text_null.parquet}": "text must be a string",
    "{text_list.parquet}": "text must be a string",
    "{label_word.parquet}": "label must be 1 or true",
    "{no_rows.parquet}": "must have at least one row",
}
"""Paths that hold no data, and Parquet files, which `inputs` makes."""

# Arguments → a part of the message. The other arguments are those of `BASE`.

CASES: dict[str, str] = {
    "run": r"""
--seed -1 → seed must be at least 0 and below 2**32
--seed 4294967296 → seed must be at least 0 and below 2**32
--seed 1.5 → seed must be a whole number
--seed abc → seed must be a whole number
--seed nan → seed must be a whole number
--seed 99999999999999999999999999 → seed must be at least 0 and below 2**32
--epochs 0 → epochs must be greater than 0
--epochs -1 → epochs must be greater than 0
--epochs 1.5 → epochs must be a whole number
--epochs nan → epochs must be a whole number
--learning-rate nan → learning-rate must be a finite number
--learning-rate inf → learning-rate must be a finite number
--learning-rate 0 → learning-rate must be greater than 0
--learning-rate -0.001 → learning-rate must be greater than 0
--learning-rate fast → learning-rate must be a number
--batch-size 0 → batch-size must be greater than 0
--batch-size -8 → batch-size must be greater than 0
--rank 0 → rank must be greater than 0
--rank -1 → rank must be greater than 0
--alpha 0 → alpha must be greater than 0
--alpha -4 → alpha must be greater than 0
--dropout -0.1 → dropout must be at least 0 and below 1
--dropout 1 → dropout must be at least 0 and below 1
--dropout 1.5 → dropout must be at least 0 and below 1
--dropout nan → dropout must be a finite number
--warmup-steps -1 → warmup-steps must be at least 0
--weight-decay -1 → weight-decay must be at least 0
--weight-decay nan → weight-decay must be a finite number
--weight-decay inf → weight-decay must be a finite number
--unseen 0 → unseen must be a share above 0 and below 1
--unseen 1 → unseen must be a share above 0 and below 1
--unseen 1.5 → unseen must be a share above 0 and below 1
--unseen -0.1 → unseen must be a share above 0 and below 1
--unseen nan → unseen must be a finite number
--unseen inf → unseen must be a finite number
--unseen nowhere.jsonl → data file must exist
--unseen {empty.jsonl} → empty.jsonl must have at least one row
--unseen {folder.jsonl} → a folder must hold .txt files, one text each
--unseen {text_null.jsonl} → text_null.jsonl:1: text must be a string that is not blank
--unseen {good.jsonl} → unseen texts must be non-members; 30 are members, the
--unseen LONG.jsonl → data file must exist
--unseen {nonmembers.jsonl} --split paper → split must be grouped where unseen is a file
--unseen 0.001 → some non-members must be left to train on, in families
--validation -0.1 → validation must be a share from 0 to below 1
--validation 1 → validation must be a share from 0 to below 1
--validation 1.5 → validation must be a share from 0 to below 1
--validation nan → validation must be a finite number
--validation inf → validation must be a finite number
--validation 0.99 → unseen and validation must sum to less than 1, so that
--validation 0.001 → too few families
--split random → split must be one of
--method full → method must be one of
--method lora,ia3 → method must be one of
--domain poems → domain must be one of
--domain '' → domain must not be blank
--domain ../x → domain must be one of
--domain LONG → domain must be one of
--domain wikipedia,arxiv → domain must be one of
--detectors '' → detectors must not be blank
--detectors , → detectors must be all, or names out
--detectors magic → detector must be one of
--detectors loss,magic → detector must be one of
--detectors Loss → detector must be one of
--detectors LONG → detector must be one of
--detectors neighbour → detector neighbour cannot be computed here: no neighbour
--detectors reference → detector reference cannot be computed here: no reference
--settings surp.q=1 → setting of surp must be one of
--settings surp.k=much → surp.k must be of the type of its default 40.0
--settings surp → settings must look like surp.k=30
--settings surp.k → settings must look like surp.k=30
--settings =3 → settings must look like surp.k=30
--settings surp.k= → surp.k must be of the type of its default 40.0
--settings surp.k=null → surp.k must be of the type of its default 40.0
--settings surp.k=[1] → surp.k must be of the type of its default 40.0
--settings surp.k=NaN → surp.k must be in
--settings surp.k=Infinity → surp.k must be in
--settings surp.k=true → surp.k must be of the type of its default 40.0
--settings surp.k=0 → surp.k must be in
--settings surp.k=300 → surp.k must be in
--settings surp.k=-1 → surp.k must be in
--settings surp.entropy=0 → surp.entropy must be above 0
--settings min_k.k=0 → min_k.k must be in
--settings min_k.k=2 → min_k.k must be in
--settings min_k_pp.k=-0.5 → min_k_pp.k must be in
--settings min_k_deviation.k=1.5 → min_k_deviation.k must be in
--settings dc_pdd.cap=0 → dc_pdd.cap must be above 0
--settings dc_pdd.cap=-1 → dc_pdd.cap must be above 0
--settings dc_pdd.first=2 → dc_pdd.first must be of the type of its default True
--settings loss.k=1 → setting of loss must be one of
--settings surp.base.q=1 → setting of surp must be one of
--settings surp.base.k=300 → surp.k must be in
--settings surp.base.=3 → setting of surp must be one of
--settings min_k_deviation.base.k=0.2 → settings of a base score must be of a detector that has
--settings magic.k=1 → settings must be of a detector in use, one of
--detectors loss --settings surp.k=30 → settings must be of a detector in use, one of
--settings → settings must be followed by at least one value
--settings-from nowhere → an adapter must be models:/name@alias
--settings-from models:/none@champion → models:/none@champion must name a registered model; there
--settings-from runs:/none → runs:/ must name a run of
--settings-from {empty_folder} → settings-from must be a model, run or folder with
--settings-from {good.jsonl} → an adapter must be models:/name@alias
--shots 0 → shots must be at least 1
--shots -1 → shots must be at least 1
--shots two → shots must be a whole number
--adapter nowhere → an adapter must be models:/name@alias
--adapter models:/none@champion → models:/none@champion must name a registered model; there
--adapter models:/ → a model's address must be models:/name@alias or
--adapter runs:/abc/adapter → runs:/ must name a run of
--adapter runs:/ → a run's address must be runs:/id or runs:/id/folder
--adapter {empty_folder} → an adapter's folder must hold adapter_config.json
--adapter {good.jsonl} → an adapter must be models:/name@alias
--adapter LONG → names must have at most 255 bytes
--adapter '' → adapter must not be blank
--adapter {loop.jsonl} → an adapter must be models:/name@alias
--placebo nowhere/x/y → model must be embedded, a folder or a hub id
--placebo ./nowhere → model must be embedded, a folder or a hub id
--placebo '' → placebo must not be blank
--placebo LONG → names must have at most 255 bytes
--placebo {empty_folder} → model folder must hold config.json and weights
--model '' → model must not be blank
--model ' ' → model must not be blank
--model ./nowhere → model must be embedded, a folder or a hub id
--model /nowhere → model must be embedded, a folder or a hub id
--model a/b/c → model must be embedded, a folder or a hub id
--model nobody/nothing → model 'nobody/nothing' must be a folder, or a hub id with
--model {empty_folder} → model folder must hold config.json and weights
--model {good.jsonl} → model must be embedded, a folder or a hub id
--model api:gpt → model must have local weights or a hub id; api:gpt can
--model LONG → names must have at most 255 bytes
--model {loop.jsonl} → model must be embedded, a folder or a hub id
--revision LONG --model nobody/nothing → model 'nobody/nothing' must be a folder, or a hub id with
--reference-model ./nowhere --detectors reference → model must be embedded, a folder or a hub id
--reference-model {empty_folder} --detectors reference → model folder must hold config.json and weights
--neighbour-model ./nowhere --detectors neighbour → model must be embedded, a folder or a hub id
--neighbour-model {empty_folder} --detectors neighbour → model folder must hold config.json and weights
--neighbours 0 --detectors neighbour --neighbour-model words → neighbours must be at least 1
--neighbours -3 --detectors neighbour --neighbour-model words → neighbours must be at least 1
--neighbours many → neighbours must be a whole number
--frequencies nowhere.npz --detectors dc_pdd → frequency table must be a file
--frequencies {folder.jsonl} --detectors dc_pdd → frequency table must be a file
--frequencies {good.jsonl} --detectors dc_pdd → frequency table must be a whole file made by
--frequencies LONG --detectors dc_pdd → names must have at most 255 bytes
--frequencies {loop.jsonl} --detectors dc_pdd → frequency table must be a file
--device abacus → device must be auto, spread, cpu or cuda[:N] of this
--device '' → device must not be blank
--device cuda:99 → device must be auto, spread, cpu or cuda[:N] of this
--device cuda:x → device must be auto, spread, cpu or cuda[:N] of this
--device meta → device must be auto, spread, cpu or cuda[:N] of this
--dtype int8 → dtype must be one of
--bits 3 → bits must be one of
--bits 4 → 4-bit weights must have the package bitsandbytes
--max-batch-tokens 0 → max-batch-tokens must be at least 1
--max-batch-tokens -1 → max-batch-tokens must be at least 1
--max-batch-tokens 2.5 → max-batch-tokens must be a whole number
--columns text → columns must be written --columns
--columns text= → columns must be written --columns
--columns =x → columns must be written --columns
--columns words=x → columns may name text, label, group, date, period
--columns text=a,text=b → columns must name text once
--columns text=nothing → good.jsonl:1: text must be in column 'nothing'
--columns label=nothing → good.jsonl:1: label must be in column 'nothing'
--columns group=nothing → good.jsonl:1: group must be in column 'nothing'
--columns date=nothing → good.jsonl:1: date must be in column 'nothing'
--columns text=label → good.jsonl:1: text must be a string that is not blank
--cutoff yesterday → cutoff must be a day like 2023-02-24
--cutoff 2023-02-30 → cutoff must be a day like 2023-02-24
--cutoff '' → cutoff must not be blank
--cutoff 2020-06-01 → members must be dated on or before the cutoff
--cutoff 2022-01-01 --data {undated.jsonl} → every non-member must have a date or a period
--cutoff 2020-06-01 --data {late.jsonl} → contemporaries (non-members of a period that members have) must
--cutoff 2022-01-01 --data {early.jsonl} → non-members of a period that no member has must be dated after the cutoff
--data {some_periods.jsonl} → every text must have a period if any has one
--data {one_contemporary.jsonl} → contemporaries and later texts must each have at least
--target-modules '' → target-modules must not be blank
--target-modules nothing → target-modules must be auto, all-linear or
--target-modules , → target-modules must be auto, all-linear or
--colour red → Unrecognized options: --colour, red
--seed → Missing value for argument '--seed'. Expected 1 values.
--data → data must be followed by at least one value
extra → Unrecognized options: extra
--version 3 → Unrecognized options: --version, 3
--data {few.jsonl} → too few families
--data {one.jsonl} → texts to be split must be of both classes
--data {one_group.jsonl} → some non-members must be left to train on, in families
--data {members.jsonl} → texts to be split must be of both classes
--data {nonmembers.jsonl} → texts to be split must be of both classes
--data {unlabelled.jsonl} → unlabelled.jsonl:1: label must be in column 'label'
--data {partly.jsonl} → partly.jsonl:61: label must be in column 'label'
--data {both_sides.jsonl} → members and non-members must not share texts; 1 pair is
--data {same_text.jsonl} → members and non-members must not share texts; 59 pairs
--data {good.jsonl} {good.jsonl} → each data file must be given once
""",
    "score": r"""
--seed -1 → seed must be at least 0 and below 2**32
--seed 4294967296 → seed must be at least 0 and below 2**32
--seed x → seed must be a whole number
--out s.txt → out must end in .parquet, .csv, .jsonl
--out s → out must end in .parquet, .csv, .jsonl
--out {empty_folder} → out must end in .parquet, .csv, .jsonl
--out nowhere/s.csv → an output file must be in a folder that exists, and not
--out LONG.csv → an output file must have a path that exists or can be
--out '' → out must not be blank
--out {loop.jsonl} → an output file must have a path that exists or can be
--out {good.jsonl}/s.csv → an output file must be in a folder that exists, and not
--out {folder.jsonl} → an output file must be in a folder that exists, and not
--out /proc/nowhere/s.csv → an output file must be in a folder that exists, and not
--unseen nowhere.jsonl → data file must exist
--unseen {empty.jsonl} → empty.jsonl must have at least one row
--unseen {folder.jsonl} → a folder must hold .txt files, one text each
--unseen {loop.jsonl} → data file must exist
--unseen LONG.jsonl → data file must exist
--detectors '' → detectors must not be blank
--detectors magic → detector must be one of
--detectors min_k_deviation → detector min_k_deviation cannot be computed here: no
--detectors recall → detector recall cannot be computed here: no prefix of
--detectors reference → detector reference cannot be computed here: no reference
--settings surp.k=300 --detectors surp → surp.k must be in
--settings min_k.k=NaN --detectors min_k → min_k.k must be in
--settings surp.q=3 --detectors surp → setting of surp must be one of
--settings surp.k=3 → settings must be of a detector in use, one of
--settings-from nowhere → an adapter must be models:/name@alias
--shots 0 --unseen {nonmembers.jsonl} --detectors recall → shots must be at least 1
--model '' → model must not be blank
--model ./nowhere → model must be embedded, a folder or a hub id
--model {empty_folder} → model folder must hold config.json and weights
--model {good.jsonl} → model must be embedded, a folder or a hub id
--model LONG → names must have at most 255 bytes
--model api: → model api: must come with --base-url, e.g.
--model api:gpt → model api:gpt must come with --base-url, e.g.
--model api:gpt --base-url nowhere → base-url must look like http://localhost:8000/v1, with
--model api:gpt --base-url ftp://127.0.0.1/v1 → base-url must look like http://localhost:8000/v1, with
--model api:gpt --base-url http:// → base-url must look like http://localhost:8000/v1, with
--model api:gpt --base-url http://127.0.0.1:99999/v1 → base-url must look like http://localhost:8000/v1; Port
--model api:gpt --base-url 'http://127.0.0.1:port/v1' → base-url must look like http://localhost:8000/v1; Port
--model api:gpt --base-url http://127.0.0.1:9/v1 --concurrency 0 → concurrency must be at least 1
--model api:gpt --base-url http://127.0.0.1:9/v1 --concurrency -1 → concurrency must be at least 1
--model api:gpt --base-url http://127.0.0.1:9/v1 --requests-per-minute 0 → requests-per-minute must be above 0
--model api:gpt --base-url http://127.0.0.1:9/v1 --requests-per-minute -5 → requests-per-minute must be above 0
--model api:gpt --base-url http://127.0.0.1:9/v1 --requests-per-minute nan → requests-per-minute must be a finite number
--model api:gpt --base-url http://127.0.0.1:9/v1 --price -1 → price must be at least 0
--model api:gpt --base-url http://127.0.0.1:9/v1 --price nan → price must be a finite number
--model api:gpt --base-url http://127.0.0.1:9/v1 --tokenizer ./nowhere → model must be embedded, a folder or a hub id
--model api:gpt --base-url http://127.0.0.1:9/v1 --tokenizer {empty_folder} → model folder must hold config.json
--device abacus → device must be auto, spread, cpu or cuda[:N] of this
--dtype int8 → dtype must be one of
--bits 5 → bits must be one of
--max-batch-tokens 0 → max-batch-tokens must be at least 1
--columns words=x → columns may name text, label, group, date
--columns text=nothing → good.jsonl:1: text must be in column 'nothing'
--domain '' → domain must not be blank
--domain ../x → domain must be 1 to 100 letters, digits, _, - and .
--domain LONG → domain must be 1 to 100 letters, digits, _, - and .
--frequencies nowhere.npz --detectors dc_pdd → frequency table must be a file
--colour red → Unrecognized options: --colour, red
--data → data must be followed by at least one value
--data {both_sides.jsonl} → members and non-members must not share texts; 1 pair is
--data {same_text.jsonl} → members and non-members must not share texts; 59 pairs
--data {good.jsonl} {good.jsonl} → each data file must be given once
""",
    "detect": r"""
--fpr 0 → an adapter must be models:/name@alias
--fpr 1 → an adapter must be models:/name@alias
--fpr -0.1 → an adapter must be models:/name@alias
--fpr 1.5 → an adapter must be models:/name@alias
--fpr nan → fpr must be a finite number
--fpr inf → fpr must be a finite number
--fpr half → fpr must be a number
--fpr 0.00001 → an adapter must be models:/name@alias
--seed -1 → seed must be at least 0 and below 2**32
--seed 4294967296 → seed must be at least 0 and below 2**32
--known nowhere.jsonl → data file must exist
--known {empty.jsonl} → empty.jsonl must have at least one row
--known {empty_folder} → a folder must hold .txt files, one text each
--known {loop.jsonl} → data file must exist
--known LONG.jsonl → data file must exist
--known {text_null.jsonl} → text_null.jsonl:1: text must be a string that is not blank
--known → known must be followed by at least one value
--out v.txt → out must end in .parquet, .csv, .jsonl
--out v → out must end in .parquet, .csv, .jsonl
--out {empty_folder} → out must end in .parquet, .csv, .jsonl
--out nowhere/v.csv → an output file must be in a folder that exists, and not
--out LONG.csv → an output file must have a path that exists or can be
--out '' → out must not be blank
--out {loop.jsonl} → an output file must have a path that exists or can be
--report r.txt → report must end in .html
--report r → report must end in .html
--report nowhere/r.html → an output file must be in a folder that exists, and not
--report LONG.html → an output file must have a path that exists or can be
--report '' → report must not be blank
--report {loop.jsonl} → report must end in .html
--adapter nowhere → an adapter must be models:/name@alias
--adapter '' → adapter must not be blank
--adapter LONG → names must have at most 255 bytes
--adapter {empty_folder} → an adapter's folder must hold adapter_config.json
--adapter {good.jsonl} → an adapter must be models:/name@alias
--adapter {loop.jsonl} → an adapter must be models:/name@alias
--adapter models:/none@champion → models:/none@champion must name a registered model; there
--adapter models:/none/1 → models:/none/1 must name a registered model; there are
--adapter models:/ → a model's address must be models:/name@alias or
--adapter models:/fsd-arxiv → a model's address must be models:/name@alias or
--adapter runs:/none → runs:/ must name a run of
--adapter runs:/ → a run's address must be runs:/id or runs:/id/folder
--adapter s3://bucket/x → an adapter must be models:/name@alias
--model ./nowhere → an adapter must be models:/name@alias
--model '' → model must not be blank
--model {empty_folder} → an adapter must be models:/name@alias
--model LONG → an adapter must be models:/name@alias
--device abacus → an adapter must be models:/name@alias
--device '' → device must not be blank
--columns words=x → columns may name text, label, group, date
--columns text → columns must be written --columns
--columns text=nothing → unlabelled.jsonl:1: text must be in column 'nothing'
--colour red → Unrecognized options: --colour, red
--detectors loss → Unrecognized options: --detectors, loss
""",
    "tune": r"""
--seed -1 → seed must be at least 0 and below 2**32
--seed 4294967296 → seed must be at least 0 and below 2**32
--trials 0 → trials must be at least 1
--trials -5 → trials must be at least 1
--trials 1.5 → trials must be a whole number
--trials many → trials must be a whole number
--timeout 0 → timeout must be above 0 seconds
--timeout -1 → timeout must be above 0 seconds
--timeout nan → timeout must be a finite number
--timeout soon → timeout must be a number
--folds 1 → folds must be at least 2 and repeats at least 1
--folds 0 → folds must be at least 2 and repeats at least 1
--folds -2 → folds must be at least 2 and repeats at least 1
--folds 1000 → validation must have at least 1000 families with members
--repeats 0 → folds must be at least 2 and repeats at least 1
--repeats -1 → folds must be at least 2 and repeats at least 1
--workers 0 → workers must be at least 1
--workers -1 → workers must be at least 1
--objective f1 → objective must be one of
--sampler bayes → sampler must be one of
--pruner none,median → pruner must be one of
--tune everything → tune must be one of
--detectors zlib → detectors to tune must have settings to search, as
--detectors loss → detectors to tune must have settings to search, as
--detectors magic → detector must be one of
--detectors '' → detectors must not be blank
--settings surp.q=1 → setting of surp must be one of
--settings surp.k=300 → surp.k must be in
--settings min_k.k=NaN → min_k.k must be in
--settings-from nowhere → an adapter must be models:/name@alias
--storage '' → storage must not be blank
--storage nowhere → storage must be
--storage sqlite:///{empty_folder} → storage must be
--storage sqlite:///{good.jsonl}/optuna.db → storage must be
--storage journal:{empty_folder} → storage must be
--storage journal:{good.jsonl}/x.log → storage must be
--storage postgresql://user:secret@127.0.0.1:1/x → storage must be
--storage LONG → storage must be
--storage sqlite:///LONG.db → storage must be
--validation 0 → validation must hold texts to tune on
--validation nan → validation must be a finite number
--validation 1 → validation must be a share from 0 to below 1
--unseen 1 → unseen must be a share above 0 and below 1
--unseen nan → unseen must be a finite number
--adapter nowhere → an adapter must be models:/name@alias
--adapter {empty_folder} → an adapter's folder must hold adapter_config.json
--tune adapter --adapter {empty_folder} → adapter must not be given where it is to be tuned
--placebo ./nowhere → model must be embedded, a folder or a hub id
--epochs 0 → epochs must be greater than 0
--learning-rate nan → learning-rate must be a finite number
--batch-size 0 → batch-size must be greater than 0
--dropout 2 → dropout must be at least 0 and below 1
--domain poems → domain must be one of
--domain '' → domain must not be blank
--device abacus → device must be auto, spread, cpu or cuda[:N] of this
--model ./nowhere → model must be embedded, a folder or a hub id
--model LONG → names must have at most 255 bytes
--model api:x → model must have local weights or a hub id; api:x can only
--columns words=x → columns may name text, label, group, date
--shots 0 → shots must be at least 1
--colour red → Unrecognized options: --colour, red
--data {few.jsonl} → too few families
--data {one.jsonl} → texts to be split must be of both classes
--data {one_group.jsonl} → some non-members must be left to train on, in families
--data {members.jsonl} → texts to be split must be of both classes
--data {nonmembers.jsonl} → texts to be split must be of both classes
--data {unlabelled.jsonl} → unlabelled.jsonl:1: label must be in column 'label'
--data {partly.jsonl} → partly.jsonl:61: label must be in column 'label'
--data {both_sides.jsonl} → members and non-members must not share texts; 1 pair is
--data {same_text.jsonl} → members and non-members must not share texts; 59 pairs
""",
    "study": r"""
fsd-t99 → study must be a name shown by --list
FSD_T6 → study must be a name shown by --list
LONG → study must be a name shown by --list
'' → study must be a name shown by --list
fsd-t6 surp-t1 → Unrecognized options: surp-t1
fsd-t6 --seed -1 → seed must be at least 0 and below 2**32
fsd-t6 --seed 4294967296 → seed must be at least 0 and below 2**32
fsd-t6 --scale medium → scale must be one of
dcpdd-fig2 --scale full → study dcpdd-fig2 in full must have a model: give --model ID
fsd-t6 --domain '' → domain must not be blank
fsd-t6 --domain LONG → domain must be 1 to 100 letters, digits, _, - and .
fsd-t6 --model ./nowhere → cell AdaLoRA: dataset swj0419/WikiMIA must be on the hub
fsd-t6 --model '' → cell AdaLoRA: dataset swj0419/WikiMIA must be on the hub
fsd-t6 --model LONG → cell AdaLoRA: dataset swj0419/WikiMIA must be on the hub
fsd-t6 --model {empty_folder} → cell AdaLoRA: dataset swj0419/WikiMIA must be on the hub
fsd-t6 --model api:gpt → cell AdaLoRA: dataset swj0419/WikiMIA must be on the hub
fsd-t6 --model embedded embedded-twin → study fsd-t6 must have one --model
fsd-t6 --model → model must be followed by at least one value
fsd-t6 --data → data must be followed by at least one value
fsd-t6 --data nowhere.jsonl → cell AdaLoRA: data file must exist
fsd-t6 --data wikimia:33 → cell AdaLoRA: part of wikimia must be one of 32, 64, 128, 256
fsd-t6 --data embedded:alchemy → cell AdaLoRA: fields must be out of astro-ph, cond-mat
fsd-t6 --data {few.jsonl} → cell AdaLoRA: too few families
fsd-t6 --data {members.jsonl} → cell AdaLoRA: texts to be split must be of both classes
fsd-t6 --data {one_group.jsonl} → cell AdaLoRA: some non-members must be left to train on
fsd-t6 --data {unlabelled.jsonl} → cell AdaLoRA: unlabelled.jsonl:1: label must be in column
fsd-t6 --data {same_text.jsonl} → cell AdaLoRA: members and non-members must not share
fsd-t6 --other {good.jsonl} → other must be given only to a study with foreign texts
fsd-t6 --frequencies a.npz b.npz → study fsd-t6 must have one --frequencies
fsd-t15 --data {good.jsonl} → study fsd-t15 must have texts of another domain beside
fsd-t15 --data {good.jsonl} --other nowhere.jsonl → cell good.jsonl, both domains: data file must exist
dcpdd-t4 --model {tiny} --scale full → study dcpdd-t4 must have token-frequency tables to
dcpdd-t5 --frequencies nowhere.npz → frequency table must be a file
dcpdd-t5 --frequencies {folder.jsonl} → frequency table must be a file
dcpdd-t5 --frequencies {good.jsonl} → frequency table must be a whole file made by
dcpdd-t5 --frequencies LONG → names must have at most 255 bytes
surp-t2 --scale full → cell allenai/OLMo-1B-hf, head: a study must have texts: give --data FILE
fsd-t6 --epochs 0 → epochs must be greater than 0
fsd-t6 --epochs -1 → epochs must be greater than 0
fsd-t6 --learning-rate nan → learning-rate must be a finite number
fsd-t6 --rank 0 → rank must be greater than 0
fsd-t6 --batch-size 0 → batch-size must be greater than 0
fsd-t6 --dropout 2 → dropout must be at least 0 and below 1
fsd-t6 --device abacus → device must be auto, spread, cpu or cuda[:N] of this
fsd-t6 --dtype int8 → dtype must be one of
fsd-t6 --bits 4 → 4-bit weights must have the package bitsandbytes
fsd-t6 --max-batch-tokens 0 → max-batch-tokens must be at least 1
fsd-t6 --columns words=x → columns may name text, label, group, date
fsd-t6 --colour red → Unrecognized options: --colour, red
""",
    "collect": r"""
--domain poems → domain must be one of
--domain '' → domain must not be blank
--domain ../x → domain must be one of
--domain LONG → domain must be one of
--limit 0 → limit must be at least 1
--limit -1 → limit must be at least 1
--limit 1.5 → limit must be a whole number
--limit many → limit must be a whole number
--after yesterday → after must be a day like 2023-02-24
--after 2023 → after must be a day like 2023-02-24
--after 2023-13-01 → after must be a day like 2023-02-24
--after 2023-02-30 → after must be a day like 2023-02-24
--after 20230101x → after must be a day like 2023-02-24
--after 9999-12-31 → after must be a day before today
--after 2999-01-01 → after must be a day before today
--before yesterday --after '' → before must be a day like 2023-02-24
--before 2023-1-1 --after '' → before must be a day like 2023-02-24
--before 0001-01-01 --after '' → before must be a day of arxiv, which begins on 1991-08-14
--after 2024-01-01 --before 2024-06-01 → before must be 2024-01-02 at most, so that no day is on
--after 2024-01-01 --model embedded → either --after or --model must be given, not both
--model nobody/nothing --after '' → the cutoff of nobody/nothing must be given by --after
--model '' --after '' → a date must be given: --after DATE or --model ID for
--model LONG --after '' → the cutoff of
--out x.txt → out must be a file that ends in .jsonl
--out {empty_folder} → out must be a file that ends in .jsonl
--out LONG.jsonl → names must have at most 255 bytes
--out {good.jsonl} → out must be a file that does not exist yet; good.jsonl
--out '' → out must be a file that ends in .jsonl
--out {good.jsonl} --after 2024-01-01 --before 2023-01-01 → out must be a file that does not exist yet; good.jsonl
--options x=1 → options of arxiv must be categories=, query=, mirror=
--options categories → options of arxiv must be categories=, query=, mirror=
--options =3 → options of arxiv must be categories=, query=, mirror=
--domain local → options of local must have path=VALUE; all are path=VALUE
--domain local --options path=nowhere → data file must exist
--domain local --options path=LONG → data file must exist
--domain local --options path={empty_folder} → a folder must hold .txt files, one text each; empty_folder has none
--domain local --options path={loop.jsonl} → data file must exist
--domain local --options path={text_null.jsonl} → text_null.jsonl must have at least one valid row
--domain local --options path={binary.jsonl} → binary.jsonl:1: must be encoded in UTF-8
--domain books --options words=0 → options must have words of 1 or more and places of
--domain books --options words=many → option words must be a whole number, 0 or more
--domain stackexchange --options path=nowhere → options of stackexchange must be site=stackoverflow
--min-words 0 → min_words must be at least 1
--min-words -1 → min_words must be at least 1
--min-words some → min-words must be a whole number
--benchmark-of nowhere.jsonl → data file must exist
--benchmark-of {folder.jsonl} → data must be files; folder.jsonl is a folder
--benchmark-of {loop.jsonl} → data file must exist
--benchmark-of {deep.jsonl} → deep.jsonl:1: must be one JSON object a line, or one list
--benchmark-of LONG.jsonl → data file must exist
--colour red → Unrecognized options: --colour, red
""",
    "pretrain": r"""
--heads 0 → heads must be from 1 to 2^32 - 1
--heads 3 → hidden_size must be a multiple of 8 for each of the heads
--heads -4 → heads must be from 1 to 2^32 - 1
--hidden-size 0 → hidden_size must be from 1 to 2^32 - 1
--hidden-size 15 → hidden_size must be a multiple of 8 for each of the heads
--hidden-size -8 → hidden_size must be from 1 to 2^32 - 1
--layers 0 → layers must be from 1 to 2^32 - 1
--layers -1 → layers must be from 1 to 2^32 - 1
--vocabulary 0 → vocabulary must be from 257 to 2^32 - 1
--vocabulary -1 → vocabulary must be from 257 to 2^32 - 1
--vocabulary 5 → vocabulary must be from 257 to 2^32 - 1
--context 0 → context must be from 2 to 2^32 - 1
--context 1 → context must be from 2 to 2^32 - 1
--context -3 → context must be from 2 to 2^32 - 1
--passes -1 → passes must be from 0 to 2^32 - 1
--passes 0 --exposures 0 → passes or exposures must be above 0
--exposures -1 → exposures must be from 0 to 2^32 - 1
--batch-size 0 → batch_size must be from 1 to 2^32 - 1
--batch-size -1 → batch_size must be from 1 to 2^32 - 1
--learning-rate nan → learning-rate must be a finite number
--learning-rate inf → learning-rate must be a finite number
--learning-rate 0 → learning_rate must be above 0
--learning-rate -1 → learning_rate must be above 0
--weight-decay nan → weight-decay must be a finite number
--weight-decay -1 → weight_decay must be 0 or more
--seed -1 → seed must be at least 0 and below 2**32
--seed 4294967296 → seed must be at least 0 and below 2**32
--hidden-size 99999999999 → hidden_size must be from 1 to 2^32 - 1
--paragraphs 0 → paragraphs must be at least 1
--paragraphs -5 → paragraphs must be at least 1
--paragraphs some → paragraphs must be a whole number
--out {good.jsonl} → out must be a folder that does not exist or is empty
--out LONG → names must have at most 255 bytes
--out {loop.jsonl} → out must be a folder that does not exist or is empty
--out {good.jsonl}/x → out must be in a folder that can be written
--out /proc/x → out must be in a folder that can be written; /proc/x: No
--out '' → out must not be blank
--tokenizer ./nowhere → model must be embedded, a folder or a hub id
--tokenizer {empty_folder} → model folder must hold config.json
--tokenizer LONG → names must have at most 255 bytes
--tokenizer '' → tokenizer must not be blank
--device abacus → device must be auto, spread, cpu or cuda[:N] of this
--columns words=x → columns may name text, label, group, date
--members {nonmembers.jsonl} → members must hold texts that are not labelled 0
--background {empty.jsonl} → empty.jsonl must have at least one row
--background {folder.jsonl} → data must be files; folder.jsonl is a folder
--background {loop.jsonl} → data file must exist
--background LONG.jsonl → data file must exist
--background → background must be followed by at least one value
--members → members must be followed by at least one value
--colour red → Unrecognized options: --colour, red
""",
    "frequencies": r"""
--out t.txt → out must be a file that ends in .npz
--out t → out must be a file that ends in .npz
--out {empty_folder} → out must be a file that ends in .npz
--out LONG.npz → an output file must have a path that exists or can be
--out {loop.jsonl} → out must be a file that ends in .npz
--out {dir.npz} → an output file must be in a folder that exists, and not
--out {good.jsonl}/t.npz → an output file must have a path that exists or can be
--out '' → out must be a file that ends in .npz
--corpus → corpus must be followed by at least one value
--corpus nowhere.jsonl → corpus must be files that exist
--corpus {folder.jsonl} → corpus must be files that exist
--corpus LONG.jsonl → names must have at most 255 bytes
--corpus {loop.jsonl} → corpus must be files that exist
--corpus hf://datasets/x → corpus files must end in .jsonl, .ndjson, .json, .csv
--corpus http://127.0.0.1/x.jsonl → corpus must be files that exist
--model ./nowhere → model must be embedded, a folder or a hub id
--model '' → model must not be blank
--model LONG → names must have at most 255 bytes
--model {empty_folder} → model folder must hold config.json and weights
--model {good.jsonl} → model must be embedded, a folder or a hub id
--model api:x → model must have local weights or a hub id; api:x can only
--column words → column must be one of
--column '' → column must not be blank
--limit 0 → limit of documents must be at least 1
--limit -1 → limit of documents must be at least 1
--limit many → limit must be a whole number
--limit 1.5 → limit must be a whole number
--tokens 0 → limit of tokens must be at least 1
--tokens -1 → limit of tokens must be at least 1
--tokens nan → tokens must be a whole number
--colour red → Unrecognized options: --colour, red
--corpus {empty.jsonl} → corpus must hold at least one token; empty.jsonl holds
--corpus {blank.jsonl} → corpus must hold at least one token; blank.jsonl holds
--corpus {binary.jsonl} → binary.jsonl must be a whole file of jsonl in UTF-8
--corpus {zeros.jsonl} → every line must be a JSON object; zeros.jsonl:1
--corpus {utf16.jsonl} → utf16.jsonl must be a whole file of jsonl in UTF-8
--corpus {latin.csv} → latin.csv must be a whole file of csv in UTF-8; In CSV
--corpus {utf16.csv} → utf16.csv must be a whole file of csv in UTF-8; CSV parse
--corpus {half.jsonl} → every line must be a JSON object; half.jsonl:2
--corpus {single_quotes.jsonl} → every line must be a JSON object; single_quotes.jsonl:1
--corpus {prose.jsonl} → every line must be a JSON object; prose.jsonl:1
--corpus {deep.jsonl} → every line must be a JSON object; deep.jsonl:1: maximum
--corpus {deep_row.jsonl} → every line must be a JSON object; deep_row.jsonl:1
--corpus {number.jsonl} → every line must be a JSON object; number.jsonl:1 is int
--corpus {null.jsonl} → every line must be a JSON object; null.jsonl:1 is NoneType
--corpus {lists.json} → every line must be a JSON object; lists.json:1 is list
--corpus {strings.json} → every line must be a JSON object; strings.json:1 is list
--corpus {no_rows.json} → every line must be a JSON object; no_rows.json:1 is list
--corpus {no_text.jsonl} → column must be one of
--corpus {text_null.jsonl} → corpus must hold at least one token; text_null.jsonl
--corpus {text_number.jsonl} → column 'text' must hold text; text_number.jsonl:1 holds
--corpus {text_empty.jsonl} → corpus must hold at least one token; text_empty.jsonl
--corpus {text_list.jsonl} → column 'text' must hold text; text_list.jsonl:1 holds list
--corpus {twice.csv} → columns must have different names; twice.csv has text
--corpus {header.csv} → corpus must hold at least one token; header.csv holds none
--corpus {ragged.csv} → ragged.csv must be a whole file of csv in UTF-8; CSV
--corpus {quote.csv} → quote.csv must be a whole file of csv in UTF-8; CSV parse
--corpus {no_text.csv} → column must be one of
--corpus {blank_cell.csv} → corpus must hold at least one token; blank_cell.csv holds
--corpus {label.tsv} → corpus files must end in .jsonl, .ndjson, .json, .csv
--corpus {not.parquet} → not.parquet must be a whole file of parquet in UTF-8
--corpus {empty.parquet} → empty.parquet must be a whole file of parquet in UTF-8
--corpus {not.jsonl.gz} → not.jsonl.gz must be a whole file of gzip of jsonl in
--corpus {half.jsonl.gz} → half.jsonl.gz must be a whole file of gzip of jsonl in
--corpus {not.jsonl.zst} → not.jsonl.zst must be a whole file of zstd of jsonl in
--corpus {not.csv.bz2} → not.csv.bz2 must be a whole file of bz2 of csv in UTF-8
--corpus {text.pdf} → corpus files must end in .jsonl, .ndjson, .json, .csv
--corpus {text.docx} → corpus files must end in .jsonl, .ndjson, .json, .csv
--corpus {noending} → corpus files must end in .jsonl, .ndjson, .json, .csv
--corpus {dangling.jsonl} → corpus must be files that exist
--corpus {unreadable.jsonl} → unreadable.jsonl must be a whole file of jsonl in UTF-8
--corpus {pipe.jsonl} → corpus must be files that exist
--corpus {null.csv} → corpus must be files that exist
--corpus nowhere/LONG/x.jsonl → corpus must be files that exist
--corpus {no_text.parquet} → column must be one of
--corpus {text_null.parquet} → corpus must hold at least one token; text_null.parquet
--corpus {text_list.parquet} → column 'text' must hold text; text_list.parquet holds list
--corpus {no_rows.parquet} → corpus must hold at least one token; no_rows.parquet
--out t.csv --dry-run → out must be a file that ends in .npz
""",
    "canary make": r"""
--alpha 0 → alpha must be between 0 and 1; got 0
--alpha 1 → alpha must be between 0 and 1; got 1
--alpha nan → alpha must be a finite number
--variants 0 → variants must be at least 1/alpha = 1,000
--variants 999 → variants must be at least 1/alpha = 1,000
--variants many → variants must be a whole number
--repetitions 0 → repetitions must be from 1 to 10,000; got 0
--repetitions -1 → repetitions must be from 1 to 10,000; got -1
--kind digits --variants 100001 → variants must be from 2 to 100,000
--kind letters → kind must be one of words, digits, paraphrase
--rarity none → rarity must be one of common, medium, rare
--kind paraphrase → variants must be a list of at least two different texts
--data {no_text.jsonl} → text must be in column
--data {empty.jsonl} → must have at least one row
--data nowhere.jsonl → must exist; there is no
--out {book.txt} → out must be a folder that does not exist or is empty
""",
    "canary test": r"""
nowhere → must
--withheld 0 → withheld must be at least 1; got 0
--seed -1 → seed must be at least 0
--alpha nan → alpha must be a finite number
--tags team → tags must look like KEY=VALUE; got 'team'
--tags mlflow.user=me → tags must not begin with mlflow.
--config nowhere.yaml → config must be a file that can be read; nowhere.yaml
""",
    "extract": r"""
--prefix 0 → prefix must be at least 1 token; got 0
--suffix 0 → suffix must be at least 1 token; got 0
--stride 0 → stride must be at least 1 token; got 0
--stride -3 → stride must be at least 1 token; got -3
--temperature nan → temperature must be a finite number
--top-k 0 → top-k must
--control {book.txt} → control must hold other works than the book
--control nowhere.txt → must be a readable text file in UTF-8
{blank.txt} → must hold a text that is not blank
{short.txt} → a work must have at least 100 tokens, prefix and suffix
{latin.txt} → must be a readable text file in UTF-8
nowhere.txt → must be a readable text file in UTF-8
--model ./nowhere → must be embedded, a folder or a hub id
--config {unknown.yaml} → keys must be flags of the command; got 'epoch'
""",
    "adapter-audit": r"""
--validation 0 → validation must be
--validation 1 → validation must be
--fpr 0 → fpr must be
--fpr 1.5 → fpr must be
--tuned {tiny} → must be given by either --adapter or --tuned; got both
--adapter nowhere → must
--out scores.txt → out must end in .parquet, .csv, .jsonl
--out nowhere/x.csv → an output file must be in a folder that exists
--data nowhere.jsonl → must exist; there is no
--data {both_sides.jsonl} → must
--seed 4294967296 → seed must be at least 0 and below 2**32
--detectors magic --tuned x → must
--config {later.yaml} → config must be of version 1
""",
    "contamination": r"""
--level 0 → level must be between 0 and 1; got 0
--level 1 → level must be between 0 and 1; got 1
--level nan → level must be a finite number
--shard 40 → data must fill 2 shards of 40 texts; got 60 texts
{one.jsonl} → data must fill 2 shards of 5 texts; got 1 texts
nowhere.jsonl → must exist; there is no
--known {members.jsonl} → must
--known {empty.jsonl} → must have at least one row
--columns text → columns must
--detectors magic → detector must be one of
--model ./nowhere → must be embedded, a folder or a hub id
--config {tune.yaml} → config must be of the command contamination
""",
}


def _cases() -> Iterator[Case]:
    for command, lines in CASES.items():
        yield from (Case(command, *line.split(" → ")) for line in lines.strip().splitlines())
    yield from (Case("run", f"--config {{{name}}}", message) for name, (_, message) in CONFIGS.items())
    data = {f"{{{name}}}": message for name, (_, message) in FILES.items()} | PATHS
    for command, flag in (("run", "--data "), ("detect", "")):
        yield from (Case(command, flag + place, message) for place, message in data.items())
    for command, flag in (("score", "--data "), ("pretrain", "--members ")):  # which read them alike
        yield from (Case(command, flag + place, message) for place, message in PATHS.items())


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory, make_rows: Callable) -> Path:
    """A folder of bad files, and of good ones that the other arguments of a command need."""
    folder = tmp_path_factory.mktemp("inputs")
    for name, (content, _) in (FILES | CONFIGS).items():
        (folder / name).write_bytes(content)
    rows = make_rows(60, seed=0)
    sides = {
        "good": rows,
        "more": make_rows(20, seed=1),
        "members": [row for row in rows if row["label"]],
        "nonmembers": [row for row in rows if not row["label"]],
        "few": rows[:4],
        "one": rows[:1],
        "one_group": [{**row, "group": "g"} for row in rows],
        "unlabelled": [{"text": row["text"]} for row in rows],
        "partly": [*rows, {"text": "one two three"}],
        "both_sides": [*rows, {**rows[0], "label": 1 - int(rows[0]["label"])}],
        "undated": [{name: value for name, value in row.items() if name != "date"} for row in rows],
        "late": [{**row, "date": f"{2021 - int(row['label'])}-01-01", "period": "then"} for row in rows],
        "early": [{**row, "period": "then" if row["label"] else "long ago"} for row in rows],
        "some_periods": [*rows[:30], *({**row, "period": "then"} for row in rows[30:])],
        "one_contemporary": [{**row, "period": "then" if row["label"] or row is rows[0] else "now"} for row in rows],
        "same_text": [{**row, "text": "one two three"} for row in rows],
    }
    for name, values in sides.items():
        (folder / f"{name}.jsonl").write_bytes(_lines(*values))
    (folder / "book.txt").write_text("one two three four five " * 60)
    (folder / "blank.txt").write_text(" \n")
    (folder / "short.txt").write_text("one two")
    (folder / "latin.txt").write_bytes("caf\xe9".encode("latin-1"))
    (folder / "folder.jsonl").mkdir()
    (folder / "empty_folder").mkdir()
    (folder / "loop.jsonl").symlink_to("loop.jsonl")
    (folder / "dangling.jsonl").symlink_to("nothing")
    (folder / "unreadable.jsonl").symlink_to("/proc/self/mem")
    (folder / "null.csv").symlink_to("/dev/null")
    os.mkfifo(folder / "pipe.jsonl")
    (folder / "dir.npz").mkdir()
    pq.write_table(pa.table({"words": ["a b"], "label": [1]}), folder / "no_text.parquet")
    pq.write_table(pa.table({"text": pa.array([None], pa.string()), "label": [1]}), folder / "text_null.parquet")
    pq.write_table(pa.table({"text": [["a"]], "label": [1]}), folder / "text_list.parquet")
    pq.write_table(pa.table({"text": ["a b"], "label": ["x"]}), folder / "label_word.parquet")
    pq.write_table(pa.table({"text": pa.array([], pa.string())}), folder / "no_rows.parquet")
    return folder


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An empty tracking store, since making one takes two seconds."""
    from fsd import tracking

    folder = tmp_path_factory.mktemp("store")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{folder}/store.db")
        return tracking.open_store().uri


@pytest.fixture(scope="module")
def table() -> Iterator[list[tuple[Case, str]]]:
    """Cases and messages so far, written as a page at the end if BAD_INPUT_TABLE names a file."""
    rows: list[tuple[Case, str]] = []
    yield rows
    if "BAD_INPUT_TABLE" in os.environ:
        Path(os.environ["BAD_INPUT_TABLE"]).write_text(_page(rows), encoding="utf-8")


def _page(rows: list[tuple[Case, str]]) -> str:
    sections = []
    for command in dict.fromkeys(case.command for case, _ in rows):
        lines = [
            f"| `{case.arguments}` | {message} |".replace("\\", "\\\\")
            for case, message in rows
            if case.command == command
        ]
        base = f"\n\nBeside: `{BASE[command]}`" if BASE[command] else ""
        sections.append(f"## fsd {command}{base}\n\n| input | message |\n|---|---|\n" + "\n".join(lines))
    head = (
        f"# Bad input\n\n{len(rows)} command lines, each of which ends with exit code 2 and one line on stderr, before "
        "anything is trained, scored or tracked,\nand leaves no file. Names in braces are files that "
        "`tests/pipelines/test_bad_input.py` makes, LONG is a name of 300 characters.\nThe page is written by"
        "\n\n```\nBAD_INPUT_TABLE=docs/bad_input.md python -m pytest tests/pipelines/test_bad_input.py\n```\n\n"
    )
    return head + "\n\n".join(sections) + "\n"


@pytest.fixture
def nothing_expensive(monkeypatch: pytest.MonkeyPatch) -> None:
    """Training, scoring, a tracked run or a connection fail the test."""
    from fsd import tracking
    from fsd.models import finetuning, pretraining
    from fsd.scoring import deviation

    def fails(what: str) -> Callable[..., None]:
        return lambda *_, **__: pytest.fail(f"{what} before the mistake was found")

    for owner, name in (
        (finetuning, "finetune"),
        (pretraining, "_train"),
        (deviation.ViewStatistics, "compute"),
        (tracking, "run"),
        (socket.socket, "connect"),
    ):
        monkeypatch.setattr(owner, name, fails(name))


def _parameters() -> Iterator[Any]:
    """All cases; those whose message another one has already shown are slow."""
    shown: set[str] = set()
    for case in _cases():
        yield pytest.param(case, marks=[pytest.mark.slow] * (case.message in shown), id=str(case))
        shown.add(case.message)


@pytest.mark.parametrize("case", list(_parameters()))
@pytest.mark.usefixtures("nothing_expensive")
def test_a_mistake_is_one_line_and_exit_2(
    case: Case,
    inputs: Path,
    tiny: Path,
    store: str,
    table: list[tuple[Case, str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = sorted(inputs.iterdir())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store)
    monkeypatch.setattr(sys, "argv", ["fsd", *case.words(inputs, tiny)])
    with pytest.raises(SystemExit) as ended:
        program.main()
    message = capsys.readouterr().err

    assert ended.value.code == 2
    assert FORM.fullmatch(message)
    assert any(part in message.replace(f"{inputs}/", "") for part in case.message.split("|"))
    assert {path.name for path in tmp_path.iterdir()} <= LEFT.get(case.command, set())
    assert sorted(inputs.iterdir()) == before
    shown = re.sub(rf"{inputs}/|{tiny.parent}/|sqlite:\S+", "", message.removeprefix("error: ").replace(LONG, "LONG"))
    table.append((case, re.sub(r"([|<>*_`\[\]])", r"\\\1", shown.strip())))


TRACKED = ["run", "score", "tune", "detect", "extract", "adapter-audit", "contamination", "study fsd-t6"]


@pytest.mark.parametrize("command", TRACKED)
@pytest.mark.usefixtures("nothing_expensive")
def test_a_store_that_cannot_be_opened_is_refused_before_the_model_is_loaded(
    command: str,
    inputs: Path,
    tiny: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from fsd.models import language_model

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{inputs}/good.jsonl")
    monkeypatch.setattr(language_model, "load", lambda *_, **__: pytest.fail("the model was loaded"))
    monkeypatch.setattr(sys, "argv", ["fsd", *Case(command, "--json", "").words(inputs, tiny)])
    with pytest.raises(SystemExit) as ended:
        program.main()

    assert ended.value.code == 2
    assert re.fullmatch(r"error: the tracking store must be an MLflow database; .*\n", capsys.readouterr().err)


SHELL = ["run --data LONG.jsonl", "frequencies --corpus {deep.jsonl}", "run --data \udcff.jsonl"]


@pytest.mark.slow
@pytest.mark.parametrize("line", SHELL)
def test_the_same_on_the_shell(line: str, inputs: Path, tiny: Path, root: Path, tmp_path: Path) -> None:
    words = Case(*line.split(" ", 1), "").words(inputs, tiny)
    answer = subprocess.run(
        [sys.executable, "-m", "pipelines", *words],
        capture_output=True,
        text=True,
        errors="surrogateescape",
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(root)},
        timeout=120,
        check=False,
    )

    assert answer.returncode == 2, answer.stderr
    assert FORM.fullmatch(answer.stderr)
    assert not list(tmp_path.iterdir())


def test_at_least_350_cases_over_all_commands() -> None:
    cases = list(_cases())
    assert len({str(case) for case in cases}) == len(cases) >= 350
    assert {case.command for case in cases} == set(BASE)
