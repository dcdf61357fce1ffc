"""A causal language model: loading, the identity of its weights, tokenization, and the switch of its adapter."""

import contextlib
import json
import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.metadata import Distribution
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import torch
import xxhash

from fsd.config import ModelConfig
from fsd.distributed import num_processes
from fsd.errors import UsageError
from fsd.files import read_text
from fsd.models.devices import check_fits, resolve_precision
from fsd.models.weights import check_weights, reading
from fsd.net.hub import CONTEXTS, fingerprint, locate
from fsd.plugs import needed
from fsd.token_stats import IDS, Chat, Marked, Prompt, Prompts, TokenIds, written

os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")

DEFAULT_CONTEXT = 2048
"""Context length in tokens of a model whose configuration does not give one."""
BITS = (8, 4)
"""Quantization of the weights by bitsandbytes: 8 bits is LLM.int8 (arXiv 2208.07339), which quantizes the inputs of a
layer too; 4 bits is NormalFloat (QLoRA, arXiv 2305.14314, §3)."""
TOKENIZER_FILE = "tokenizer.json"
"""File in which the package tokenizers keeps all of a tokenizer."""
PROBE = ("Don't count 2023 or 650841823 twice:\n\n  two  spaces,\ta tab; naïve café, 東京, नमस्ते … ",)
"""What tokenizers differ in: apostrophes, digits, white space and letters of other scripts."""
TEMPLATE_FILE = "chat_template.jinja"
"""Name of a chat template beside a tokenizer, or beside an adapter that was trained by it."""
LARGEST_TEMPLATE = 2**18
"""Characters of a template; the longest in use have a tenth of it."""
TOKENIZED = 1000
"""Texts that are tokenized at a time; until then each takes 15 KiB."""
CAUSALITY = 1e-2
"""Largest change of earlier logits (share of the largest one) that rounding may cause when a later token changes."""


@dataclass(frozen=True)
class BaseIdentity:
    """Identity of a base model: the name that it was loaded by, its commit on the hub, and a hash of its weights."""

    id: str
    revision: str  # "" for a local model
    fingerprint: str


class ReadsChats(Protocol):
    """Writes chats by a template, and reads them by a tokenizer, as an extension does.

    Without a template, `has_template` is False, and all but that a UsageError, as for a chat that cannot be written.
    """

    tokenizer: Any
    template: str
    has_template: bool

    def marked(self, chat: Chat) -> Marked:
        """The tokens of a chat, and which of them are scored."""

    def asked(self, prompt: str) -> tuple[str, TokenIds]:
        """What a user asks and the opening of an answer, as a text and its token ids."""


