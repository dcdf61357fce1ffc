"""Load a causal language model, say exactly which one it is, and switch an adapter on and off."""

import contextlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from fsd.errors import UsageError
from fsd.hub import fingerprint, first_line, locate

os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")

BASE_FILE = "base.json"
DEFAULT_CONTEXT = 2048
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True)
class BaseIdentity:
    """Which base model it is: the name it was asked for by, the hub commit, and a hash of its weights."""

    id: str
    revision: str
    fingerprint: str


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
        return hasattr(self.model, "peft_config")

    @property
    def device(self) -> torch.device:
        """Where the input embedding lives, and inputs belong."""
        device: torch.device = self.base.get_input_embeddings().weight.device
        return device

    def tokens(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of each text, no special tokens added.

        Raises:
            UsageError: for a text of no tokens.
        """
        ids: list[list[int]] = self.tokenizer(list(texts), add_special_tokens=False, verbose=False)["input_ids"]
        for text, row in zip(texts, ids, strict=True):
            if not row:
                raise UsageError(f"a text must have at least one token; got {text[:40]!r}")
        return ids

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


def load(model: str, *, revision: str | None = None, device: str = "auto", dtype: str = "auto") -> LanguageModel:
    """Load a causal language model.

    Args:
        model: "embedded", "embedded-twin", a local folder or a hub id.
        revision: branch, tag or commit of a hub id.
        device: "auto" (cuda if there is one, else cpu) or a torch device.
        dtype: "auto" (bfloat16 on cuda, else float32), "float32", "bfloat16" or "float16".

    Raises:
        UsageError: for an adapter folder, a folder without a model, missing weights, a model without any start
            token, a hub id that cannot be reached, an unknown device or dtype.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer

    where = torch_device(device)
    precision = _dtype(dtype, where)
    folder, commit = locate(model, revision)
    try:
        network, report = AutoModelForCausalLM.from_pretrained(folder, dtype=precision, output_loading_info=True)
        tokenizer = AutoTokenizer.from_pretrained(folder)
    except (OSError, ValueError) as error:
        raise UsageError(f"model {model!r} must be a causal language model; {first_line(error)}") from error
    if report["missing_keys"]:
        missing = sorted(report["missing_keys"])
        raise UsageError(f"model {model!r} must have all its weights; {len(missing)} missing, e.g. {missing[0]}")
    network.to(where).eval()
    identity = BaseIdentity(id=model, revision=commit, fingerprint=fingerprint(folder))
    return assemble(network, tokenizer, identity)


def load_tokenizer(model: str, *, revision: str | None = None) -> tuple[Any, int]:
    """The tokenizer of a model and the size of the model's vocabulary, without its weights.

    Raises:
        UsageError: as `load` does.
    """
    from transformers import AutoConfig, AutoTokenizer

    folder, _ = locate(model, revision)
    try:
        config, tokenizer = AutoConfig.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    except (OSError, ValueError) as error:
        raise UsageError(f"model {model!r} must have a tokenizer; {first_line(error)}") from error
    return tokenizer, int(config.get_text_config().vocab_size)


def assemble(network: Any, tokenizer: Any, identity: BaseIdentity) -> LanguageModel:
    """Put a loaded transformers model and tokenizer together, and check how its logits come about.

    Raises:
        UsageError: if the tokenizer has neither BOS nor EOS.
    """
    start = tokenizer.bos_token_id if tokenizer.bos_token_id is not None else tokenizer.eos_token_id
    if start is None:
        raise UsageError(f"the tokenizer of {identity.id!r} must have a BOS or EOS token to start a text; it has none")
    language_model = LanguageModel(network, tokenizer, identity, start, _context(network.config))
    language_model.split_head = _head_is_last(language_model)
    return language_model


@torch.inference_mode()
def _head_is_last(language_model: LanguageModel) -> bool:
    """Whether hidden state × head gives the model's own logits; not so where logits are capped or scaled."""
    network = language_model.base
    decoder, head = network.get_decoder(), network.get_output_embeddings()
    if decoder is None or decoder is network or head is None:
        return False
    ids = [language_model.start, *language_model.tokens(["The quick brown fox jumps over it."])[0]]
    x = torch.tensor([ids], device=language_model.device)
    ours = head(decoder(input_ids=x, use_cache=False).last_hidden_state).float()
    theirs = network(input_ids=x, use_cache=False).logits.float()
    return ours.shape == theirs.shape and bool(torch.allclose(ours, theirs, atol=1e-4, rtol=1e-4))


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
        torch.empty(1, device=where)
    except (RuntimeError, AssertionError) as error:
        raise UsageError(f"device must be auto, cpu or cuda[:N] of this machine; got {device!r}") from error
    return where


def _dtype(dtype: str, device: torch.device) -> torch.dtype:
    if dtype == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    if dtype not in DTYPES:
        raise UsageError(f"dtype must be one of auto, {', '.join(DTYPES)}; got {dtype!r}")
    return DTYPES[dtype]


def attach(language_model: LanguageModel, folder: Path) -> None:
    """Attach a saved adapter, refusing one that was trained on another base.

    Raises:
        UsageError: if the folder holds no adapter, or its base is another than the loaded one.
    """
    from peft import PeftModel

    if not (folder / "adapter_config.json").exists():
        raise UsageError(f"adapter must be a folder with adapter_config.json; {folder} has none")
    check_base(language_model.identity, folder)
    if language_model.adapted:
        language_model.model = language_model.model.unload()
    try:
        language_model.model = PeftModel.from_pretrained(language_model.model, str(folder))
    except (ValueError, RuntimeError) as error:
        base = language_model.identity.id
        raise UsageError(
            f"adapter must fit its base model; {folder} does not fit {base!r}: {first_line(error)}"
        ) from error
    language_model.model.eval()


def check_base(identity: BaseIdentity, folder: Path) -> None:
    """Refuse an adapter whose recorded base has other weights than `identity`.

    Raises:
        UsageError: if the base is another, or none is recorded.
    """
    file = folder / BASE_FILE
    if not file.exists():
        raise UsageError(f"adapter must say which base it was trained on; {folder} has no {BASE_FILE}")
    trained = BaseIdentity(**json.loads(file.read_text()))
    if trained.fingerprint != identity.fingerprint:
        raise UsageError(
            f"adapter must be used on its own base model {trained.id!r} (weights {trained.fingerprint[:12]}); "
            f"got {identity.id!r} (weights {identity.fingerprint[:12]})"
        )


def save_adapter(language_model: LanguageModel, folder: Path) -> None:
    """Save the attached adapter: safetensors and config only, with the identity of its base beside it."""
    language_model.model.save_pretrained(str(folder))
    (folder / "README.md").unlink(missing_ok=True)
    (folder / BASE_FILE).write_text(json.dumps(asdict(language_model.identity), indent=2) + "\n")
