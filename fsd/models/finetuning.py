"""Fine-tuning of an adapter on unseen texts (FSD, arXiv 2410.10880, §3.1 and §4.1), with trl on accelerate.

A training that was killed begins anew, and makes bitwise the same adapter. One that is finished is not repeated: it has
a folder of its own, named after everything that its adapter depends on.
"""

import contextlib
import copy
import json
import math
import os
import random
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import torch
import xxhash

from fsd.config import AdapterConfig, check_training
from fsd.distributed import is_main_process, num_processes, processes_here
from fsd.errors import UsageError, refusing
from fsd.models.adapters import (
    attach,
    check_trainable,
    detach,
    orthogonal_penalty,
    peft_config,
    quiet_peft,
    save_adapter,
    strip,
)
from fsd.models.language_model import LanguageModel
from fsd.progress import errors_alone, progress
from fsd.token_stats import AnyTexts, TokenIds, scored_prompts, texts_of

StepLog = Callable[[Mapping[int, Mapping[str, float]]], None]
"""Receives loss, lm_loss, learning_rate and grad_norm by optimiser step, counted from 1."""
Logs = Mapping[str, Any]
"""Numbers of a step in the log of the trainer."""
KEEP_BYTES = 2 * 2**30
"""Size of the finished trainings beyond which the oldest are deleted."""
HEAD = 0.05
"""Difference of a token's log-probability that rounding may cause between the network's own head and trl's."""
ADAPTER = "adapter"
"""Adapter of a finished training in its folder."""
FINISHED = "finished.json"
"""File with the numbers of its steps, written last."""
_LIBRARIES = ("fsd", "torch", "transformers", "peft", "trl", "accelerate")
# Of the trainer, the same for every training.
_OPTIONS = {
    # Autocast would stay on `forward` and change the scores of the base.
    "bf16": False,
    "fp16": False,
    "max_length": None,
    "packing": False,
    # Rows are token ids already; trl would add an end token.
    "dataset_kwargs": {"skip_prepare_dataset": True},
    "lr_scheduler_type": "cosine",
    "optim": "adamw_torch",
    "logging_steps": 1,
    "logging_nan_inf_filter": False,
    "save_strategy": "no",
    "report_to": "none",
    "disable_tqdm": True,
    "ddp_find_unused_parameters": False,
    # The loss of the router of a mixture of experts is no part of the language-modelling loss.
    "router_aux_loss_coef": 0.0,
}


# The caller may have turned gradients off, for the whole process or around this call.
@torch.inference_mode(mode=False)
@torch.enable_grad()
def finetune(
    language_model: LanguageModel,
    texts: AnyTexts,
    config: AdapterConfig,
    *,
    seed: int,
    log: StepLog | None = None,
    after_epoch: Callable[[int], None] | None = None,
    shown: bool = True,
    cache: Path | None = None,
) -> None:
    """Attach a new adapter in place of any other and train it on `texts` with the causal language-modelling loss.

    Texts are tokenized as for scoring: a start token, no end token, no packing, and longer ones in pieces. What is not
    scored is not learned either: a context, and what others than the assistant say in a chat. The base
    keeps its weights and precision, and gives the same scores bitwise with the adapter off; after an error there is no
    adapter. The loss of a step is the mean over the tokens of its batch, for any number of processes.

    `log` is called after every step, once for all steps of an earlier run, and `after_epoch` with the number of
    finished epochs while the model can score; an exception from them ends the training. One that was finished is taken
    from `cache`, logs its steps again and trains nothing.
    """
    check_trainable(language_model)
    detach(language_model)
    pieces, steps, adapter = plan(language_model, texts, config)
    finished = stored(language_model, pieces, config, seed, cache)
    # Whoever wants to measure after each epoch needs the training itself.
    if finished and after_epoch is None and _reuse(language_model, finished, log):
        with progress(steps, "fine-tuning", "step", shown=shown) as bar:
            bar.update(steps)
        return
    with (
        tempfile.TemporaryDirectory() as scratch,
        _unlogged(),
        _settings_kept(language_model.base),
        _restored(language_model, config) as forward,
    ):
        arguments = _arguments(language_model.device, config, steps, seed, scratch)
        trainer = _trainer(language_model, pieces, adapter, config, arguments)
        with progress(steps, "fine-tuning", "step", shown=shown) as bar:
            trainer.add_callback(_callback(trainer, language_model, forward, bar, log, after_epoch))
            trainer.train()
        language_model.model = trainer.unwrapped
    language_model.model.eval()
    if finished and is_main_process():
        _keep(language_model, finished, trainer.state.log_history)


