"""Pretraining of a small language model from scratch, so that its members are known."""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence

from fsd.config import AdapterConfig, Recipe
from fsd.errors import UsageError
from fsd.models.adapters import peft_config
from fsd.models.language_model import (
    BaseIdentity,
    LanguageModel,
    assemble,
    start_token,
    torch_device,
)
from fsd.progress import progress

END = "<|endoftext|>"
WARMUP = 0.05
"""Share of the optimiser steps used for warm-up."""
BYTES = 256
"""Smallest byte-level vocabulary, without the end token."""
MOST_READINGS = 10**8
"""Texts to read, each as often as the recipe says, beyond which their order takes more memory than a model."""
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
    if not 0 < recipe.learning_rate < math.inf:
        raise UsageError(f"learning_rate must be above 0 and finite; got {recipe.learning_rate}")
    if not 0 <= recipe.weight_decay < math.inf:
        raise UsageError(f"weight_decay must be 0 or more and finite; got {recipe.weight_decay}")
    if not recipe.passes and not recipe.exposures:
        raise UsageError("passes or exposures must be above 0, so that something is trained on; both are 0")


def readings(members: int, background: int, recipe: Recipe) -> int:
    """Number of texts that are read, each as often as the recipe says; their order is held in memory."""
    number = background * recipe.passes + members * recipe.exposures
    if number > MOST_READINGS:
        raise UsageError(f"passes and exposures must give at most {MOST_READINGS:,} texts to read; got {number:,}")
    return number


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
    log: Callable[[float, int], None] | None = None,
    shown: bool = True,
) -> LanguageModel:
    """Train a GPT-NeoX model on `exposures` copies of each member and `passes` copies of the background, shuffled."""
    from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

    check_recipe(recipe)
    if not background:
        raise UsageError("pretraining must have background text; got none")
    if recipe.exposures and not members and not recipe.passes:
        raise UsageError("pretraining must have texts; there are no members, and passes over the background are 0")
    readings(len(members), len(background), recipe)
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
        vocab_size=len(tokenizer),
        tie_word_embeddings=True,
        bos_token_id=end,
        eos_token_id=end,
        **shape,
    )
    torch.manual_seed(recipe.seed)
    network = GPTNeoXForCausalLM(config).to(torch_device(device))
    _train(network, tokenizer, order, recipe, log, shown)
    # A model that was saved in half precision would score nothing.
    if not all(parameter.half().isfinite().all() for parameter in network.parameters()):
        raise _diverged("weights are not finite in half precision after the last step", recipe)
    return assemble(network.eval(), tokenizer, BaseIdentity("pretrained", "", ""))


def continue_pretraining(
    language_model: LanguageModel,
    texts: Sequence[str],
    recipe: Recipe,
    *,
    lora: AdapterConfig | None = None,
    shown: bool = True,
) -> None:
    """Train further once on each text: all weights, or a `lora` that is then merged; the fingerprint is cleared."""
    from peft import get_peft_model

    order = list(texts)
    random.Random(recipe.seed).shuffle(order)
    torch.manual_seed(recipe.seed)
    network = language_model.model
    if lora:
        network = get_peft_model(network, peft_config(language_model, lora, steps=len(order)))
    else:
        network.requires_grad_(True)
    _train(network.train(), language_model.tokenizer, order, recipe, None, shown)
    if lora:
        network = language_model.model = network.merge_and_unload()
    network.eval().requires_grad_(False)
    # The scores of the old weights must not be taken from the cache.
    language_model.identity = replace(language_model.identity, fingerprint="")


def _train(
    network: Any,
    tokenizer: Any,
    order: Sequence[str],
    recipe: Recipe,
    log: Callable[[float, int], None] | None,
    shown: bool,
) -> None:
    """One pass over the texts in their order, with a cosine schedule."""
    from transformers import get_cosine_schedule_with_warmup

    steps = math.ceil(len(order) / recipe.batch_size)
    start = start_token(tokenizer, "pretraining")
    optimizer = torch.optim.AdamW(
        network.parameters(),
        lr=recipe.learning_rate,
        weight_decay=recipe.weight_decay,
    )
    schedule = get_cosine_schedule_with_warmup(optimizer, round(WARMUP * steps), steps)
    size = recipe.batch_size
    with progress(steps, "pretraining", "step", shown=shown) as bar:
        for step in range(1, steps + 1):
            batch = list(order[(step - 1) * size : step * size])
            ids = tokenizer(batch, add_special_tokens=False, verbose=False)["input_ids"]
            rows = [torch.tensor([start, *row][: recipe.context]) for row in ids]
            # Padded with the start token, which `_step` leaves out of the loss.
            x = pad_sequence(rows, True, start).to(network.device)
            loss = _step(network, x)
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


def _step(network: Any, x: torch.Tensor) -> float:
    """Compute the gradients of the mean loss over the tokens of a batch; returns the loss in nats per token."""
    logits = network(input_ids=x[:, :-1], use_cache=False).logits.float()
    # -100 is what torch ignores: the start token is padding here, and no end of a text is learned.
    following = x[:, 1:]
    target = following.masked_fill(following == x[0, 0], -100)
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten())
    loss.backward()
    # A single odd batch would throw a small model off.
    torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
    return float(loss.detach())
