"""What every test needs: two cores shared without spinning, no network, no tracking outside a temporary folder."""

import atexit
import contextlib
import functools
import gc
import hashlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

# Before torch starts its threads: spinning ones stall two processes on two cores.
os.environ["OMP_WAIT_POLICY"] = "passive"
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
os.environ.pop("MLFLOW_TRACKING_URI", None)
os.environ.pop("COLUMNS", None)  # which xdist sets: a table as wide as a pipe allows, not as a terminal
os.environ["FSD_CACHE"] = tempfile.mkdtemp(prefix="fsd-cache-")

import numpy as np
import pytest
from filelock import FileLock
from hypothesis import settings

from fsd.net.http import Clock

gc.disable()  # until all is imported
settings.register_profile("fsd", derandomize=True, database=None, deadline=None)  # the same examples every time
settings.load_profile("fsd")

EXTENSIONS = "tests/extensions"
LONGEST = [
    *(f"{EXTENSIONS}/{name}" for name in ("study/test_lab.py", "study/test_small_scale.py")),
    "tests/test_real_model.py",
    "tests/test_first_use.py",
    "tests/pipelines/test_docs.py",
    "tests/pipelines/test_bad_input.py",
    "tests/test_benchmarks.py",
    *(f"tests/pipelines/{name}" for name in ("detect/test_detect.py", "test_adapter_kinds.py", "test_golden.py")),
]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--regenerate", action="store_true", help="record tests/golden/json anew")


def pytest_collection_finish() -> None:
    gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start the longest files first, so that no process waits for them at the end; needs --no-loadscope-reorder."""
    order = {file: at for at, file in enumerate(LONGEST)}
    items.sort(key=lambda item: order.get(item.nodeid.partition("::")[0], len(LONGEST)))


atexit.register(shutil.rmtree, os.environ["FSD_CACHE"], ignore_errors=True)
ROOT = Path(__file__).parents[1]


def skip_reasons(terminal: pytest.TerminalReporter) -> Counter[str]:
    """Reason → number of tests that were skipped for it."""
    reasons: Counter[str] = Counter()
    for report in terminal.stats.get("skipped", []):
        reasons[str(report.longrepr[2]).removeprefix("Skipped: ")] += 1
    return reasons


def may_be_skipped(reason: str) -> bool:
    """Whether tests/skips.txt lists the reason, whose first words are enough."""
    lines = (ROOT / "tests" / "skips.txt").read_text(encoding="utf-8").splitlines()
    return any(reason.startswith(line) for line in lines if line and not line.startswith("#"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what was left out, and why."""
    reasons = skip_reasons(terminalreporter)
    if reasons:
        terminalreporter.section("skipped")
    for reason, count in sorted(reasons.items()):
        listed = "" if may_be_skipped(reason) else " (not in tests/skips.txt)"
        terminalreporter.write_line(f"{count:4} {reason}{listed}")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Fail where everything is installed (FSD_NO_SKIPS=1, as in .ci/run), and a test was skipped for another reason."""
    terminal = session.config.pluginmanager.get_plugin("terminalreporter")
    # A process of xdist reports to the main one, which has all reasons.
    if terminal is None or hasattr(session.config, "workerinput") or os.environ.get("FSD_NO_SKIPS") != "1":
        return
    if exitstatus == pytest.ExitCode.OK and not all(may_be_skipped(reason) for reason in skip_reasons(terminal)):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture(scope="session")
def root() -> Path:
    """The root of the checkout."""
    return ROOT


@pytest.fixture(scope="session", autouse=True)
def new_stores_are_copies(once: Callable[..., Path]) -> Iterator[None]:
    """MLflow takes seconds to create the tables of a store, and hundreds of tests begin with a new one."""
    from fsd.tracking import store

    create = store._create

    def first(folder: Path) -> None:
        with contextlib.chdir(folder), pytest.MonkeyPatch.context() as patch:
            patch.setattr(store, "_create", create)
            patch.delenv("MLFLOW_TRACKING_URI", raising=False)
            store.open_store()

    @functools.wraps(create)
    def copied(database: Path) -> None:
        shutil.copy(once("store", first) / "mlruns" / "mlflow.db", database)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "_create", copied)
        yield


@pytest.fixture(scope="module", autouse=True)
def what_stays_is_counted_once() -> None:
    """Every training ends with a full garbage collection, which walks through all that was ever imported, for a second.

    Frozen objects are left out of it.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture
