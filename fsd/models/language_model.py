"""Load a causal language model, say exactly which one it is, and switch an adapter on and off."""

import contextlib
import os
import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from fsd import distributed as processes
from fsd.errors import UsageError
from fsd.models import quantization as rounding
from fsd.models.adapters import BaseIdentity, adapter_fingerprint, attach, check_base, detach, save_adapter
from fsd.models.quantization import bits_of
from fsd.models.tokens import token_ids
from fsd.net.hub import fingerprint, first_line, locate

__all__ = [
    "BaseIdentity",
    "LanguageModel",
    "adapter_fingerprint",
    "assemble",
    "attach",
    "check_base",
    "detach",
    "load",
    "load_tokenizer",
    "save_adapter",
    "torch_device",
]

os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")

DEFAULT_CONTEXT = 2048
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
CAUSALITY = 1e-2
"""Largest change of earlier logits (share of the largest one) that rounding may cause when a later token changes."""


@dataclass
class LanguageModel:
    """A loaded causal language model, with or without an adapter.

    Attributes:
        model: the transformers model, or the peft model around it once an adapter is attached.
        tokenizer: its fast tokenizer.
        identity: which base it is.
        start: id of the start token put before every text: BOS if there is one, else EOS (DC-PDD §3.2).
        context: most tokens that one forward pass may read.
        split_head: whether logits = output embedding of the last hidden state, so that they can be made in chunks.
    """

    model: Any
    tokenizer: Any
    identity: BaseIdentity
    start: int
    context: int
    split_head: bool = True

    @property
    def base(self) -> Any:
        """The transformers model, whether or not an adapter is around it."""
        return self.model.get_base_model() if self.adapted else self.model

    @property
    def adapted(self) -> bool:
        """Whether an adapter is attached."""
        return hasattr(self.model, "get_base_model")

    @property
    def device(self) -> torch.device:
        """Where the input embedding lives, and inputs belong."""
        device: torch.device = self.base.get_input_embeddings().weight.device
        return device

    @property
    def dtype(self) -> str:
        """What is computed with, and what weights that are not rounded are kept in."""
        return str(self.base.dtype).removeprefix("torch.")

    @property
    def bits(self) -> int | None:
        """The bits that the weights were rounded to; None if they were not."""
        return bits_of(self.base)

    @property
    def precision(self) -> str:
        """All that rounds the numbers: the dtype, and before it the bits of the weights, if they were rounded."""
        return f"{self.bits}bit-{self.dtype}" if self.bits else self.dtype

    def tokens(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of each text, see `fsd.models.tokens.token_ids`.

        Raises:
            UsageError: for a text of no tokens.
        """
        return token_ids(self.tokenizer, texts)

    @contextlib.contextmanager
    def state(self, *, tuned: bool) -> Iterator[Any]:
        """The model for scoring (eval mode, no gradients), with its adapter on (`tuned`) or off.

        Off is the base bitwise: the adapter's modules are bypassed, not subtracted.

        Raises:
            ValueError: if `tuned` and no adapter is attached.
        """
        if tuned and not self.adapted:
            raise ValueError("an adapter must be attached to score the tuned model")
        self.model.eval()
        off = self.model.disable_adapter() if self.adapted and not tuned else contextlib.nullcontext()
        with torch.inference_mode(), off:
            yield self.base


def load(
    model: str,
    *,
    revision: str | None = None,
    device: str = "auto",
    dtype: str = "auto",
    bits: int | None = None,
) -> LanguageModel:
    """Load a causal language model.

    Args:
        model: "embedded", "embedded-twin", a local folder or a hub id.
        revision: branch, tag or commit of a hub id.
        device: "auto" (cuda if there is one, else cpu), "spread" (over all cards, then memory, for a model larger
            than one card; in one process only) or a torch device.
        dtype: "auto" (bfloat16 on cuda, else float32), "float32", "bfloat16" or "float16".
        bits: 8 or 4 to round the weights to so many bits (needs bitsandbytes); None leaves them.

    Raises:
        UsageError: for an adapter folder, a folder without a model, missing weights, a model that is not causal or
            has no start token, a hub id that cannot be reached, an unknown device or dtype.
    """
    from transformers import AutoModelForCausalLM

    if device == "spread" and processes.size() > 1:
        raise UsageError(f"device spread must be used in one process, which takes all cards; got {processes.size()}")
    where = torch_device("auto" if device == "spread" else device)
    kind = _dtype(dtype, where)
    options: dict[str, Any] = {"dtype": kind, **rounding.options(bits, kind)}
    if device == "spread":
        options["device_map"] = "auto"
    elif bits is not None:  # accelerate compares numbers of cards
        alone = where.type == "cuda" and where.index is None
        options["device_map"] = {"": torch.cuda.current_device() if alone else where}
    folder, commit = locate(model, revision)
    identity = BaseIdentity(id=model, revision=commit, fingerprint=fingerprint(folder))
    with _quiet_loading(), _loading(model):
        network, report = AutoModelForCausalLM.from_pretrained(
            folder, output_loading_info=True, trust_remote_code=False, **options
        )
        tokenizer = _tokenizer(folder)
    if report["missing_keys"]:
        missing = sorted(report["missing_keys"])
        raise UsageError(f"model {model!r} must have all its weights; {len(missing)} missing, e.g. {missing[0]}")
    if "device_map" not in options:
        network.to(where)
    rounding.keep_trainable(network)
    return assemble(network.eval(), tokenizer, identity)


@contextlib.contextmanager
def _quiet_loading() -> Iterator[None]:
    """Without the tables that transformers logs about weights: what is wrong with them is raised here."""
    from transformers.utils import logging

    level = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(level)


@contextlib.contextmanager
def _loading(model: str) -> Iterator[None]:
    """Turns what transformers raises for files that are no causal language model into a line for the user."""
    from safetensors import SafetensorError

    try:
        yield
    except (OSError, ValueError, RuntimeError, ImportError, SafetensorError, pickle.UnpicklingError) as error:
        raise UsageError(f"model {model!r} must be a whole causal language model; {first_line(error)}") from error


def _tokenizer(folder: Path) -> Any:
    """The tokenizer in a folder; without its files transformers would make up an empty one."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    if not tokenizer("A text.", add_special_tokens=False)["input_ids"]:
        raise ValueError(f"the tokenizer's files are missing or empty in {folder}")
    return tokenizer


def load_tokenizer(model: str, *, revision: str | None = None) -> tuple[Any, int]:
    """The tokenizer of a model and the size of the model's vocabulary, without its weights.

    Raises:
        UsageError: as `load` does.
    """
    from transformers import AutoConfig

    folder, _ = locate(model, revision, weights=False)
    with _quiet_loading(), _loading(model):
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
        tokenizer = _tokenizer(folder)
    return tokenizer, int(config.get_text_config().vocab_size)


def assemble(network: Any, tokenizer: Any, identity: BaseIdentity) -> LanguageModel:
    """Put a loaded transformers model and tokenizer together, and check how its logits come about.

    Raises:
        UsageError: if the tokenizer has neither BOS nor EOS or does not fit the model, or the model reads ahead.
    """
    start = tokenizer.bos_token_id if tokenizer.bos_token_id is not None else tokenizer.eos_token_id
    if start is None:
        raise UsageError(f"the tokenizer of {identity.id!r} must have a BOS or EOS token to start a text; it has none")
    rows = network.get_input_embeddings().weight.shape[0]
    if max(start + 1, tokenizer.vocab_size) > rows:
        raise UsageError(
            f"the tokenizer of {identity.id!r} must fit the model's {rows} embeddings; it has {tokenizer.vocab_size}"
        )
    language_model = LanguageModel(network, tokenizer, identity, start, _context(network.config))
    language_model.split_head = _examine(language_model)
    return language_model


@torch.inference_mode()
def _examine(language_model: LanguageModel) -> bool:
    """Whether hidden state × head gives the model's own logits, bitwise; not so where they are capped or scaled.

    Raises:
        UsageError: if earlier logits change with the last token, as in a masked language model.
    """
    network = language_model.base
    ids = [language_model.start, *language_model.tokens(["The quick brown fox jumps over it."])[0]]
    ids = ids[: language_model.context]
    x = torch.tensor([ids, [*ids[:-1], language_model.start]], device=language_model.device)
    theirs = network(input_ids=x, use_cache=False).logits
    one, other = theirs[:, :-1].float()
    if (one - other).abs().max() > CAUSALITY * one.abs().max():
        name = language_model.identity.id
        raise UsageError(f"model {name!r} must read from left to right; its logits depend on later tokens")
    decoder, head = network.get_decoder(), network.get_output_embeddings()
    if decoder is None or decoder is network or head is None:
        return False
    return torch.equal(head(decoder(input_ids=x, use_cache=False).last_hidden_state).to(theirs.device), theirs)


def _context(config: Any) -> int:
    text = config.get_text_config()
    for name in ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "seq_length"):
        value = getattr(text, name, None)
        if isinstance(value, int) and value > 1:
            return value
    return DEFAULT_CONTEXT


def torch_device(device: str) -> torch.device:
    """The torch device of that name; "auto" takes cuda where there is one.

    Raises:
        UsageError: for a device that torch does not know or the machine does not have.
    """
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        where = torch.device(device)
        if where.type == "meta":
            raise RuntimeError("it holds no numbers")
        torch.empty(1, device=where)
    except (RuntimeError, AssertionError) as error:
        raise UsageError(f"device must be auto, spread, cpu or cuda[:N] of this machine; got {device!r}") from error
    return where


def _dtype(dtype: str, device: torch.device) -> torch.dtype:
    if dtype == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    if dtype not in DTYPES:
        raise UsageError(f"dtype must be one of auto, {', '.join(DTYPES)}; got {dtype!r}")
    return DTYPES[dtype]