def _unlogged() -> contextlib.AbstractContextManager[None]:
    """Without MLflow's autologging, which would make a run of its own of the training, or write into the caller's."""
    # It cannot be on where it was never imported, and is not imported for this.
    autologging = sys.modules.get("mlflow.utils.autologging_utils")
    return autologging.disable_autologging() if autologging else contextlib.nullcontext()


class Piece(NamedTuple):
    """Token ids that are read together, and which of them are learned."""

    ids: TokenIds
    learned: list[bool]

    @property
    def masked(self) -> bool:
        """Whether some of the tokens that are predicted are not learned."""
        return not all(self.learned[1:])

    @property
    def labels(self) -> list[int]:
        """The ids, with `IGNORED` in place of those that are not learned."""
        return [token if learned else IGNORED for token, learned in zip(self.ids, self.learned, strict=True)]


IGNORED = -100
"""Label of a token that is not learned, for every trainer of transformers."""


def plan(language_model: LanguageModel, texts: AnyTexts, config: AdapterConfig) -> tuple[list[Piece], int, Any]:
    """Training sequences, number of optimiser steps, and peft configuration of a possible training."""
    if not texts:
        raise UsageError("fine-tuning must have at least one unseen text; got none")
    check_training(config)
    pieces = list(pieces_of(language_model, texts))
    steps = math.ceil(len(pieces) / config.batch_size) * config.epochs
    return pieces, steps, peft_config(language_model, config, steps=steps)


def pieces_of(language_model: LanguageModel, texts: AnyTexts) -> Iterator[Piece]:
    """What is learned of texts, in sequences that fit the context of the model."""
    for row in _rows(language_model, texts):
        yield from _pieces(row, language_model.context)


def _rows(language_model: LanguageModel, texts: AnyTexts) -> Iterator[Piece]:
    """Each text with what precedes it, whole."""
    prompts = language_model.read(scored_prompts(texts, whole=language_model.whole_chats))
    plain = [prompt for prompt in prompts if prompt.marked is None]
    tokens = iter(language_model.tokens(texts_of(plain)))
    for prompt in prompts:
        if prompt.marked:
            yield Piece(list(prompt.marked.ids), list(prompt.marked.scored))
            continue
        text = next(tokens)
        head = list(language_model.opening)
        if prompt.context:
            head += language_model.tokens([prompt.context])[0]
        # The start token is the first of its row, whose label no trainer reads.
        learned = [not prompt.context] * len(head) + [True] * len(text)
        yield Piece(head + text, learned)


def _pieces(row: Piece, size: int) -> Iterator[Piece]:
    """The parts of a row that have something to learn."""
    ids, learned = row
    # The last token of a piece is the first of the next one, so that each token is predicted once.
    for start in range(0, len(ids) - 1, size - 1):
        piece = Piece(ids[start : start + size], learned[start : start + size])
        if any(piece.learned[1:]):
            yield piece


def stored(
    language_model: LanguageModel, pieces: Sequence[Piece], config: AdapterConfig, seed: int, cache: Path | None
) -> Path | None:
    """Where in the cache a training is, or is going to be; None if it cannot be there."""
    # Without a fingerprint the base may be any; processes on several machines have no disk in common; and peft gives a
    # saved adapter of adalora other settings.
    named = language_model.identity.fingerprint and config.method != "adalora"
    if cache and named and processes_here() == num_processes():
        return cache / training_key(language_model, pieces, config, seed)
    return None


def training_key(language_model: LanguageModel, pieces: Sequence[Piece], config: AdapterConfig, seed: int) -> str:
    """Hash of everything that the trained adapter depends on."""
    versions = list(map(version, _LIBRARIES))
    # The order is part of the hash: another one would make every stored training unknown.
    parts = (
        language_model.identity.fingerprint,
        language_model.settings,
        language_model.precision,
        language_model.device.type,
        asdict(config),
        seed,
        num_processes(),
        versions,
        pieces,
    )
    return xxhash.xxh3_128_hexdigest(json.dumps(parts).encode())


