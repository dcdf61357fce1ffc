"""Models and data files on disk and on a hub, and what happens without a network."""

import gzip
import json
import os
import shutil
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
import torch
from huggingface_hub import save_torch_state_dict
from safetensors.torch import load_file, save_file

from fsd.errors import UsageError
from fsd.net.data_files import data_files
from fsd.net.hub import default_folder, fingerprint, hub_reachable, locate, model_size

SHA = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def copy(tiny: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny, tmp_path / "copy"))


def test_a_user_without_a_home_is_asked_for_a_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As in a container that runs as a number."""
    for name in ("HOME", "XDG_CACHE_HOME", "FSD_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    with pytest.raises(UsageError, match=r"a user without a home must be in FSD_CACHE, or --cache none; "):
        default_folder()
    monkeypatch.setenv("FSD_CACHE", str(tmp_path))
    assert default_folder() == tmp_path


def test_the_fingerprint_depends_neither_on_place_nor_on_parts(tiny: Path, copy: Path) -> None:
    assert fingerprint(copy) == fingerprint(tiny)
    weights = load_file(copy / "model.safetensors")
    (copy / "model.safetensors").unlink()
    save_torch_state_dict(dict(reversed(weights.items())), copy, max_shard_size="100KB")
    assert fingerprint(copy) == fingerprint(tiny)
    save_file({"left.over": torch.ones(1)}, copy / "consolidated.safetensors")
    assert fingerprint(copy) == fingerprint(tiny)
    next(copy.glob("model-00002-of-*")).unlink()
    with pytest.raises(UsageError, match="lacks model-00002-of-"):
        fingerprint(copy)


def test_the_fingerprint_sees_one_changed_number_name_or_byte(tiny: Path, copy: Path) -> None:
    weights = load_file(copy / "model.safetensors")
    name = "gpt_neox.layers.1.mlp.dense_h_to_4h.bias"
    weights[name][0] += 1e-6
    save_file(weights, copy / "model.safetensors")
    assert fingerprint(copy) != fingerprint(tiny)
    weights[name][0] -= 1e-6
    weights["renamed"] = weights.pop(name)
    save_file(weights, copy / "model.safetensors")
    assert fingerprint(copy) != fingerprint(tiny)
    (copy / "model.safetensors").unlink()
    torch.save(weights, copy / "pytorch_model.bin")
    before = fingerprint(copy)
    (copy / "pytorch_model.bin").write_bytes((copy / "pytorch_model.bin").read_bytes()[:-1] + b"x")
    assert fingerprint(copy) != before


def test_a_damaged_safetensors_file_is_refused(copy: Path) -> None:
    headers = [
        "[]",
        "3",
        '{"a": 3}',
        '{"a": ' * 50_000,
        '{"a": {"dtype": "F32", "shape": [1], "data_offsets": [-4, 0]}}',
    ]
    contents = [len(header).to_bytes(8, "little") + header.encode() for header in headers]
    for content in (*contents, (2**60).to_bytes(8, "little") + b"{}", b"\xff" * 100, b""):
        (copy / "model.safetensors").write_bytes(content)
        with pytest.raises(UsageError, match=r"must be a whole safetensors file; .* is damaged"):
            fingerprint(copy)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_a_model_whose_files_have_no_end_is_refused(copy: Path, name: str) -> None:
    (copy / name).unlink()
    os.mkfifo(copy / name)
    with pytest.raises(UsageError, match="is none; it is no regular file"):
        model_size(str(copy))


def test_an_index_that_makes_no_sense_is_refused(copy: Path) -> None:
    (copy / "model.safetensors").unlink()
    maps = ("[]", '{"a": "../other/model.safetensors"}', '{"a": "/etc/passwd"}')
    cases = dict.fromkeys(("{}", *(f'{{"weight_map": {m}}}' for m in maps)), "must map tensors to files of its own")
    cases |= dict.fromkeys(
        ("{", "[" * 100_000, "[]"), "index of weights must be a JSON object; .*json is none; content:"
    )
    for content, message in cases.items():
        (copy / "model.safetensors.index.json").write_text(content)
        with pytest.raises(UsageError, match=message):
            fingerprint(copy)


def test_a_configuration_that_names_other_weights_or_code_is_refused(copy: Path) -> None:
    file, kernel = copy / "config.json", "must run without code from the hub; .* names a kernel"
    config = json.loads(file.read_text())
    for changes, message in (
        ({"transformers_weights": "other.safetensors"}, "must hold its weights under their usual names"),
        ({"attn_implementation": "somebody/kernel"}, kernel),
        ({"_attn_implementation": "kernels-community/flash-attn2"}, kernel),
        ({"attn_implementation": {"text_config": "somebody/kernel"}}, kernel),
        ({"text_config": {"experts_implementation": "somebody/kernel"}}, kernel),
    ):
        file.write_text(json.dumps({**config, **changes}))
        with pytest.raises(UsageError, match=message):
            locate(str(copy))


def test_a_model_that_is_not_there_or_is_none_is_refused(tmp_path: Path) -> None:
    cases = dict.fromkeys(["/no/such/folder", "./no", "~/no/such", "a/b/c", " "], "there is no folder")
    cases |= {"what a name!": "'what a name!' must be a folder or a hub id", str(tmp_path): "has no config"}
    for model, message in cases.items():
        with pytest.raises(UsageError, match=message):
            locate(model)
    for content in ("[]", "{", "[" * 100_000, ""):
        (tmp_path / "config.json").write_text(content)
        with pytest.raises(UsageError, match="configuration must be a JSON"):
            locate(str(tmp_path))


def test_the_size_of_a_model_is_that_of_its_weights(copy: Path) -> None:
    size = model_size(str(copy))
    assert size is not None
    count = sum(tensor.numel() for tensor in load_file(copy / "model.safetensors").values())
    assert (size.size, size.parameters) == ((copy / "model.safetensors").stat().st_size, count)
    assert model_size("some/model") is model_size("api:some") is None
    (copy / "model.safetensors").unlink()
    with pytest.raises(UsageError, match="must hold weights"):
        model_size(str(copy))


@pytest.fixture
def refusing() -> Iterator[str]:
    """Address of a port on which nothing listens."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{unused.getsockname()[1]}"


