"""Fine-tune a model a little on texts it cannot have seen (FSD paper §3.1, §4.1), with trl on accelerate."""

import math
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from fsd.config import AdapterConfig
from fsd.errors import UsageError
from fsd.models import LanguageModel
from fsd.progress import progress

StepLog = Callable[[Mapping[str, float], int], None]
"""Takes the numbers of a training step (loss, lm_loss, learning_rate, grad_norm) and the step, from 1."""

ADALORA_START = 1.5
"""Initial over final rank budget of AdaLoRA (Zhang et al. 2023, §4.1)."""
ADALORA_MIN_STEPS = 5


def finetune(
    language_model: LanguageModel,
    texts: Sequence[str],
    config: AdapterConfig,
    *,
    seed: int,
    log: StepLog | None = None,
    shown: bool = True,
) -> None:
    """Attach a fresh adapter and train it on `texts` with the causal language-modelling loss, in place.

    Texts are given as they are scored: one start token before, no end token after, never packed, never cut (a
    text longer than the context is trained on in pieces). Base weights keep their precision, so that with the
    adapter off the scores stay the base's bitwise. An adapter that is already attached is replaced.

    Args:
        language_model: the base; gets the adapter.
        texts: unseen non-members.
        config: method and hyperparameters.
        seed: of the adapter's initialisation, dropout and the order of the texts.
        log: called after every step.
        shown: whether progress is shown.

    Raises:
        UsageError: for no texts, impossible hyperparameters, or an architecture without known targets.
    """
    if not texts:
        raise UsageError("fine-tuning must have at least one unseen text; got none")
    _check(config)
    from datasets import Dataset

    if language_model.adapted:
        language_model.model = language_model.model.unload()
    pieces = _pieces(language_model, texts)
    steps = math.ceil(len(pieces) / config.batch_size) * config.epochs
    adapter = peft_config(language_model, config, steps=steps)
    with tempfile.TemporaryDirectory() as folder:
        trainer = _trainer(
            language_model, Dataset.from_dict({"input_ids": pieces}), adapter, config, seed, folder, steps
        )
        trainer.add_callback(_steps_callback(trainer, log, steps, shown=shown))
        trainer.train()
    language_model.model = trainer.accelerator.unwrap_model(trainer.model)
    language_model.model.eval()


def _check(config: AdapterConfig) -> None:
    positive = {
        "rank": config.rank,
        "alpha": config.alpha,
        "learning-rate": config.learning_rate,
        "epochs": config.epochs,
        "batch-size": config.batch_size,
    }
    for name, value in positive.items():
        if value <= 0:
            raise UsageError(f"{name} must be greater than 0; got {value}")
    if not 0 <= config.dropout < 1:
        raise UsageError(f"dropout must be at least 0 and below 1; got {config.dropout}")
    if config.warmup_steps < 0 or config.weight_decay < 0:
        raise UsageError("warmup-steps and weight-decay must be at least 0; got a negative value")


def _pieces(language_model: LanguageModel, texts: Sequence[str]) -> list[list[int]]:
    """Start token + tokens of each text, in pieces of at most one context; a piece of one token teaches nothing."""
    size = language_model.context
    rows = [[language_model.start, *ids] for ids in language_model.tokens(texts)]
    return [row[i : i + size] for row in rows for i in range(0, len(row), size) if len(row) - i > 1]


def peft_config(language_model: LanguageModel, config: AdapterConfig, *, steps: int) -> Any:
    """The peft configuration of a method, with targets found for the architecture.

    Args:
        language_model: the base.
        config: method and hyperparameters.
        steps: optimiser steps to come; AdaLoRA plans its budget over them.

    Raises:
        UsageError: if peft knows no targets for the architecture, if named targets do not exist, or if the
            training is too short for AdaLoRA to reallocate anything.
    """
    from peft import AdaLoraConfig, IA3Config, LoraConfig
    from peft.utils import constants

    architecture = language_model.base.config.model_type
    mapping = getattr(constants, f"TRANSFORMERS_MODELS_TO_{config.method.upper()}_TARGET_MODULES_MAPPING")
    targets = _targets(language_model, config, mapping, architecture)
    common: dict[str, Any] = {"task_type": "CAUSAL_LM", "target_modules": targets}
    if config.method == "ia3":
        known = constants.TRANSFORMERS_MODELS_TO_IA3_FEEDFORWARD_MODULES_MAPPING.get(architecture, [])
        forward = [] if targets == "all-linear" else [name for name in known if name in targets]
        return IA3Config(**common, feedforward_modules=forward)
    scale = {"lora_alpha": config.alpha, "lora_dropout": config.dropout, "bias": "none"}
    if config.method == "lora":
        return LoraConfig(**common, **scale, r=config.rank)
    if steps < ADALORA_MIN_STEPS:
        raise UsageError(f"adalora must have at least {ADALORA_MIN_STEPS} steps to move its budget; got {steps}")
    return AdaLoraConfig(
        **common,
        **scale,
        init_r=math.ceil(ADALORA_START * config.rank),
        target_r=config.rank,
        total_step=steps,
        tinit=steps // 10,
        tfinal=steps // 2,
        deltaT=1,
    )