def _reuse(language_model: LanguageModel, folder: Path, log: StepLog | None) -> bool:
    """Attach the adapter of a finished training, and log its steps again; not if its files are missing or damaged."""
    try:
        history = json.loads((folder / FINISHED).read_text())
        attach(language_model, folder / ADAPTER)
    except (OSError, ValueError, UsageError):
        return False
    _report(log, history)
    return True


def _keep(language_model: LanguageModel, folder: Path, history: Sequence[Logs]) -> None:
    """Store a finished training, if the disk allows, and delete those that were made longest ago."""
    with contextlib.suppress(OSError):
        # What is left of one that was killed or damaged.
        shutil.rmtree(folder, ignore_errors=True)
        save_adapter(language_model, folder / ADAPTER)
        (folder / FINISHED).write_text(json.dumps(history))
        kept = 0
        # The newest first, this one among them.
        for training in sorted(folder.parent.iterdir(), key=lambda path: -path.stat().st_mtime):
            kept += sum(file.stat().st_size for file in training.rglob("*"))
            if kept > KEEP_BYTES:
                shutil.rmtree(training, ignore_errors=True)


@contextlib.contextmanager
def _restored(language_model: LanguageModel, config: AdapterConfig) -> Iterator[Any]:
    """Leave the base and the global random states as they were, and no adapter after an error; yields its `forward`."""
    base = language_model.base
    device = language_model.device
    forward = vars(base).get("forward")
    # rwkv has no such setting.
    padding = getattr(base.config, "pad_token_id", None)
    python = random.getstate()
    numpy = np.random.get_state()  # noqa: NPY002 - the one that the trainer seeds
    # The trainer uses the current card.
    card = torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext()
    # They warn of settings that are intended here.
    quiet = errors_alone("transformers", "trl", "accelerate")
    try:
        with torch.random.fork_rng(range(torch.cuda.device_count())), quiet_peft(), quiet, card:
            yield forward
    except torch.OutOfMemoryError as error:
        strip(language_model)
        raise UsageError(
            f"a step must fit the memory; batch-size {config.batch_size} does not: take a smaller one, shorter texts, "
            "bits 4 or a smaller model"
        ) from error
    except BaseException:
        strip(language_model)
        raise
    finally:
        random.setstate(python)
        np.random.set_state(numpy)  # noqa: NPY002 - see above
        _set_forward(base, forward)
        # Set by the trainer; gpt2 would warn at every text.
        base.config.pad_token_id = padding


@contextlib.contextmanager
def _settings_kept(base: Any) -> Iterator[None]:
    """Leave the network's settings as they were, of which the trainer changes use of the cache, padding and tags.

    Also those of accelerate, which would hold for the whole process: a later `Accelerator` could have no others. What
    `accelerate config` and an earlier `Accelerator` have chosen, such as bfloat16, is not used by this training.
    """
    from accelerate.state import AcceleratorState, PartialState

    holders = [vars(base.config), AcceleratorState._shared_state, PartialState._shared_state]
    # Of a model of text and images, a configuration within the other.
    holders.append(vars(base.config.get_text_config()))
    if getattr(base, "generation_config", None) is not None:
        holders.append(vars(base.generation_config))
    settings = [(current, dict(current)) for current in holders]
    tags = base.model_tags
    chosen = {name: value for name, value in os.environ.items() if name.startswith("ACCELERATE_")}
    for name in chosen:
        del os.environ[name]
    AcceleratorState._shared_state.clear()
    try:
        yield
    finally:
        os.environ.update(chosen)
        for current, kept in settings:
            current.clear()
            current.update(kept)
        base.model_tags = tags


def _set_forward(base: Any, forward: Any) -> None:
    """Undo or redo trl's patch of `forward`, which every training would wrap again."""
    vars(base).pop("forward", None)
    if forward is not None:
        base.forward = forward


