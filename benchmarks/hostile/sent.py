"""What people have and attackers send: names, values, tables, chats, templates, prompts, settings, environments."""

import json
import os
from collections.abc import Mapping
from typing import Any

NAMES = [
    "a\nb.jsonl", "\u00e4\u00f6\u00fc \u00df.jsonl", "\U0001f600.jsonl", " .jsonl", "%s%n{0}.jsonl", "a=b.jsonl",
    ",.jsonl", "*.jsonl", "[x].jsonl", "wikimia:64.jsonl", "hf:x.jsonl", "~.jsonl", "$HOME.jsonl", "e\u0301.jsonl",
    "\u202egpj.jsonl", "a'b\"c.jsonl", "-.jsonl", "x" * 249 + ".jsonl", os.fsdecode(b"\xff\xfe.jsonl"),
    "a;b&c|d.jsonl", ".hidden.jsonl", "..jsonl", "a b/c d.jsonl", "#.jsonl", "models:.jsonl",
]  # fmt: skip
"""Names that a file system takes."""
LABELS = [
    "9" * 400, "1" + "0" * 4000, "\u0661", "\uff11", " 1", "1 ", "+1", "01", "1e0", "1.0", "-0", "-0.0", "0.0",
    "TRUE", "tRue", "yes", "member", "nan", "inf", "-1", "2", "0x1", "1_0", "\u00bd", "", "None", "null", "[1]",
    "1,0", "1\u0000", "\u200b1", "\ufeff1",
]  # fmt: skip
VALUES: list[Any] = [
    10**400, -(10**30), True, False, None, 1.0, 0.5, -0.0, [1], {"a": 1}, "1", "", 2, 1e300, float("nan"),
    float("inf"),
]  # fmt: skip
TEXTS: list[Any] = [
    " ", "\u200b", "\ufeff", "\u0000", "a", ".", "\u2028", "\n\n", "<|endoftext|>", "<|endoftext|> a b <|endoftext|>",
    "a" * 300_000, "a " * 50_000, "\u0301" * 300, "\u202e a b c", "\U0001f468\u200d\U0001f469\u200d\U0001f467 " * 40,
    None, 5, 1.5, ["a b"], {"a": "b"}, True, "\\ud800", "NaN", "null", "=cmd|'/c calc'!A1",
    "<script>alert(1)</script> a b c", "\x1b[31m a b c", "\t a b c d", "\uffff a b c",
]  # fmt: skip
TABLES: dict[str, bytes] = {
    "twice.csv": b"text,label,text\na b c,1,d e f\n",
    "twice in capitals.csv": b"text,Text,label\na b c d,x,1\n",
    "no head.csv": b"a b c d,1\ne f g h,0\n",
    "nul.csv": b"text,label\na b\x00c d,1\ne f g,0\n",
    "ragged.csv": b"text,label\na b c\nd e f,1,2\n",
    "open.csv": b'text,label\n"a b c,1\nd e f,0\n',
    "quote inside.csv": b'text,label\na "b" c,1\n"a"b c,0\n',
    "sep.csv": b"sep=;\ntext;label\na b c;1\n",
    "comment.csv": b"# made by\ntext,label\na b c,1\n",
    "cr in a cell.csv": b'text,label\n"a\rb c",1\n"d\r\ne f",0\n',
    "no name.csv": b"text,,\na b c,1,2\n",
    "keys.jsonl": b'{"text": "a b c", "text": "d e f", "label": 1}\n',
    "nested keys.jsonl": b'{"text": "a b c", "x": {"y": 1, "y": 2}, "label": 1}\n',
    "several a line.jsonl": b'{"text": "a b c"} {"text": "d e f"}\n',
    "commas.jsonl": b'[{"text": "a b c"},\n{"text": "d e f"},]\n',
    "comments.jsonl": b'// x\n{"text": "a b c"}\n',
    "single quotes.jsonl": b"{'text': 'a b c'}\n",
    "nan.jsonl": b'{"text": "a b c", "label": NaN, "date": Infinity}\n',
    "half.jsonl": b'{"text": "a b c"}\n{"text": "d e',
    "utf-16.jsonl": '{"text": "a b c"}\n'.encode("utf-16"),
    "latin.jsonl": '{"text": "\u00e4 b c"}\n'.encode("latin-1"),
    "overlong.jsonl": b'{"text": "a \xc0\x80 b c"}\n',
    "dates.csv": "text,label,date\na b c d,1,2020-02-30\ne f g h,0,\u0662\u0660\u0662\u0660-01-01\n".encode(),
    "columns.jsonl": b'{"Text": "a b c", "TEXT": "d e f", "label": 1}\n',
    "empty columns.jsonl": b'{"": "a b c", " text": "d e f"}\n',
}


