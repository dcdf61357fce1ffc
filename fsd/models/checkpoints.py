"""Checkpoints of fine-tuning, from which a training that was killed continues after its last complete epoch.

A training has a folder of its own, named after everything that its adapter depends on. The trainer of transformers
saves and restores optimiser, schedule, random states and progress; the weights that are trained are stored here as they
are, since peft's own format loses the state of AdaLoRA's budget.
"""

import contextlib
import json
import os
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
import xxhash

from fsd.config import AdapterConfig
from fsd.distributed import from_main, is_main_process, num_processes
from fsd.models.language_model import LanguageModel

SECONDS = 10.0
"""Seconds of training after which the next complete epoch is saved, so that short trainings save nothing."""
KEEP_DAYS = 14
"""Days after which the checkpoints of a training that was never continued are deleted."""
_COMPLETE, _WEIGHTS, _LOCK = "complete", "adapter.pt", ".lock"
_BUDGET = ("ipt", "exp_avg_ipt", "exp_avg_unc")
_LIBRARIES = ("torch", "transformers", "peft", "trl", "accelerate")


class CheckpointError(Exception):
    """A checkpoint that cannot be read."""


def training_key(
    language_model: LanguageModel, pieces: Sequence[Sequence[int]], config: AdapterConfig, seed: int
) -> str:
    """Hash of everything that the trained adapter depends on."""
    parts = (
        language_model.identity.fingerprint,
        language_model.precision,
        language_model.device.type,
        asdict(config),
        seed,
        num_processes(),
        [version(library) for library in _LIBRARIES],
        pieces,
    )
    return xxhash.xxh3_128_hexdigest(json.dumps(parts).encode())


@contextlib.contextmanager
def training_folder(parent: Path | None, key: str) -> Iterator[Path | None]:
    """The folder of a training, locked against other jobs; in every process of this one.

    It is None if there is no parent, if another job is at the same training, if the folder cannot be written, or in a
    job on several machines.
    """
    if parent is None or int(os.environ.get("LOCAL_WORLD_SIZE") or num_processes()) != num_processes():
        yield None
        return
    import filelock

    folder = parent / key
    lock = filelock.FileLock(folder / _LOCK, timeout=0)

    def claim() -> bool:
        try:
            _delete_old(parent)
            folder.mkdir(parents=True, exist_ok=True)
            lock.acquire()
        except (filelock.Timeout, OSError):
            return False
        return True

    claimed = from_main(claim)
    try:
        yield folder if claimed else None
    finally:
        if is_main_process():
            lock.release()


def _delete_old(parent: Path) -> None:
    """Delete what no training has continued for a long time."""
    oldest = time.time() - KEEP_DAYS * 24 * 3600
    for folder in parent.glob("*"):
        if folder.stat().st_mtime < oldest:
            shutil.rmtree(folder, ignore_errors=True)


def last_checkpoint(folder: Path) -> Path | None:
    """The last checkpoint that was saved completely; None if there is none."""
    with contextlib.suppress(OSError):
        checkpoint = folder / (folder / _COMPLETE).read_text()
        return checkpoint if checkpoint.is_dir() else None
    return None


def complete(folder: Path, checkpoint: str) -> None:
    """Note that a checkpoint was saved completely, and delete the earlier ones."""
    draft = folder / f".{_COMPLETE}.{os.getpid()}"
    draft.write_text(checkpoint)
    draft.replace(folder / _COMPLETE)
    for earlier in folder.glob("checkpoint-*"):
        if earlier.name != checkpoint:
            shutil.rmtree(earlier, ignore_errors=True)


def clear(folder: Path) -> None:
    """Delete the checkpoints of a training that is running."""
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        elif path.name != _LOCK:
            path.unlink(missing_ok=True)


def trainer_with_checkpoints(trainer: type[Any]) -> type[Any]:
    """A class of trainer whose checkpoints hold the trained weights exactly; one that cannot be saved is left out."""

    class CheckpointingTrainer(trainer):  # type: ignore[misc]
        def _save_checkpoint(self, model: Any, trial: Any) -> None:
            with _saving(self.args.output_dir):
                super()._save_checkpoint(model, trial)
                if self.args.should_save:
                    complete(Path(self.args.output_dir), f"checkpoint-{self.state.global_step}")

        def create_model_card(self, *_: Any, **__: Any) -> None:
            """Write none."""

        def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
            if self.args.should_save:
                folder = Path(output_dir or self.args.output_dir)
                folder.mkdir(parents=True, exist_ok=True)
                torch.save(_state(self.accelerator.unwrap_model(self.model)), folder / _WEIGHTS)

        def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
            with _reading():
                state = torch.load(Path(resume_from_checkpoint) / _WEIGHTS, weights_only=True, map_location="cpu")
                _restore(self.accelerator.unwrap_model(self.model), state)

        def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
            with _reading():
                super()._load_optimizer_and_scheduler(checkpoint)

        def _load_rng_state(self, checkpoint: str | None) -> None:
            with _reading():
                super()._load_rng_state(checkpoint)

    return CheckpointingTrainer


@contextlib.contextmanager
def _saving(folder: str) -> Iterator[None]:
    """Print an error in place of raising it: the training itself can go on."""
    try:
        yield
    except (OSError, RuntimeError) as error:  # torch gives a RuntimeError for a full disk
        reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
        print(f"fine-tuning: no checkpoint is stored in {folder}: {reason}", file=sys.stderr)


@contextlib.contextmanager
def _reading() -> Iterator[None]:
    try:
        yield
    except Exception as error:  # any: a damaged file may fail in many ways
        raise CheckpointError(str(error)) from error


def _state(model: Any) -> dict[str, Any]:
    """The trained weights, and the budget of AdaLoRA."""
    state: dict[str, Any] = {"weights": {n: p.detach().cpu() for n, p in model.named_parameters() if p.requires_grad}}
    allocator = getattr(model.base_model, "rankallocator", None)
    if allocator is not None:
        state |= {name: getattr(allocator, name) for name in _BUDGET}
        state["rank_pattern"] = model.peft_config["default"].rank_pattern
    return state


def _restore(model: Any, state: dict[str, Any]) -> None:
    """Put back what `_state` gave.

    Raises:
        ValueError: if the weights are others than those of the model.
    """
    trained = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    if trained.keys() != state["weights"].keys():
        raise ValueError("the weights of the checkpoint must be those that are trained")
    with torch.no_grad():
        for name, weight in trained.items():
            weight.copy_(state["weights"][name])
    allocator = getattr(model.base_model, "rankallocator", None)
    if allocator is not None:
        for name in _BUDGET:
            setattr(allocator, name, {key: value.to(trained[key].device) for key, value in state[name].items()})
        model.peft_config["default"].rank_pattern = state["rank_pattern"]