def _targets(
    language_model: LanguageModel, config: AdapterConfig, mapping: Mapping[str, Any], architecture: str
) -> str | list[str]:
    if config.target_modules == "all-linear":
        return "all-linear"
    if config.target_modules == "auto":
        if architecture not in mapping:
            raise UsageError(
                f"target-modules must be given for {config.method} on architecture {architecture!r}, which has no "
                "known targets; allowed: all-linear, or module names separated by commas"
            )
        return list(mapping[architecture])
    wanted = [name.strip() for name in config.target_modules.split(",") if name.strip()]
    linear = {
        name.rsplit(".", 1)[-1] for name, module in language_model.base.named_modules() if hasattr(module, "weight")
    }
    missing = [name for name in wanted if name not in linear]
    if missing or not wanted:
        raise UsageError(f"target-modules must be auto, all-linear or of {', '.join(sorted(linear))}; got {missing}")
    return wanted


def _trainer(
    language_model: LanguageModel,
    dataset: Any,
    adapter: Any,
    config: AdapterConfig,
    seed: int,
    folder: str,
    steps: int,
) -> Any:
    from transformers import PrinterCallback
    from trl import SFTConfig

    device = language_model.device
    arguments = SFTConfig(
        output_dir=folder,
        use_cpu=device.type == "cpu",
        bf16=False,  # autocast would stay on the forward and the base would no longer be the base
        fp16=False,
        activation_checkpointing=False,
        max_length=None,
        packing=False,
        num_train_epochs=config.epochs,
        per_device_train_batch_size=config.batch_size,
        learning_rate=config.learning_rate,
        lr_scheduler_type="cosine",
        warmup_steps=min(config.warmup_steps, steps // 2),
        weight_decay=config.weight_decay,
        optim="adamw_torch",
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        dataloader_pin_memory=device.type != "cpu",
        seed=seed,
        data_seed=seed,
    )
    # Several cards would be used by splitting each batch among them; the model stays where it was loaded.
    arguments._n_gpu = min(arguments.n_gpu, 1)
    kind = _trainer_class()
    trainer = kind(
        model=language_model.model,
        args=arguments,
        train_dataset=dataset,
        peft_config=adapter,
        processing_class=language_model.tokenizer,
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


def _trainer_class() -> Any:
    """SFTTrainer with what AdaLoRA needs and nobody else does for it: the penalty and the reallocation."""
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    from trl import SFTTrainer

    class FSDTrainer(SFTTrainer):  # type: ignore[misc]
        lm_loss = 0.0

        def compute_loss(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            answer = super().compute_loss(model, inputs, *args, **kwargs)
            loss = answer[0] if isinstance(answer, tuple) else answer
            self.lm_loss = float(loss.detach())
            loss = loss + orthogonal_penalty(self.accelerator.unwrap_model(self.model))
            return (loss, *answer[1:]) if isinstance(answer, tuple) else loss

    return FSDTrainer


def orthogonal_penalty(model: Any) -> torch.Tensor | float:
    """AdaLoRA's γ · mean over P and Q of ‖PᵀP − I‖_F (Zhang et al. 2023, eq. 4); 0 for other adapters.

    trl computes its loss from log-probabilities and so drops what peft adds to the model's own loss.
    """
    config = model.peft_config["default"]
    if not getattr(config, "orth_reg_weight", 0):
        return 0.0
    norms = []
    for name, weight in model.named_parameters():
        if "lora_A" in name or "lora_B" in name:
            gram = weight @ weight.T if "lora_A" in name else weight.T @ weight
            norms.append(torch.linalg.matrix_norm(gram - torch.eye(len(gram), device=gram.device, dtype=gram.dtype)))
    penalty: torch.Tensor = config.orth_reg_weight * torch.stack(norms).mean()
    return penalty


def _steps_callback(trainer: Any, log: StepLog | None, steps: int, *, shown: bool) -> Any:
    from transformers import TrainerCallback

    class Steps(TrainerCallback):  # type: ignore[misc]
        bar = progress(steps, "fine-tuning", "step", shown=shown)

        def on_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            base = trainer.accelerator.unwrap_model(trainer.model).base_model
            if hasattr(base, "update_and_allocate"):  # nobody else moves AdaLoRA's budget
                base.update_and_allocate(state.global_step + 1)

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
            if not logs or "loss" not in logs or not state.is_world_process_zero:
                return
            self.bar.update(1)
            if log is not None:
                numbers = {k: float(logs[k]) for k in ("loss", "learning_rate", "grad_norm") if k in logs}
                log({**numbers, "lm_loss": trainer.lm_loss}, state.global_step)

        def on_train_end(self, *_: Any, **__: Any) -> None:
            self.bar.close()

    return Steps()