@dataclass
class LanguageModel:
    """A loaded causal language model, with or without an adapter."""

    model: Any  # of transformers, or the peft model around it once an adapter is attached
    tokenizer: Any  # a fast one
    identity: BaseIdentity  # of the base
    start: int  # id of the start token before every text, and of padding: BOS, else EOS (arXiv 2409.14781, §3.2)
    context: int  # in tokens
    split_head: bool = True  # whether logits are exactly the output embedding of the last hidden state
    starts: bool = True  # whether the start token is put before every text; without it the first token is not scored
    settings: str = ""  # hash of the network's configuration as it was loaded
    intact: bool = True  # False once an adapter has changed the weights of the base: it gives no more numbers
    template: str | None = None  # of chats, in place of the tokenizer's own
    whole_chats: bool = False  # whether all of a chat is learned and scored, and not the answers alone

    @property
    def opening(self) -> TokenIds:
        """What every text begins with: the start token, or nothing."""
        if self.starts:
            return [self.start]
        return []

    @cached_property
    def chats(self) -> ReadsChats:
        """What reads chats by the model's template."""
        reader: ReadsChats = needed("reader", self.tokenizer, self.identity.id, self.template)
        return reader

    def read(self, prompts: Prompts) -> list[Prompt]:
        """The prompts, of which chats have their tokens; a UsageError names a chat that the template cannot write."""
        read = []
        for prompt in prompts:
            if prompt.chat:
                prompt = prompt._replace(chat=None, marked=self.chats.marked(prompt.chat))
            read.append(prompt)
        chats = [(prompt.text, prompt.marked.ids) for prompt in read if prompt.marked]
        check_embedded(self.tokenizer, self.embeddings, chats)
        return read

    @property
    def base(self) -> Any:
        """The transformers model without the adapter's wrapper."""
        if self.adapted:
            return self.model.get_base_model()
        return self.model

    @property
    def body(self) -> Any:
        """What reads tokens: the base without its head, or the whole of it if the head cannot be split off."""
        if self.split_head:
            return self.base.get_decoder()
        return self.base

    @property
    def head(self) -> Any:
        """The output embedding that makes logits of the body's states; None if these are logits already."""
        if self.split_head:
            return self.base.get_output_embeddings()
        return None

    @property
    def adapted(self) -> bool:
        """Whether an adapter is attached."""
        return hasattr(self.model, "get_base_model")

    @property
    def device(self) -> torch.device:
        """Device of the input embedding, to which inputs must be moved."""
        device: torch.device = self.base.get_input_embeddings().weight.device
        return device

    @property
    def dtype(self) -> str:
        """Precision of the computation, and of the weights that are not quantized."""
        return str(self.base.dtype).removeprefix("torch.")

    @property
    def bits(self) -> int | None:
        """Bits of the quantized weights; None without quantization."""
        for bits in BITS:
            if getattr(self.base, f"is_loaded_in_{bits}bit", False):
                return bits
        return None

    @property
    def precision(self) -> str:
        """Precision of the computation and the weights, e.g. "bfloat16" or "4bit-bfloat16"."""
        if self.bits:
            return f"{self.bits}bit-{self.dtype}"
        return self.dtype

    @property
    def embeddings(self) -> int:
        """Number of tokens that the network has an embedding of."""
        return int(self.base.get_input_embeddings().weight.shape[0])

    def tokens(self, texts: Sequence[str]) -> list[TokenIds]:
        """Token ids of each text; see `token_ids`."""
        rows = token_ids(self.tokenizer, texts)
        check_embedded(self.tokenizer, self.embeddings, zip(texts, rows, strict=True))
        return rows

    def check_intact(self) -> None:
        """Refuse a base whose weights an adapter has changed."""
        if not self.intact:
            raise UsageError(
                f"model {self.identity.id!r} must be loaded again, since an adapter has changed its weights"
            )

    @contextlib.contextmanager
    def state(self, *, tuned: bool) -> Iterator[Any]:
        """The model in evaluation mode without gradients, its adapter on (`tuned`) or off, then bitwise the base."""
        self.check_intact()
        if tuned and not self.adapted:
            raise ValueError("an adapter must be attached to score the tuned model")
        self.model.eval()
        switch = contextlib.nullcontext()
        if self.adapted and not tuned:
            switch = self.model.disable_adapter()
        with torch.inference_mode(), switch:
            yield self.base


def token_ids(tokenizer: Any, texts: Sequence[str]) -> list[TokenIds]:
    """Token ids of each text, or those that it holds (`IDS`), without special tokens: "<|endoftext|>" is characters."""
    # Characters, ids, characters, …: a text without ids is a single part.
    parts = list(map(IDS.split, texts))
    characters = [part for split in parts for part in split[::2]]
    options = {"add_special_tokens": False, "split_special_tokens": True, "verbose": False}
    tokenized = []
    for start in range(0, len(characters), TOKENIZED):
        tokenized += tokenizer(characters[start : start + TOKENIZED], **options)["input_ids"]
    remaining = iter(tokenized)
    rows = []
    for text, split in zip(texts, parts, strict=True):
        row = list(next(remaining))
        for ids in split[1::2]:
            row += map(int, ids.split(","))
            row += next(remaining)
        # What the tokenizer gives itself is always below.
        if len(split) > 1 and max(row) >= len(tokenizer):
            raise UsageError(f"token ids must be below {len(tokenizer)}, the size of the vocabulary; got {max(row)}")
        if not row:
            raise UsageError(f"a text must have at least one token; got {text[:40]!r}")
        rows.append(row)
    return rows


