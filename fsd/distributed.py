"""Multi-process jobs, as torchrun and accelerate launch start them, on accelerate's process group.

A job is plain SPMD: every process runs the same program and makes the same sequence of collective calls (`from_main`,
`gather`). Only the main process, rank 0, uses the cache on disk, MLflow and the terminal. A process that fails exits,
and the launcher then ends the others. In a job of one process nothing here imports torch or accelerate.
"""

import os
from collections.abc import Callable
from datetime import timedelta
from typing import TypeVar

from fsd.errors import UsageError

T = TypeVar("T")
TIMEOUT = timedelta(minutes=30)
"""Longest wait for the other processes in a collective call."""


def num_processes() -> int:
    """Number of processes of this job; 1 without a launcher."""
    return int(os.environ.get("WORLD_SIZE") or 1)


def process_index() -> int:
    """Rank of this process, from 0."""
    return int(os.environ.get("RANK") or 0) if num_processes() > 1 else 0


def is_main_process() -> bool:
    """True on rank 0, and in single-process jobs."""
    return process_index() == 0


def join() -> None:
    """Join the process group and select this process's card; does nothing in a single-process job or a second time.

    Raises:
        UsageError: if the other processes cannot be reached.
    """
    if num_processes() == 1:
        return
    import torch
    from accelerate import PartialState

    cuda = torch.cuda.is_available()  # objects travel by gloo even then, so that waiting for them occupies no card
    try:
        PartialState(cpu=not cuda, backend="cpu:gloo,cuda:nccl" if cuda else "gloo", timeout=TIMEOUT)
    except (RuntimeError, ValueError) as error:
        address = f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}"
        raise UsageError(
            f"process {process_index()} of {num_processes()} must reach the others at {address}; it does not"
        ) from error


def leave() -> None:
    """Leave the process group, at the end of a job without errors."""
    if num_processes() > 1:
        from accelerate import PartialState

        PartialState().destroy_process_group()


def from_main(make: Callable[[], T]) -> T:
    """Call `make` in the main process and return its result in every process; a collective call."""
    if num_processes() == 1:
        return make()
    from accelerate.utils import broadcast_object_list

    join()
    value: T = broadcast_object_list([make() if is_main_process() else None])[0]
    return value


def gather(value: T) -> list[T]:
    """Return the values of all processes, in the order of their ranks, in every process; a collective call."""
    if num_processes() == 1:
        return [value]
    from accelerate.utils import gather_object

    join()
    values: list[T] = gather_object([value])
    return values
