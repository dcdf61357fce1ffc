"""Multi-process jobs, as torchrun and accelerate launch start them, on accelerate's process group.

Every process runs the same program and makes the same sequence of collective calls (`from_main`, `gather`). Only the
main process uses the cache on disk, MLflow and the terminal. In a job of one process nothing here imports torch.

Processes of a job trust each other: torch exchanges their objects by pickle.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

from fsd.errors import UsageError

T = TypeVar("T")
TIMEOUT = timedelta(minutes=30)
"""Longest wait for the other processes in a collective call."""


def num_processes() -> int:
    """Number of processes of this job; 1 without a launcher, and within `alone`."""
    if _alone:
        return 1
    return _variable("WORLD_SIZE", 1)


_alone = False


@contextmanager
def alone() -> Iterator[None]:
    """What is computed here makes no collective call: the main process does it when the others have ended."""
    global _alone
    _alone = True
    try:
        yield
    finally:
        _alone = False


def process_index() -> int:
    """Rank of this process, from 0."""
    if num_processes() > 1:
        return _variable("RANK", 0)
    return 0


def processes_here() -> int:
    """Number of processes of this job on this machine."""
    return _variable("LOCAL_WORLD_SIZE", num_processes())


def _variable(name: str, default: int) -> int:
    """A number that a launcher has set; a scheduler may set it to nothing."""
    value = os.environ.get(name, "")
    return int(value) if value.isdecimal() else default


def is_main_process() -> bool:
    """True on rank 0, and in single-process jobs."""
    return process_index() == 0


def join() -> None:
    """Join the process group and select this process's card; nothing in a single-process job or a second time."""
    if num_processes() == 1:
        return
    import torch
    from accelerate import PartialState

    cuda = torch.cuda.is_available()
    # Objects travel by gloo even then, so that waiting for them occupies no card.
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
    from torch.distributed import broadcast_object_list

    join()
    values: list[Any] = [make() if is_main_process() else None]
    broadcast_object_list(values)
    value: T = values[0]
    return value


def gather(value: T) -> list[T]:
    """Return the values of all processes, in the order of their ranks, in every process; a collective call."""
    if num_processes() == 1:
        return [value]
    from torch.distributed import all_gather_object

    join()
    values: list[Any] = [None] * num_processes()
    all_gather_object(values, value)
    return values