def same_vocabulary(tokenizer: Any, reference: Any) -> bool:
    """Whether each id that both have stands for one token; special tokens, which a fine-tuning adds, may differ."""
    special: set[int] = set()
    for decoder in (tokenizer.added_tokens_decoder, reference.added_tokens_decoder):
        special.update(number for number, token in decoder.items() if token.special)
    tokens = {number: token for token, number in reference.get_vocab().items() if number not in special}
    return all(tokens.get(number, token) == token for token, number in tokenizer.get_vocab().items())


def check_embedded(tokenizer: Any, embeddings: int, rows: Iterable[tuple[str, Sequence[int]]]) -> None:
    """Refuse texts with a token that was added to a tokenizer, and not to the embeddings of its model."""
    for text, row in rows:
        largest = max(row)
        if largest >= embeddings:
            token = tokenizer.convert_ids_to_tokens(largest)
            raise UsageError(
                f"each token must be one of the model's {embeddings:,}; {token!r} in {text[:40]!r} was added to the "
                f"tokenizer as number {largest:,}: resize the embeddings of the model, or take the token out"
            )


def readable(tokenizer: Any, texts: Sequence[str]) -> list[str]:
    """Texts of token ids in characters, each up to where these would get other ids; the rest of it stays ids."""

    def decoded(row: TokenIds) -> str:
        return str(tokenizer.decode(row, clean_up_tokenization_spaces=False))

    rows = token_ids(tokenizer, texts)
    # Ids of which there are no characters at all would be no text.
    whole = [decoded(row) or text for row, text in zip(rows, texts, strict=True)]
    again = token_ids(tokenizer, whole)

    def candidates(index: int) -> Iterator[str]:
        row = rows[index]
        if again[index] == row:
            yield whole[index]
            return
        same = _common(row, again[index])
        # One token less, too: the character at the border may have joined the next one.
        for border in (same, same - 1):
            if 0 < border < len(row):
                partly = decoded(row[:border]) + written(row[border:])
                if token_ids(tokenizer, [partly]) == [row]:
                    yield partly

    readable_texts = []
    for index, text in enumerate(texts):
        visible = filter(str.strip, candidates(index))
        readable_texts.append(next(visible, text))
    return readable_texts


def _common(row: Sequence[int], again: Sequence[int]) -> int:
    """Number of ids with which both begin; the length of `again` if it continues the row."""
    for index, pair in enumerate(zip(row, again, strict=False)):
        if pair[0] != pair[1]:
            return index
    return len(again)


@torch.inference_mode(mode=False)
def load(config: ModelConfig | str, *, start: int | None = None, **changes: Any) -> LanguageModel:
    """Load a causal language model: "embedded", "smollm2", a GGUF file, a folder or a hub id, or as configured.

    `changes` replace fields of the configuration, e.g. `device="cpu"`; `start` is the id of another start token than
    that of its tokenizer. A UsageError for an adapter folder, a folder without a model, missing weights, a model
    that is not causal or has no start token, a hub id that cannot be reached, an unknown device or dtype, too little
    memory, or variables of a launcher that are no numbers.
    """
    from transformers import AutoModelForCausalLM

    config = replace(ModelConfig(config) if isinstance(config, str) else config, **changes)
    spread = config.device == "spread"
    if spread and num_processes() > 1:
        raise UsageError(f"device spread must be used in one process, which takes all cards; got {num_processes()}")
    device, dtype = resolve_precision(config)
    options = {"dtype": dtype, **quantization_options(config.bits, dtype)}
    if spread:
        options["device_map"] = "auto"
    elif config.bits is not None:
        # accelerate needs the index of a card.
        if device.type == "cuda" and device.index is None:
            device = torch.device("cuda", torch.cuda.current_device())
        options["device_map"] = {"": device}
    folder, commit = locate(config.model, config.revision)
    check_fits(config)
    identity = BaseIdentity(id=config.model, revision=commit, fingerprint=fingerprint(folder))
    with _loading(config.model):
        network, report = AutoModelForCausalLM.from_pretrained(
            folder, output_loading_info=True, trust_remote_code=False, **options
        )
        tokenizer = read_tokenizer(folder)
        check_weights(f"model {config.model!r}", report)
        if "device_map" not in options:
            network.to(device)
        for module in network.modules():
            # On a CPU with AVX512-BF16 bitsandbytes would repack 4-bit weights in the first forward pass. Its kernel
            # for these has no gradient and rounds further: no training, and other numbers than on other machines.
            if hasattr(module, "support_avx512bf16_for_cpu"):
                module.support_avx512bf16_for_cpu = False
        language_model = assemble(network.eval(), tokenizer, identity, start, starts=config.first_token == "scored")
        language_model.whole_chats = config.chats == "whole"
        language_model.template = _given_template(config)
        return language_model