def _says(role: Any, content: Any) -> dict[str, Any]:
    return {"role": role, "content": content}


USER, ANSWER = _says("user", "who read it"), _says("assistant", "the member read it and the model")
CHATS: dict[str, Any] = {
    "good": {"messages": [USER, ANSWER]},
    "empty": {"messages": []},
    "no list": {"messages": "user: hi"},
    "as a string": {"messages": json.dumps([USER, ANSWER])},
    "an object": {"messages": {"role": "user", "content": "x"}},
    "answer first": {"messages": [ANSWER, USER]},
    "no answer": {"messages": [USER, USER]},
    "system alone": {"messages": [_says("system", "be good")]},
    "answer twice": {"messages": [USER, ANSWER, ANSWER]},
    "blank answer": {"messages": [USER, _says("assistant", " \n")]},
    "null content": {"messages": [USER, _says("assistant", None)]},
    "parts": {"messages": [_says("user", [{"type": "text", "text": "a"}]), ANSWER]},
    "picture": {"messages": [_says("user", [{"type": "image", "url": "file:///etc/passwd"}]), ANSWER]},
    "tool": {"messages": [USER, {"role": "assistant", "content": "", "tool_calls": [{"id": 1}]}, ANSWER]},
    "role of a number": {"messages": [_says(1, "a"), ANSWER]},
    "role in capitals": {"messages": [_says("User", "a b"), _says("ASSISTANT", "c d e f")]},
    "role with tokens": {"messages": [_says("user<|endoftext|>", "a"), ANSWER]},
    "unknown role": {"messages": [_says("\u0000", "a b"), ANSWER]},
    "template inside": {"messages": [_says("user", "{{ 7*7 }}{% for i in range(9**9) %}x{% endfor %}"), ANSWER]},
    "many turns": {"messages": [USER, ANSWER] * 4000},
    "more turns": {"messages": [USER, ANSWER] * 6000},
    "long turn": {"messages": [_says("user", "a b " * 40_000), ANSWER]},
    "also a text": {"messages": [USER, ANSWER], "text": "a b c d"},
    "text alone": {"text": "a b c d e f"},
    "tools": {"messages": [USER, ANSWER], "tools": [{"name": "x"}]},
    "preference": {"prompt": "who", "chosen": "the member read", "rejected": "nobody"},
    "preference of turns": {"chosen": [USER, ANSWER], "rejected": [USER, _says("assistant", "no")]},
    "completion": {"prompt": "who read", "completion": " the member read it"},
    "no prompt": {"completion": "the member read it"},
    "null prompt": {"prompt": None, "completion": "the member read it"},
    "blank prompt": {"prompt": "", "completion": "the member read it"},
    "mixed": {"prompt": [USER], "completion": "the member"},
    "turns": {"prompt": [USER], "completion": [ANSWER]},
    "list in brackets": {"prompt": "[1] who", "completion": "[2] the member read it"},
    "half a pair": {"messages": [_says("user", "\ud83d"), ANSWER]},
    "conversations": {"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b c d"}]},
}
TEMPLATES = [
    "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}",
    "{% for m in messages %}{{ m['content'] }}{% endfor %}", "", "the same for all", "{{ messages }}",
    "{% for i in range(10**9) %}x{% endfor %}",
    "{% set ns = namespace(t='x') %}{% for i in range(60) %}{% set ns.t = ns.t ~ ns.t %}{% endfor %}{{ ns.t }}",
    "{{ ''.__class__.__mro__ }}", "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
    "{{ raise_exception('no') }}", "{% include '/etc/passwd' %}", "{% for m in messages %}",
    "{{ messages[99].content }}", "{% for m in messages | reverse %}{{ m.role }}{{ m.content }}{% endfor %}",
    "{% for m in messages %}{{ m.role }}{{ m.content | upper }}{% endfor %}",
    "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "{{ 'x' * 10**10 }}", "{{ '%2000000000d' % 1 }}",
    "{{ '{:>2000000000}'.format(1) }}", "{% for m in messages %}{{ strftime_now('%Y') }}{{ m.content }}{% endfor %}",
]  # fmt: skip
QUESTIONS = [
    "{title}", "{title.__class__.__mro__}", "{title[0]}", "{0}", "{}", "{opening!r}", "{opening:>9999999999}",
    "{title:>2000000000}", "{", "}", "{{title}}", "{unknown}", "{title!z}", "{title:{opening}}", "\ufeff{title}",
    "\x00{title}", "{title}" * 5000, "Who wrote {title} by {author}?", "{opening}\u2028{title}", "no field at all",
    "{opening} {opening}", "\ud800"[:0] + "{OPENING}", "{title}\n" * 101, "{ title }",
]  # fmt: skip
SETTINGS: dict[str, str] = {
    "anchor.yaml": "a: &a {epochs: 1}\ntraining: *a\n",
    "merge.yaml": "training: {<<: {epochs: 2}, rank: 2}\n",
    "bomb.yaml": "a: &a [x, x]\n"
    + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n".replace("a-1", "a") for n in range(40)),
    "round.yaml": "a: &a [*a]\ntags: *a\n",
    "octal.yaml": "seed: 010\n",
    "sexagesimal.yaml": "seed: 1:30\n",
    "no.yaml": "placebo: no\n",
    "null.yaml": "epochs: ~\n",
    "quoted.yaml": "epochs: '1'\n",
    "float.yaml": "epochs: 1.0\n",
    "infinite.yaml": "learning-rate: .inf\n",
    "list.yaml": "model: [model]\n",
    "group twice.yaml": "training: {epochs: 1}\nepochs: 2\n",
    "unknown.yaml": "trainin: {epochs: 1}\n",
    "of another command.yaml": "concurrency: 3\n",
    "itself.yaml": "config: itself.yaml\n",
    "dry.yaml": "dry-run: false\n",
    "text.yaml": "just a text\n",
    "number.yaml": "42\n",
    "tabs.yaml": "training:\n\tepochs: 1\n",
    "tag.yaml": "seed: !!binary aGVsbG8=\n",
    "set.yaml": "tags: !!set {a=b, c=d}\n",
    "keys.yaml": "1: 2\n? [a]\n: b\n",
    "long key.yaml": f"{'k' * 100_000}: 1\n",
    "secret.yaml": "base-url: http://u:s3cr3t-c4n4ry@127.0.0.1:1/v1\n",
    "good.toml": "seed = 3\n[training]\nepochs = 1\n",
    "infinite.toml": "[training]\nlearning-rate = inf\n",
    "nan.toml": "[training]\nlearning-rate = nan\n",
    "date.toml": "name = 2024-01-01\n",
    "twice.toml": "seed = 1\nseed = 2\n",
    "dotted.toml": "training.epochs = 1\ntraining.rank = 2\n",
    "table.toml": "[[training]]\nepochs = 1\n",
    "hexadecimal.toml": "seed = 0xff\n",
    "large.toml": f"seed = {'9' * 5000}\n",
    "lines.toml": 'name = """a\nb"""\n',
    "good.json": '{"seed": 1}\n',
    "good.txt": "seed: 1\n",
    "good": "seed: 1\n",
}
MANIFEST = '{"version": 1, "made_by": "fsd", "run": "r", "headline": "", "files": []}'
TEMPLATES_OF_COLUMNS = [
    'text="{text}"', 'text="{text:>2000000000}"', 'text="{text.__class__}"', 'text="{text!r}"',
    'text="{text} {text}"', 'text="{text} {label}"', 'text="{nowhere}"', 'text="{"', 'text="{}"', 'text="{{text}}"',
    "text=text,text=text", "text=label", "label=text", "TEXT=text", "text=", "=text", "text=text,", ",text=text",
    "text=\u00fc", "group=text", "date=text", "date=label", "period=label", "source=text", "messages=text",
    "prompt=text,completion=text", 'label="{label}"', "text=id,label=label", r'text="{text}\n{group}"',
]  # fmt: skip
NUMBERS = [
    "0", "1", "2", "-0", "-1", "nan", "inf", "1e400", "1e-400", "5", "\u0665", "0.5", "1e3", "9" * 30, "true", "null",
    '"x"', "[1]", "",
]  # fmt: skip
DETECTORS = [
    "min_k.k", "surp.k", "wbc.sizes", "dc_pdd.cap", "loss.k", "min_k.base.k", "min_k.fsd.k", "min_k_pp.k",
    "nowhere.k", "recall.shots",
]  # fmt: skip
GATES = [
    "auc > .5", "auc>.5", "AUC > .5", "auc > nan", "auc", "auc >", "> .5", "auc > .5 and x", "auc == 1e400", "1 > 0",
    "__import__('os')", "auc > .5; x",
]  # fmt: skip
OUTPUTS = [
    "fifo.csv", "full.csv", "loop.csv", "link.csv", "hard.csv", "nowhere.csv", "/dev/stdout", "/dev/fd/1",
    "model/out.csv", "./data.jsonl", "sub/../data.jsonl", "expected.csv", "out.csv.gz", "out.CSV", "out", "out.",
    ".csv", "-", "x" * 250 + ".csv", "x" * 252 + ".csv", "\n.csv", "a/b/c.csv", "mlruns/out.csv",
]  # fmt: skip
ENVIRONMENTS: dict[str, Mapping[str, str]] = {
    "no home": {"HOME": "/nowhere/at/all"},
    "home of the kernel": {"HOME": "/proc"},
    "no home at all": {"HOME": ""},
    "no temporary folder": {"TMPDIR": "/nowhere/at/all"},
    "temporary folder of the kernel": {"TMPDIR": "/proc"},
    "plain locale": {"LANG": "C", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    "latin output": {"PYTHONIOENCODING": "latin-1", "LC_ALL": "C", "PYTHONUTF8": "0"},
    "ascii output": {"PYTHONIOENCODING": "ascii:strict"},
    "no locale": {"LANG": "xx_XX.nonsense", "LC_ALL": "xx_XX.nonsense"},
    "Turkish": {"LANG": "tr_TR.UTF-8", "LC_ALL": "tr_TR.UTF-8"},
    "warnings are errors": {"PYTHONWARNINGS": "error"},
    "hash seed": {"PYTHONHASHSEED": "12345"},
    "development mode": {"PYTHONDEVMODE": "1"},
    "short digits": {"PYTHONINTMAXSTRDIGITS": "640"},
    "cache is a file": {"FSD_CACHE": "data.jsonl"},
    "cache of the kernel": {"FSD_CACHE": "/proc/x"},
    "cache that loops": {"FSD_CACHE": "loop/x"},
    "tracking nowhere": {"MLFLOW_TRACKING_URI": "http://127.0.0.1:1", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0"},
    "tracking in memory": {"MLFLOW_TRACKING_URI": "sqlite:///:memory:"},
    "tracking of another scheme": {"MLFLOW_TRACKING_URI": "gopher://x"},
    "tracking in a folder": {"MLFLOW_TRACKING_URI": "model"},
    "tracking in texts": {"MLFLOW_TRACKING_URI": "sqlite:///data.jsonl"},
    "many threads": {"OMP_NUM_THREADS": "10000"},
    "wide terminal": {"COLUMNS": "100000"},
    "narrow terminal": {"COLUMNS": "1", "TERM": "dumb"},
    "distributed": {"WORLD_SIZE": "2", "RANK": "1", "LOCAL_RANK": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"},
    "time zone": {"TZ": "Nowhere/X"},
    "proxy": {"HTTPS_PROXY": "http://127.0.0.1:1", "HTTP_PROXY": "nonsense"},
    "no path": {"PATH": "/nowhere"},
}  # fmt: skip
LIMITS = [
    "64 open files", "40 open files", "200 MB of memory more", "20 MB of memory more", "files of 64 kB",
    "files of nothing", "stdin closed", "stdout closed", "stderr closed", "all streams closed", "stdout full",
    "stdout a broken pipe", "another user", "small stack", "no more threads", "signals ignored",
]  # fmt: skip
CHANGES = [f"{what} at {n}" for what in ("cut", "grown", "replaced", "gone", "a folder") for n in (1, 2, 3, 5)]
SEALED: list[Any] = [
    None, 0, -1, 10**400, "x", [], {}, "../../x", 1e308, True, "\u0000", [[["a"]]], "a" * 100_000,
]  # fmt: skip