def _trainer(
    language_model: LanguageModel, pieces: Sequence[Piece], adapter: Any, config: AdapterConfig, arguments: Any
) -> Any:
    from datasets import Dataset
    from transformers import PrinterCallback, set_seed

    columns = {"input_ids": [piece.ids for piece in pieces]}
    # The trainer's labels are the ids themselves where there are no others.
    if any(piece.masked for piece in pieces):
        columns["labels"] = [piece.labels for piece in pieces]
    # With several processes, a row that predicts nothing and so weighs nothing fills up the last batch.
    if num_processes() > 1:
        for rows in columns.values():
            rows.append([language_model.start])
    # Some versions of the trainer initialise the adapter before they seed.
    set_seed(arguments.seed)
    tokenizer = copy.deepcopy(language_model.tokenizer)
    # trl gives the tokenizer a padding token, its end token, which not every one has.
    padding = tokenizer.eos_token_id if tokenizer.pad_token is None else tokenizer.pad_token_id
    # One that was added to the tokenizer may have no embedding. What pads is masked, so that any other will do.
    if padding is None or padding >= language_model.embeddings:
        tokenizer.pad_token = tokenizer.convert_ids_to_tokens(language_model.start)
    must = f"target-modules {config.target_modules!r} must suit {config.method} and the model; "
    with refusing(must, ValueError):
        trainer = _trainer_class()(
            model=language_model.model,
            args=arguments,
            train_dataset=Dataset.from_dict(columns),
            peft_config=adapter,
            processing_class=tokenizer,
        )
    trainer.remove_callback(PrinterCallback)
    # The first token of a row is never predicted. By the name of its class, GPT-2's loss would be divided by it too.
    trainer._loss_shifts_labels = True
    _correct_head(language_model)
    for weight in trainer.model.parameters():
        # On quantized weights, trl makes them bfloat16, which would not survive saving.
        if weight.requires_grad:
            weight.data = weight.data.float()
    return trainer


def _correct_head(language_model: LanguageModel) -> None:
    """Let the network make its own logits where the head that trl has put on it makes others, or fails."""
    base = language_model.base.eval()
    fused = base.forward
    (text,) = language_model.tokens(["The quick brown fox jumps over it."])
    ids = torch.tensor([text[: language_model.context]], device=language_model.device)

    def correct(*args: Any, fused_lm_head: bool = False, labels: Any = None, **inputs: Any) -> Any:
        outputs = type(base).forward(base, *args, **inputs)
        if not fused_lm_head:
            return outputs
        predicted = labels[:, 1:].to(outputs.logits.device)
        learned = predicted != IGNORED
        logp = outputs.logits[:, :-1].float().log_softmax(-1)
        logp = logp.gather(-1, predicted.clamp(min=0)[..., None])[..., 0]
        # The trainer logs certainty and hits too, which nobody reads.
        unread = torch.zeros_like(logp)
        return SimpleNamespace(log_probs=logp * learned, label_mask=learned, entropy=unread, is_top1=unread)

    options: dict[str, Any] = {"input_ids": ids, "labels": ids, "fused_lm_head": True}
    same = False
    # It takes for granted where a network has its layers.
    with torch.no_grad(), contextlib.suppress(AttributeError, TypeError, RuntimeError):
        same = torch.allclose(fused(**options).log_probs, correct(**options).log_probs, atol=HEAD)
    if not same:
        base.forward = correct


