"""Pretraining of a small language model from scratch, so that its members are known."""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence

from fsd.config import AdapterConfig, Recipe
from fsd.errors import UsageError
from fsd.models.adapters import peft_config
from fsd.models.devices import torch_device
from fsd.models.finetuning import IGNORED, Piece, pieces_of
from fsd.models.language_model import BaseIdentity, LanguageModel, assemble, start_token
from fsd.progress import progress
from fsd.token_stats import AnyTexts, Prompt, TokenIds

StepLog = Callable[[float, int], None]
"""Receives the loss of an optimiser step, and the step, counted from 1."""
Read = Callable[[Sequence[Any]], list[Piece]]
"""What is trained on → its tokens, and which of them are learned."""
END = "<|endoftext|>"
WARMUP = 0.05
"""Share of the optimiser steps used for warm-up."""
BYTES = 256
"""Smallest byte-level vocabulary, without the end token."""
HEAD = 8
"""Divisor of the size of an attention head: a quarter of it is rotated, in pairs."""


def check_recipe(recipe: Recipe) -> None:
    """Refuse the first number of a recipe by which no model can be made and trained."""
    lowest = {
        "hidden_size": 1,
        "layers": 1,
        "heads": 1,
        "batch_size": 1,
        "vocabulary": BYTES + 1,
        # The start token, and one that it predicts.
        "context": 2,
        "passes": 0,
        "exposures": 0,
        "seed": 0,
    }
    for name, least in lowest.items():
        value = getattr(recipe, name)
        if not least <= value < 2**32:
            raise UsageError(f"{name} must be from {least} to 2^32 - 1; got {value}")
    if recipe.hidden_size % (HEAD * recipe.heads):
        raise UsageError(
            f"hidden_size must be a multiple of {HEAD} for each of the heads; got {recipe.hidden_size} for "
            f"{recipe.heads} heads"
        )
    if not recipe.passes and not recipe.exposures:
        raise UsageError("passes or exposures must be above 0, so that something is trained on; both are 0")


def readings(members: int, background: int, recipe: Recipe) -> int:
    """Number of texts that are read, each as often as the recipe says."""
    return background * recipe.passes + members * recipe.exposures