def wrap(network: Any, tokenizer: Any = None) -> LanguageModel:
    """A loaded model of transformers or peft, with its tokenizer, by default that of the folder or hub id it is from.

    A UsageError if it is no such model, comes from nowhere and has no tokenizer, or the tokenizer is no fast one.
    """
    base = network.get_base_model() if hasattr(network, "get_base_model") else network
    if not hasattr(base, "get_input_embeddings"):
        raise UsageError(
            "model must be embedded, a folder, a hub id, a loaded model, or a pair (model, tokenizer); got "
            f"{type(network).__name__}"
        )
    name = base.config.name_or_path
    commit = ""
    if tokenizer is None:
        if not name:
            raise UsageError(
                "a loaded model must come from a folder or hub id, or with its tokenizer, as (model, tokenizer); "
                f"{type(base).__name__} names none"
            )
        folder, commit = locate(name, None)
        with _loading(name):
            tokenizer = read_tokenizer(folder)
    elif not getattr(tokenizer, "is_fast", False):
        raise UsageError(f"tokenizer must be a fast one of transformers; got {type(tokenizer).__name__}")
    else:
        _check_against_file(tokenizer)
    name = name or type(base).__name__
    # Its weights may have changed since, so that they have no fingerprint and their scores are not cached.
    with _loading(name):
        language_model = assemble(base.eval(), tokenizer, BaseIdentity(name, commit, ""))
    language_model.model = network
    return language_model


def quantization_options(bits: int | None, dtype: torch.dtype) -> dict[str, Any]:
    """Options of transformers' `from_pretrained`; embeddings and norms are not quantized."""
    # It warns of its documented behaviour at every layer, also where the folder holds quantized weights already.
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)
    if bits is None:
        return {}
    if bits not in BITS:
        raise UsageError(f"bits must be 4 or 8; got {bits}")
    if find_spec("bitsandbytes") is None:
        raise UsageError(f"{bits}-bit weights must have the package bitsandbytes; it is not installed")
    config = {"quant_method": "bitsandbytes", f"load_in_{bits}bit": True}
    if bits == 4:
        config["bnb_4bit_quant_type"] = "nf4"
        config["bnb_4bit_compute_dtype"] = dtype
    return {"quantization_config": config}


def _loading(model: str) -> contextlib.AbstractContextManager[None]:
    return reading(f"model {model!r} must be a whole causal language model; ")


def read_tokenizer(folder: Path) -> Any:
    """The tokenizer in a folder; its tokens are those of `tokenizers.Tokenizer.from_file`, if there is such a file."""
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    if (folder / TOKENIZER_FILE).is_file():
        # The class that transformers 5 chooses builds a pre-tokenizer of its own in place of that in the file, for half
        # of the pairs of a type of model and a class: https://github.com/huggingface/transformers/issues/45488.
        tokenizer = PreTrainedTokenizerFast.from_pretrained(folder, trust_remote_code=False)
        if tokenizer.bos_token is None or tokenizer.eos_token is None:
            _name_special_tokens(tokenizer, folder)
    else:
        _check_sentencepiece(folder)
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    if not tokenizer("A text.", add_special_tokens=False)["input_ids"]:
        raise ValueError(f"the tokenizer's files are missing or empty in {folder}")
    if not tokenizer.is_fast:
        raise ValueError(f"the tokenizer must be a fast one (tokenizer.json); that in {folder} is not")
    return tokenizer