def default_signals() -> Iterator[None]:
    """Signals end the processes that a test starts, also where the tests run under nohup or in the background."""
    numbers = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL, signal.SIGHUP: signal.SIG_DFL}
    kept = {number: signal.signal(number, handler) for number, handler in numbers.items()}
    yield
    for number, handler in kept.items():
        signal.signal(number, handler)


@pytest.fixture(scope="session")
def torchrun() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs a script or `-m module` with its arguments in two processes: `torchrun("job.py", "--flag", cwd=folder)`."""

    def run(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
        launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
        return subprocess.run(
            [*launcher, *arguments],
            cwd=cwd,
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            timeout=240,
            check=False,
        )

    return run


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], str]]:
    """`postgres("name")` creates a database in a PostgreSQL server of this session, and returns its URL."""
    pytest.importorskip("psycopg", reason="psycopg, the driver of PostgreSQL, is not installed")
    if not (shutil.which("initdb") or list(Path("/usr/lib/postgresql").glob("*/bin/initdb"))):
        pytest.skip("PostgreSQL is not installed")
    memory = Path("/dev/shm")  # a database waits for its disk; and a socket's path must be short
    folder = Path(tempfile.mkdtemp(prefix="fsd-pg-", dir=memory if memory.is_dir() else "/tmp"))
    folder.chmod(0o755)
    script = ["bash", str(ROOT / "scripts" / "services.sh")]
    try:
        started = subprocess.run([*script, "start-postgres", str(folder)], capture_output=True, text=True, check=False)
        assert started.returncode == 0, started.stderr

        def create(name: str) -> str:
            import psycopg

            url = f"postgresql:///{{}}?host={folder}/socket&user=fsd"
            with psycopg.connect(url.format("postgres"), autocommit=True) as connection:
                connection.execute(f"create database {name}")
            return url.format(name)

        yield create
    finally:
        subprocess.run([*script, "stop", str(folder)], check=True)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def benchmark_data() -> Path:
    """The folder of real benchmark text beside the checkout, where there is one."""
    folder = ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("the real benchmark text is not beside this checkout")
    return folder


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Callable[[Path], object]], Path]:
    """`once(name, make)` gives a folder that the first process of the tests fills by `make(folder)`."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    def give(name: str, make: Callable[[Path], object]) -> Path:
        folder, made = shared / name, shared / f"{name}.made"
        with FileLock(shared / f"{name}.lock"):
            if not made.exists():
                folder.mkdir()
                make(folder)
                made.touch()
        return folder

    return give


@pytest.fixture(scope="session")
def tiny(once: Callable[..., Path]) -> Path:
    """A folder with a random GPT-NeoX of 60 k parameters, 300 tokens and a context of 48."""
    return once("tiny", lambda folder: make_architecture(folder, "gpt_neox", seed=0))


@pytest.fixture(scope="session")
def other(once: Callable[..., Path]) -> Path:
    """The same model with other weights."""
    return once("other", lambda folder: make_architecture(folder, "gpt_neox", seed=1))