def test_without_network_it_fails_at_once_with_a_hint(refusing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "ENDPOINT", refusing)
    begin = time.monotonic()
    with pytest.raises(UsageError, match=r"'some/model' must be a folder, .* or --model embedded"):
        locate("some/model")
    with pytest.raises(UsageError, match="the hub must be within reach"):
        data_files("hf://datasets/some/corpus/a.jsonl")
    with pytest.raises(UsageError, match=r"must be given as hf://datasets/OWNER/NAME\[@REVISION\]/PATH; got hf:"):
        data_files("hf://datasets/nobody.jsonl")
    assert time.monotonic() - begin < 5


def test_the_hub_or_the_proxy_before_it_must_answer(refusing: str, serve, monkeypatch) -> None:
    from huggingface_hub import constants

    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    listening, _ = serve({})
    for endpoint, offline, expected in ((listening, False, True), (listening, True, False), (refusing, False, False)):
        monkeypatch.setattr(constants, "ENDPOINT", endpoint)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", offline)
        assert hub_reachable() is expected
    monkeypatch.setattr(constants, "ENDPOINT", "http://hub.invalid")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setenv("all_proxy", listening)
    assert hub_reachable()
    monkeypatch.setenv("no_proxy", "hub.invalid")
    assert not hub_reachable()


LOCATE = """
import json, os, sys

os.environ["HF_HUB_OFFLINE"], *models = json.loads(sys.argv[1])
from fsd.errors import UsageError
from fsd.net.hub import locate

for options in models:
    try:
        folder, commit = locate(**options)
        files = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
        print(json.dumps([commit, str(folder), sorted(files)]))
    except UsageError as error:
        print(json.dumps(str(error)))
"""