def train_tokenizer(texts: Sequence[str], vocabulary: int) -> Any:
    """Train a byte-level BPE tokenizer; texts must not include members, which its merges would reveal."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[END],
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    bpe.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=bpe, bos_token=END, eos_token=END, pad_token=END)


def pretrain(
    members: Sequence[str],
    background: Sequence[str],
    recipe: Recipe,
    *,
    tokenizer: Any = None,
    device: str = "auto",
    log: StepLog | None = None,
) -> LanguageModel:
    """Train a GPT-NeoX model on `exposures` copies of each member and `passes` copies of the background, shuffled."""
    from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

    check_recipe(recipe)
    if not background:
        raise UsageError("pretraining must have background text; got none")
    tokenizer = tokenizer or train_tokenizer(background, recipe.vocabulary)
    order = list(background) * recipe.passes + list(members) * recipe.exposures
    random.Random(recipe.seed).shuffle(order)
    end = tokenizer.eos_token_id
    width = recipe.hidden_size
    shape = {
        "hidden_size": width,
        "num_hidden_layers": recipe.layers,
        "num_attention_heads": recipe.heads,
        "intermediate_size": 4 * width,
        "max_position_embeddings": recipe.context,
    }
    config = GPTNeoXConfig(
        vocab_size=len(tokenizer), tie_word_embeddings=True, bos_token_id=end, eos_token_id=end, **shape
    )
    torch.manual_seed(recipe.seed)
    network = GPTNeoXForCausalLM(config).to(torch_device(device))
    read = partial(_rows, tokenizer, context=recipe.context)
    _train(network, read, order, recipe, log)
    # A model that was saved in half precision would score nothing.
    if not all(parameter.half().isfinite().all() for parameter in network.parameters()):
        raise _diverged("weights are not finite in half precision after the last step", recipe)
    return assemble(network.eval(), tokenizer, BaseIdentity("pretrained", "", ""))


def continue_pretraining(
    language_model: LanguageModel,
    texts: AnyTexts,
    recipe: Recipe,
    *,
    lora: AdapterConfig | None = None,
    bar_shown: bool = True,
) -> None:
    """Train further once on each text: all weights, or a `lora` that is then merged; the fingerprint is cleared.

    Texts begin with the start token and are cut at the context of the recipe. Of prompts, such as chats, is learned
    what an adapter would learn (see `fsd.models.finetuning.finetune`), up to the context of the model.
    """
    from peft import get_peft_model

    order = list(texts)
    random.Random(recipe.seed).shuffle(order)
    torch.manual_seed(recipe.seed)
    network = language_model.model
    if lora:
        network = get_peft_model(network, peft_config(language_model, lora, steps=len(order)))
    else:
        network.requires_grad_(True)
    read = partial(_rows_and_pieces, language_model, context=recipe.context)
    _train(network.train(), read, order, recipe, bar_shown=bar_shown)
    if lora:
        network = language_model.model = network.merge_and_unload()
    network.eval().requires_grad_(False)
    # The scores of the old weights must not be taken from the cache.
    language_model.identity = replace(language_model.identity, fingerprint="")


def _rows(tokenizer: Any, texts: Sequence[str], *, context: int) -> list[Piece]:
    """Each text after the start token, cut at the context."""
    start = start_token(tokenizer, "pretraining")
    rows = []
    for ids in tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"]:
        row = [start, *ids][:context]
        # No end of a text is learned.
        learned = [token != start for token in row]
        rows.append(Piece(row, learned))
    return rows


def _rows_and_pieces(language_model: LanguageModel, texts: AnyTexts, *, context: int) -> list[Piece]:
    """Texts as rows, and prompts as an adapter learns them."""
    pieces: list[Piece] = []
    for text in texts:
        if isinstance(text, Prompt):
            pieces += pieces_of(language_model, [text])
        else:
            pieces += _rows(language_model.tokenizer, [text], context=context)
    return pieces


def _train(
    network: Any, read: Read, order: AnyTexts, recipe: Recipe, log: StepLog | None = None, bar_shown: bool = True
) -> None:
    """One pass over what is read in its order, with a cosine schedule."""
    from transformers import get_cosine_schedule_with_warmup

    steps = math.ceil(len(order) / recipe.batch_size)
    optimizer = torch.optim.AdamW(network.parameters(), lr=recipe.learning_rate, weight_decay=recipe.weight_decay)
    schedule = get_cosine_schedule_with_warmup(optimizer, round(WARMUP * steps), steps)
    size = recipe.batch_size
    with progress(steps, "pretraining", "step", shown=bar_shown) as bar:
        for step in range(1, steps + 1):
            batch = list(order[(step - 1) * size : step * size])
            loss = _step(network, read(batch))
            if not math.isfinite(loss):
                raise _diverged(f"the loss is {loss} at step {step} of {steps}", recipe)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            if log is not None:
                log(loss, step)
            bar.update(1)


def _diverged(what: str, recipe: Recipe) -> UsageError:
    return UsageError(f"training must converge; {what}: lower the learning_rate, which is {recipe.learning_rate}")


def _step(network: Any, batch: Sequence[Piece]) -> float:
    """Compute the gradients of the mean loss over the learned tokens of a batch; returns it in nats per token."""
    x = _padded([piece.ids for piece in batch], 0)
    labels = _padded([piece.labels for piece in batch], IGNORED)
    logits = network(input_ids=x[:, :-1].to(network.device), use_cache=False).logits.float()
    target = labels[:, 1:].to(logits.device)
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=IGNORED)
    loss.backward()
    # A single odd batch would throw a small model off.
    torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
    return float(loss.detach())


def _padded(rows: Sequence[TokenIds], value: int) -> torch.Tensor:
    """Rows of one length, filled up at the end; no token sees what comes after it."""
    return pad_sequence(list(map(torch.tensor, rows)), True, value)