@pytest.fixture(scope="session")
def make_model(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Gives a folder with a tiny random model of an architecture: `make_model("llama", seed=0, **config)`."""
    made: dict[str, Path] = {}

    def make(architecture: str, *, seed: int = 0, **config: Any) -> Path:
        key = repr((architecture, seed, sorted(config.items())))
        if key not in made:
            folder = tmp_path_factory.mktemp("models") / architecture
            made[key] = make_architecture(folder, architecture, seed=seed, **config)
        return made[key]

    return make


NEOX_NAMES = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 48,
}
GPT2_NAMES = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_inner": 64, "n_positions": 48}
SETTINGS: dict[str, dict[str, Any]] = {
    "gpt_neox": NEOX_NAMES,
    "llama": {**NEOX_NAMES, "num_key_value_heads": 2},
    "qwen2": {**NEOX_NAMES, "num_key_value_heads": 2},
    "mixtral": {**NEOX_NAMES, "num_key_value_heads": 2, "num_local_experts": 4},
    "gemma2": {**NEOX_NAMES, "num_key_value_heads": 2, "head_dim": 8, "final_logit_softcapping": 3.0},
    "phi3": {**NEOX_NAMES, "num_key_value_heads": 4, "pad_token_id": 0},
    "gpt2": GPT2_NAMES,
    "gptj": {**GPT2_NAMES, "rotary_dim": 4},
    "opt": {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "ffn_dim": 64,
        "max_position_embeddings": 48,
        "word_embed_proj_dim": 32,
        "pad_token_id": 0,
    },
    "bert": {**NEOX_NAMES, "pad_token_id": 0},
    "mamba": {"hidden_size": 32, "num_hidden_layers": 2, "state_size": 8},
    "rwkv": {"hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 64, "context_length": 48},
}


def make_architecture(folder: Path, architecture: str, *, seed: int, **config: Any) -> Path:
    """60 k parameters, 300 tokens, a context of 48; weights of deviation 0.2, so that no token is like another."""
    import torch
    from transformers import CONFIG_MAPPING, MODEL_FOR_CAUSAL_LM_MAPPING, AutoModelForCausalLM

    from fsd.models.pretraining import train_tokenizer

    kind = CONFIG_MAPPING[architecture]
    width = "init_std" if architecture == "opt" else "initializer_range"
    settings = {"vocab_size": 300, "bos_token_id": 0, "eos_token_id": 0, width: 0.2, **SETTINGS[architecture], **config}
    torch.manual_seed(seed)
    assert kind in MODEL_FOR_CAUSAL_LM_MAPPING
    AutoModelForCausalLM.from_config(kind(**settings)).save_pretrained(folder)
    texts = ["the score of an unseen text moves more than the score of a member"] * 4
    train_tokenizer(texts, 300).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def make_gguf(make_model: Callable[..., Path]) -> Callable[..., Path]:
    """Writes the tiny Llama as a GGUF file, as llama.cpp does: `make_gguf(path, quantization="Q4_1")`."""
    gguf = pytest.importorskip("gguf", reason="the extra gguf is not installed")

    def write(path: Path, *, quantization: str = "Q4_1", architecture: str = "llama", tokenizer: str = "gpt2") -> Path:
        folder = make_model("llama")
        config, bpe = (json.loads((folder / name).read_text()) for name in ("config.json", "tokenizer.json"))
        out = gguf.GGUFWriter(path, architecture)
        out.add_name("tiny")
        out.add_context_length(config["max_position_embeddings"])
        out.add_embedding_length(config["hidden_size"])
        out.add_block_count(config["num_hidden_layers"])
        out.add_feed_forward_length(config["intermediate_size"])
        out.add_head_count(config["num_attention_heads"])
        out.add_head_count_kv(config["num_key_value_heads"])
        out.add_layer_norm_rms_eps(config["rms_norm_eps"])
        out.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
        out.add_vocab_size(config["vocab_size"])
        out.add_tokenizer_model(tokenizer)
        tokens = sorted(bpe["model"]["vocab"], key=bpe["model"]["vocab"].get)
        out.add_token_list(tokens)
        out.add_token_types([3, *[1] * (len(tokens) - 1)])  # the first is a control token
        out.add_token_merges([" ".join(merge) for merge in bpe["model"]["merges"]])
        out.add_bos_token_id(0)
        out.add_eos_token_id(0)
        for name, weight in _gguf_tensors(folder, config):
            kind = gguf.GGMLQuantizationType["F32" if weight.ndim == 1 else quantization]
            out.add_tensor(name, gguf.quantize(weight, kind), raw_dtype=kind)
        out.write_header_to_file()
        out.write_kv_data_to_file()
        out.write_tensors_to_file()
        out.close()
        return path

    return write


def _gguf_tensors(folder: Path, config: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Weights under llama.cpp's names; it keeps the two halves of a rotated head as pairs."""
    from safetensors.numpy import load_file

    names = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.o_proj": "attn_output"}
    names |= {f"self_attn.{x}_proj": f"attn_{x}" for x in "qkv"} | {f"mlp.{x}_proj": f"ffn_{x}" for x in ("up", "down")}
    names |= {"mlp.gate_proj": "ffn_gate", "model.norm": "output_norm", "lm_head": "output"}
    names |= {"model.embed_tokens": "token_embd", "model.layers": "blk"}
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    for long, weight in load_file(folder / "model.safetensors").items():
        name = long
        for theirs, ours in names.items():
            name = name.replace(theirs, ours)
        count = next((count for part, count in heads.items() if part in name), None)
        if count:
            halves = weight.reshape(count, 2, -1, weight.shape[-1])
            weight = halves.swapaxes(1, 2).reshape(weight.shape)
        yield name, weight


@dataclass
class Reply:
    """Status, body and headers of a fake service's reply; `length` overrides Content-Length, for truncated ones."""

    body: bytes
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    length: int | None = None


Answer = Callable[[str, dict[str, Any]], Reply | bytes | None]


@dataclass
class FakeService:
    """Requests so far (path and query), and the faulty replies that come before the next proper ones."""

    url: str = ""
    requests: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    faults: list[Reply] = field(default_factory=list)


@dataclass
class FakeTime:
    """Time that passes only by waiting; `waits` are the seconds of each wait."""

    now: float = 1_790_000_000.0  # 21 September 2026
    waits: list[float] = field(default_factory=list)

    def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds

    @property
    def clock(self) -> Clock:
        return Clock(monotonic=lambda: self.now, wall=lambda: self.now, sleep=self.sleep)


@pytest.fixture
def fake_time() -> FakeTime:
    """A clock that waits in no time."""
    return FakeTime()


@pytest.fixture
def reply() -> type[Reply]:
    """The class of a fake service's replies."""
    return Reply


@pytest.fixture
def listen() -> Iterator[Callable[[type[BaseHTTPRequestHandler]], str]]:
    """Starts a local server, and gives its URL."""
    servers = []

    def start(handler: type[BaseHTTPRequestHandler]) -> str:
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        return f"http://127.0.0.1:{server.server_port}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture
def service(listen: Callable[[type[BaseHTTPRequestHandler]], str]) -> Callable[[Answer], FakeService]:
    """Starts a local server whose replies are a function of path and query, or JSON (None is a 404), after `faults`."""

    def start(answer: Answer) -> FakeService:
        fake = FakeService()

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self.reply(dict(parse_qsl(urlsplit(self.path).query)))

            def do_POST(self) -> None:
                self.reply(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

            def reply(self, query: dict[str, Any]) -> None:
                path = urlsplit(self.path).path
                fake.requests.append((path, query))
                fake.headers.append(dict(self.headers))
                content = fake.faults.pop(0) if fake.faults else answer(path, query)
                sent = (
                    content if isinstance(content, Reply) else Reply(content or b"Not Found", 200 if content else 404)
                )
                self.send_response(sent.status)
                length = len(sent.body) if sent.length is None else sent.length
                for name, value in {"Content-Length": str(length), **sent.headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(sent.body)
                self.close_connection = sent.length is not None

            def log_message(self, *_: Any) -> None:
                pass

        fake.url = listen(Handler)
        return fake

    return start


@pytest.fixture(scope="session")
def prose() -> Callable[..., str]:
    """Gives an English-looking text of a seed that shares no run of words with that of another seed."""
    common = ["the", "of", "and", "to", "in", "is", "that", "for", "it", "was", "on", "with", "as", "by", "at", "from"]

    def make(seed: int, count: int = 40, topic: str = "w") -> str:
        rng = random.Random(seed)
        return " ".join(
            rng.choice(common) if rng.random() < 0.4 else f"{topic}{rng.randrange(10**6)}" for _ in range(count)
        )

    return make


SENTENCE = "The score of an unseen Text moves more than that of a member when models Read it again"


@pytest.fixture(scope="session")
def make_rows() -> Callable[..., list[dict[str, object]]]:
    """Gives labelled texts of 14 words, members and non-members and all seeds alike: `make_rows(number, seed)`."""

    def rows(texts: int, seed: int) -> list[dict[str, object]]:
        rng = np.random.default_rng(seed)
        return [
            {
                "text": " ".join([*rng.choice(SENTENCE.split(), 14), _number(f"{seed}-{i}")]),
                "label": i % 2,
                "date": f"20{20 + i % 2}-01-01",
                "group": f"g{seed}-{i}",
            }
            for i in range(texts)
        ]

    return rows


def _number(key: str) -> str:
    """Six random digits that make a text the only one of its kind, and a full stop."""
    return f"{random.Random(key).randrange(10**6):06}."


@pytest.fixture(scope="session")
def masked_lm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A masked language model of 19 words with random weights."""
    import torch
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
    from transformers import BertConfig, BertForMaskedLM, PreTrainedTokenizerFast

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "sat", "on", "a", "mat", "dog", "ran"]
    words += ["##s", "paris", ",", ".", "!", "old"]
    pieces = Tokenizer(models.WordPiece({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    pieces.normalizer = normalizers.BertNormalizer(lowercase=True)
    pieces.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    pieces.decoder = decoders.WordPiece()
    pieces.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=pieces,
        unk_token="[UNK]",
        pad_token="[PAD]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
    )
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(words),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=16,
    )
    place = tmp_path_factory.mktemp("masked")
    BertForMaskedLM(config).save_pretrained(place)
    tokenizer.save_pretrained(place)
    return place


SHA = "0123456789abcdef0123456789abcdef01234567"


class Hub(BaseHTTPRequestHandler):
    """As much of the hub's protocol as loading models and data files needs.

    GET api/KIND/ID[/revision/R], its tree, POST paths-info, and resolve with the hub's headers.

    Every repository is a dataset and a model. A full commit is answered as itself; any other revision is at `SHA`.
    """

    protocol_version = "HTTP/1.1"
    repositories: dict[str, dict[str, bytes]]
    gated: Sequence[str]
    asked: list[str]

    def _send(self, status, body, **headers):
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), "Content-Type": "application/json", **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _json(self, value):
        self._send(200, json.dumps(value).encode())

    def _missing(self, code, status=404):
        self._send(status, json.dumps({"error": code}).encode(), X_Error_Code=code, X_Error_Message=code)

    def _entries(self, files, under="", recursive=True):
        """Folders and files below a folder, as the hub lists them."""
        above = {"/".join(path.split("/")[:n]) for path in files for n in range(1, path.count("/") + 1)}
        listed: list[dict[str, object]] = [
            {"type": "directory", "path": path, "size": 0, "oid": hashlib.sha1(path.encode()).hexdigest()}
            for path in sorted(above)
        ]
        listed += [
            {"type": "file", "path": path, "size": len(content), "oid": hashlib.sha1(content).hexdigest()}
            for path, content in files.items()
        ]
        start = f"{under}/" if under else ""
        return [
            entry
            for entry in listed
            if str(entry["path"]).startswith(start) and (recursive or "/" not in str(entry["path"])[len(start) :])
        ]

    def _answer(self, body=b""):
        url = urlsplit(self.path)
        self.asked.append(f"{self.command} {url.path}")
        parts = unquote(url.path).strip("/").split("/")
        api = parts[0] == "api"
        parts = parts[1:] if api else parts
        if not api and parts[0] != "datasets":  # files of models have no prefix
            parts = ["models", *parts]
        name = "/".join(parts[1:3])
        files = self.repositories.get(name)
        if parts[0] not in ("datasets", "models") or files is None:
            self._missing("RepoNotFound")
            return
        verb, rest = (parts[3] if len(parts) > 3 else "revision"), parts[5:]
        commit = parts[4] if len(parts) > 4 and re.fullmatch("[0-9a-f]{40}", parts[4]) else SHA
        if not api and name in self.gated:
            self._missing("GatedRepo", 403)
        elif api and verb == "revision":
            self._json(
                {
                    "id": name, "sha": commit, "private": False, "gated": False, "disabled": False, "tags": [],
                    "downloads": 0, "likes": 0, "lastModified": "2024-01-01T00:00:00.000Z",
                    "siblings": [{"rfilename": path} for path in files],
                }
            )  # fmt: skip
        elif api and verb == "tree":
            under = "/".join(rest)
            found = self._entries(files, under, "recursive=true" in url.query.lower())
            self._json(found) if found or not under else self._missing("EntryNotFound")
        elif api and verb == "paths-info":
            try:
                wanted = json.loads(body)["paths"]
            except ValueError:
                wanted = [
                    unquote(v) for k, _, v in (p.partition("=") for p in body.decode().split("&")) if k == "paths"
                ]
            self._json([entry for entry in self._entries(files) if entry["path"] in wanted])
        elif not api and verb == "resolve" and "/".join(rest) in files:
            content = files["/".join(rest)]
            tag = hashlib.sha1(content).hexdigest()
            self._resolved(content, ETag=f'"{tag}"', X_Repo_Commit=commit, Content_Type="application/octet-stream")
        else:
            self._missing("EntryNotFound")

    def _resolved(self, content, **headers):
        """A file, or the part of it that is asked for."""
        part = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if not part:
            self._send(200, content, **headers)
            return
        begin, end = int(part[1]), min(int(part[2] or len(content)), len(content) - 1)
        headers["Content_Range"] = f"bytes {begin}-{end}/{len(content)}"
        self._send(206, content[begin : end + 1], **headers)

    def do_GET(self):
        self._answer()

    def do_HEAD(self):
        self._answer()

    def do_POST(self):
        self._answer(self.rfile.read(int(self.headers.get("Content-Length", 0))))

    def log_message(self, *_):
        pass


@pytest.fixture
def serve(listen):
    """Starts a hub with the files of repositories; gives its URL and the list of its requests."""

    def start(repositories, gated=()):
        asked: list[str] = []
        handler = type("OneHub", (Hub,), {"repositories": repositories, "asked": asked, "gated": gated})
        return listen(handler), asked

    return start


@pytest.fixture
def in_fresh_process(root, tmp_path):
    """Runs code with a hub's URL and an argument, and gives the JSON lines it prints.

    The libraries read the hub's address when they are imported, so a test process cannot change it.
    """

    def run(code, endpoint, argument):
        kept = {k: v for k, v in os.environ.items() if not k.startswith("HF_") and not k.lower().endswith("_proxy")}
        environment = kept | {
            "HF_ENDPOINT": endpoint,
            "HF_HOME": str(tmp_path / "hub"),
            "HF_HUB_DISABLE_TELEMETRY": "1",
        }
        command = [sys.executable, "-c", code, json.dumps(argument)]
        done = subprocess.run(
            command, env=environment, cwd=root, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    return run