def _check_against_file(tokenizer: Any) -> None:
    """Refuse a loaded tokenizer that makes other tokens than the file that it comes from."""
    name = tokenizer.name_or_path
    try:
        with _loading(name):
            from_file = read_tokenizer(locate(name, None, weights=False)[0])
    except UsageError:  # it comes from nowhere
        return
    if token_ids(from_file, PROBE) != token_ids(tokenizer, PROBE):
        raise UsageError(
            f"the tokenizer must make the tokens of {TOKENIZER_FILE} in {name}; {type(tokenizer).__name__} of "
            f"transformers makes others: take PreTrainedTokenizerFast.from_pretrained({name!r})"
        )


def _name_special_tokens(tokenizer: Any, folder: Path) -> None:
    """Give a tokenizer the special tokens that its class names by default, as that of GPT-2, and it has itself."""
    from transformers import AutoTokenizer

    try:
        named = AutoTokenizer.from_pretrained(folder, trust_remote_code=False).special_tokens_map
    except Exception:  # a class that does not suit the file has nothing to say of it
        return
    vocabulary = tokenizer.get_vocab()
    for name, token in named.items():
        if isinstance(token, str) and getattr(tokenizer, name, token) is None and token in vocabulary:
            setattr(tokenizer, name, token)


def _check_sentencepiece(folder: Path) -> None:
    """Refuse a tokenizer that is read by a package which is not installed."""
    for file in sorted(folder.glob("*.model")):
        # A SentencePiece model begins with the tag of its first piece, a file of tiktoken with a token in base64.
        sentencepiece = file.read_bytes()[:1] == b"\n"
        needed = ["sentencepiece", "protobuf"] if sentencepiece else ["tiktoken"]
        missing = [package for package in needed if not any(Distribution.discover(name=package))]
        if missing:
            raise UsageError(
                f"the tokenizer in {folder} must be a {TOKENIZER_FILE}, or {file.name} with the packages that read it: "
                f"pip install {' '.join(needed)}"
            )


def load_tokenizer(model: str, *, revision: str | None = None) -> tuple[Any, int]:
    """The tokenizer of a model and the size of the model's vocabulary, without loading weights."""
    folder, config = _config(model, revision)
    with _loading(model):
        return read_tokenizer(folder), int(config.get_text_config().vocab_size)


def load_chats(config: ModelConfig) -> tuple[ReadsChats, int]:
    """What reads chats as a model does, and the context of the model in tokens, without loading weights."""
    tokenizer, _ = load_tokenizer(config.model, revision=config.revision)
    reader = needed("reader", tokenizer, config.model, _given_template(config))
    return reader, context_of(config.model, revision=config.revision)


def _given_template(config: ModelConfig) -> str | None:
    if config.chat_template:
        return read_text(config.chat_template, largest=LARGEST_TEMPLATE)
    return None


def template_beside(folder: Path) -> str | None:
    """The chat template that an adapter brings along; None without one."""
    file = folder / TEMPLATE_FILE
    if file.is_file():
        return read_text(file, largest=LARGEST_TEMPLATE)
    return None


def context_of(model: str, *, revision: str | None = None) -> int:
    """The context of a model in tokens, without loading it."""
    _, config = _config(model, revision)
    with _loading(model):
        return _context(config)


def _config(model: str, revision: str | None) -> tuple[Path, Any]:
    """Folder of a model, perhaps without weights, and its configuration."""
    from transformers import AutoConfig

    folder, _ = locate(model, revision, weights=False)
    with _loading(model):
        return folder, AutoConfig.from_pretrained(folder, trust_remote_code=False)