def _arguments(device: torch.device, config: AdapterConfig, steps: int, seed: int, folder: str) -> Any:
    from trl import SFTConfig

    count = num_processes()
    if config.batch_size % count:
        raise UsageError(f"batch-size must be a multiple of the {count} processes; got {config.batch_size}")
    batch_size = config.batch_size // count
    schedule = {
        "num_train_epochs": config.epochs,
        "per_device_train_batch_size": batch_size,
        "learning_rate": config.learning_rate,
        "warmup_steps": min(config.warmup_steps, steps // 2),
        "weight_decay": config.weight_decay,
    }
    # transformers 5.17 has the older name only.
    newer = "activation_checkpointing" in SFTConfig.__dataclass_fields__
    checkpointing = "activation_checkpointing" if newer else "gradient_checkpointing"
    on_cpu = device.type == "cpu"
    arguments = SFTConfig(
        output_dir=folder,
        use_cpu=on_cpu,
        dataloader_pin_memory=not on_cpu,
        seed=seed,
        data_seed=seed,
        **_OPTIONS,
        **schedule,
        **{checkpointing: False},
    )
    # With several cards the trainer would split each batch among them; the model stays where it was loaded.
    arguments._n_gpu = min(arguments.n_gpu, 1)
    return arguments


class _Filled(torch.utils.data.Sampler[int]):
    """The order of a single process; the last batch is filled up with the last row, which is blank."""

    def __init__(self, rows: int, batch: int, seed: int) -> None:
        from accelerate.data_loader import SeedableRandomSampler

        texts = rows - 1
        self.order = SeedableRandomSampler(range(texts), data_seed=seed)
        self.blanks = [texts] * (-texts % batch)

    def __len__(self) -> int:
        return len(self.order) + len(self.blanks)

    def __iter__(self) -> Iterator[int]:
        yield from self.order
        yield from self.blanks

    def set_epoch(self, epoch: int) -> None:
        self.order.set_epoch(epoch)


def _trainer_class() -> Any:
    """SFTTrainer with AdaLoRA's penalty, and with each batch shared among all processes."""
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    from trl import SFTTrainer

    class FSDTrainer(SFTTrainer):  # type: ignore[misc]
        # Without AdaLoRA's penalty, so that the losses of all methods can be compared.
        lm_loss = 0.0

        @property
        def unwrapped(self) -> Any:
            """The peft model, without what accelerate puts around it for several processes."""
            return self.accelerator.unwrap_model(self.model)

        def _get_train_sampler(self, train_dataset: Any = None) -> Any:
            if num_processes() == 1:
                return super()._get_train_sampler(train_dataset)
            batch = self.args.per_device_train_batch_size * num_processes()
            return _Filled(len(self.train_dataset), batch, self.args.data_seed)

        def compute_loss(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            loss = super().compute_loss(model, inputs, *args, **kwargs)
            self.lm_loss = float(self.accelerator.reduce(loss.detach().clone(), reduction="mean"))
            return loss + orthogonal_penalty(self.unwrapped)

        def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
            """Log the loss of the model too, so that it is in the history."""
            # The summary after the last step has no loss of a step.
            if "loss" in logs:
                logs = logs | {"lm_loss": self.lm_loss}
            super().log(logs, *args, **kwargs)

    return FSDTrainer


def _report(log: StepLog | None, history: Iterable[Logs]) -> None:
    """Report the numbers of steps from the trainer's log, in the main process."""
    names = ("loss", "lm_loss", "learning_rate", "grad_norm")
    steps = {}
    for logs in history:
        if "loss" in logs:
            steps[logs["step"]] = {name: float(logs[name]) for name in names if name in logs}
    if log is not None and steps and is_main_process():
        log(steps)


def _callback(
    trainer: Any,
    language_model: LanguageModel,
    forward: Any,
    bar: Any,
    log: StepLog | None,
    after_epoch: Callable[[int], None] | None,
) -> Any:
    from transformers import TrainerCallback

    class Callback(TrainerCallback):  # type: ignore[misc]
        def on_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            base = trainer.unwrapped.base_model
            # AdaLoRA moves its budget here, which the trainer does not know; it has not counted this step yet.
            if hasattr(base, "update_and_allocate"):
                base.update_and_allocate(state.global_step + 1)

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
            if "loss" not in logs:
                return
            if not math.isfinite(float(logs["loss"])):
                raise UsageError(
                    f"the training loss must stay finite; at step {state.global_step} it is {logs['loss']}: take a "
                    "lower learning-rate or another dtype"
                )
            bar.update(1)
            _report(log, [{**logs, "step": state.global_step}])

        def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if after_epoch is None:
                return
            untuned = language_model.model
            patched = vars(language_model.base).get("forward")
            # Until the training has ended, the model is without its adapter, and trl has wrapped its `forward`.
            language_model.model = trainer.unwrapped
            _set_forward(language_model.base, forward)
            try:
                after_epoch(round(state.epoch))
            finally:
                trainer.model.train()
                language_model.model = untuned
                _set_forward(language_model.base, patched)

    return Callback()