def test_a_hub_model_is_downloaded_once_and_cached(serve, in_fresh_process, tiny: Path) -> None:
    own = {path.name: path.read_bytes() for path in tiny.iterdir()}
    others = dict.fromkeys(["flax_model.msgpack", "onnx/model.safetensors", "pytorch_model.bin"], b"other format")
    url, requests = serve({"some/model": own | others})
    for offline in ("0", "1"):
        requests.clear()
        ((commit, folder, files),) = in_fresh_process(LOCATE, url, [offline, {"model": "some/model"}])
        assert bool(requests) == (offline == "0")
        assert (commit, files) == (SHA, sorted(own))
        assert fingerprint(Path(folder)) == fingerprint(tiny)


def test_bin_weights_are_the_last_resort_and_a_tokenizer_needs_none(serve, in_fresh_process, tiny: Path) -> None:
    own = {path.name.replace("model.safetensors", "pytorch_model.bin"): path.read_bytes() for path in tiny.iterdir()}
    url, _ = serve({"some/model": own})
    models = [{"model": "some/model", "weights": False}, {"model": "some/model", "revision": "v1"}]
    bare, whole, message = in_fresh_process(LOCATE, url, ["0", *models, {"model": "some/other"}])
    assert set(own) - set(bare[2]) == {"pytorch_model.bin"}
    assert set(whole[2]) == set(own)
    assert message.startswith("model 'some/other' must be a folder or a hub id; ")
    assert "\n" not in message


TEXTS = pd.DataFrame({"text": [f"text {i} of the corpus" for i in range(5000)]})

READ = """
import json, sys
from fsd.data.passages import TextStream
from fsd.errors import UsageError

for place in json.loads(sys.argv[1]):
    try:
        corpus = TextStream([place])
        texts = [passage.text for passage in corpus]
        print(json.dumps([[f.url for f in corpus.files], corpus.size, corpus.done, len(texts), texts[-1]]))
    except UsageError as error:
        print(json.dumps(str(error)))
"""


def test_files_are_streamed_at_their_commit(serve, in_fresh_process):
    lines = TEXTS.to_json(orient="records", lines=True).encode()
    packed = gzip.compress(lines)
    table = TEXTS.to_parquet(row_group_size=1000)
    files = {"en/a-0.json.gz": packed, "en/a-1.json.gz": packed, "all.parquet": table, "cut.jsonl.gz": packed[:-200]}
    files["plain.jsonl"] = lines
    endpoint, asked = serve({"some/corpus": files})
    base = "hf://datasets/some/corpus"
    places = [f"{base}/en/a-*.json.gz", f"{base}@main/all.parquet", f"{base}/cut.jsonl.gz", f"{base}/en/b.jsonl"]
    places += ["hf://datasets/no/body/a.jsonl", f"{base}/plain.jsonl"]
    many, one, cut, missing, absent, plain = in_fresh_process(READ, endpoint, places)
    pinned = f"hf://datasets/some/corpus@{SHA}"
    urls = [f"{pinned}/en/a-0.json.gz", f"{pinned}/en/a-1.json.gz"]
    assert many == [urls, 2 * len(packed), 2 * len(packed), 2 * len(TEXTS), TEXTS.text.iloc[-1]]
    assert one == [[f"{pinned}/all.parquet"], len(table), len(table), len(TEXTS), TEXTS.text.iloc[-1]]
    assert plain == [[f"{pinned}/plain.jsonl"], len(lines), len(lines), len(TEXTS), TEXTS.text.iloc[-1]]
    assert cut.startswith(f"{pinned}/cut.jsonl.gz must be a whole file of gzip of jsonl in UTF-8; ")
    assert missing == f"dataset some/corpus must have files en/b.jsonl; it has none of that name at commit {SHA}"
    assert absent.startswith("dataset no/body must be on the hub and open to you; ")
    whole = [line for line in asked if line.startswith("GET") and line.endswith("a-0.json.gz") and "resolve" in line]
    assert len(whole) == 1