def outline(model: str, revision: str | None = None) -> Any:
    """The network of a model on this machine without its weights: its modules have names and shapes alone."""
    from transformers import AutoModelForCausalLM

    _, config = _config(model, revision)
    with _loading(model), torch.device("meta"):
        return AutoModelForCausalLM.from_config(config, trust_remote_code=False)


def start_token(tokenizer: Any, name: str) -> int:
    """Id of the start token of a model's tokenizer: BOS, else EOS; a UsageError if it has neither."""
    # Not by `or`: a start token often has the id 0.
    for start in (tokenizer.bos_token_id, tokenizer.eos_token_id):
        if start is not None:
            return int(start)
    raise UsageError(
        f"the tokenizer of {name!r} must have a BOS or EOS token to start a text; it has none: --first-token given "
        "scores without one"
    )


def assemble(
    network: Any, tokenizer: Any, identity: BaseIdentity, start: int | None = None, *, starts: bool = True
) -> LanguageModel:
    """Combine a transformers model and its tokenizer, and check how the model computes its logits.

    `start` is the start token, by default that of the tokenizer; `starts` says whether it is put before every text.
    """
    named = (tokenizer.bos_token_id, tokenizer.eos_token_id)
    if start is None and not starts and named == (None, None):
        # It pads, and stands before no text.
        start = 0
    if start is None:
        start = start_token(tokenizer, identity.id)
    language_model = LanguageModel(network, tokenizer, identity, start, _context(network.config), starts=starts)
    rows = language_model.embeddings
    if max(start + 1, tokenizer.vocab_size) > rows:
        raise UsageError(
            f"the tokenizer of {identity.id!r} must fit the model's {rows} embeddings; it has {tokenizer.vocab_size}"
        )
    config = network.config.to_dict()
    # A copy in another folder, or written by another version, gives the same scores.
    config.pop("_name_or_path", None)
    config.pop("transformers_version", None)
    language_model.settings = xxhash.xxh3_128_hexdigest(json.dumps(config, sort_keys=True, default=str).encode())
    language_model.split_head = has_split_head(language_model)
    return language_model


@torch.inference_mode()
def has_split_head(language_model: LanguageModel) -> bool:
    """Whether the head applied to the hidden state gives the logits bitwise; refuse those that see later tokens."""
    network = language_model.base
    start = language_model.start
    (text,) = language_model.tokens(["The quick brown fox jumps over it."])
    ids = [start, *text][: language_model.context]
    # The same tokens but for the last one: what comes before it must not see the change.
    x = torch.tensor([ids, [*ids[:-1], start]], device=language_model.device)
    logits = network(input_ids=x, use_cache=False).logits
    logits_before, changed = logits[:, :-1].float()
    change = (logits_before - changed).abs().max()
    if change > CAUSALITY * logits_before.abs().max():
        name = language_model.identity.id
        raise UsageError(f"model {name!r} must predict from left to right; its logits depend on later tokens")
    decoder = network.get_decoder()
    head = network.get_output_embeddings()
    if decoder is None or decoder is network or head is None:
        return False
    states = decoder(input_ids=x, use_cache=False).last_hidden_state
    # Mamba keeps its states in float32, and casts them for its head.
    if states.dtype != head.weight.dtype:
        return False
    return torch.equal(head(states).to(logits.device), logits)


def _context(config: Any) -> int:
    text = config.get_text_config()
    for name in CONTEXTS:
        value = getattr(text, name, None)
        if isinstance(value, int) and value > 1:
            return value
    return DEFAULT_CONTEXT


def rope_switch(config: Any) -> int | None:
    """Length beyond which longrope (arXiv 2402.13753) and dynamic encode all positions of a forward pass otherwise."""
    text = config.get_text_config()
    parameters = getattr(text, "rope_parameters", None) or {}
    # One for all layers, or one for each type of layer.
    for part in (parameters, *parameters.values()):
        kind = str(part.get("rope_type")) if isinstance(part, Mapping) else ""
        if "dynamic" in kind or kind == "longrope":
            return int(part.get("original_max_position_embeddings") or text.max_position_embeddings)
    return None
