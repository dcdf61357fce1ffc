"""Multi-process jobs, as torchrun and accelerate launch start them, on accelerate's process group.

Every process runs the same program and makes the same sequence of collective calls (`from_main`, `gather`). Only the
main process uses the cache on disk, MLflow and the terminal. In a job of one process nothing here imports torch.

Whoever reaches the ports of a job can send to it: objects are unpickled only of types in `PLAIN`, which run no code.
"""

import io
import os
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

from fsd.errors import UsageError

T = TypeVar("T")
TIMEOUT = timedelta(minutes=30)
"""Longest wait for the other processes in a collective call."""
PLAIN = {
    "fsd.token_stats": {"Continuations", "GradientNorms", "Marked", "PairStats", "Prompt", "TokenStats"},
    "fsd.scoring.model_scorer": {"Window"},
    "pathlib": {"PosixPath", "WindowsPath"},
    "pathlib._local": {"PosixPath", "WindowsPath"},  # in Python 3.13
    "numpy": {"ndarray", "dtype"},
    "numpy._core.multiarray": {"_reconstruct"},
    "numpy._core.numeric": {"_frombuffer"},
}
"""Types that processes exchange besides Python's own, by module."""


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


def check_environment() -> None:
    """Refuse variables of a launcher that are no numbers."""
    for name, least in (("WORLD_SIZE", 1), ("RANK", 0), ("LOCAL_WORLD_SIZE", 1)):
        if name != "WORLD_SIZE" and num_processes() == 1:
            return  # without a launcher the others mean nothing
        value = os.environ.get(name)
        if value and not (value.isdecimal() and int(value) >= least):
            raise UsageError(f"{name} in the environment must be a whole number of at least {least}; got {value!r}")


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
    import torch
    from torch.distributed import broadcast

    join()
    data = pickle.dumps(make()) if is_main_process() else b""
    # The others must know the size before they can receive the content.
    size = torch.tensor([len(data)])
    broadcast(size, 0)
    content = torch.frombuffer(bytearray(data or int(size)), dtype=torch.uint8)
    broadcast(content, 0)
    value: T = unpickled(bytes(content.numpy()))
    return value


def gather(value: T) -> list[T]:
    """Return the values of all processes, in the order of their ranks, in every process; a collective call."""
    if num_processes() == 1:
        return [value]
    import torch
    from torch.distributed import all_gather

    join()
    data = pickle.dumps(value)
    sizes = [torch.zeros(1, dtype=torch.long) for _ in range(num_processes())]
    all_gather(sizes, torch.tensor([len(data)]))
    # A collective call takes tensors of one size, so shorter contents are filled up.
    longest = max(map(int, sizes))
    contents = [torch.empty(longest, dtype=torch.uint8) for _ in sizes]
    all_gather(contents, torch.frombuffer(bytearray(data.ljust(longest, b"\0")), dtype=torch.uint8))
    return [unpickled(bytes(content[: int(size)].numpy())) for content, size in zip(contents, sizes, strict=True)]


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if name not in PLAIN.get(module, ()):
            raise UsageError(f"processes of a job must exchange plain values; one sent {module}.{name}")
        return super().find_class(module, name)


def unpickled(data: bytes) -> Any:
    """The object that another process pickled, of `PLAIN` and Python's own types alone."""
    return _PlainUnpickler(io.BytesIO(data)).load()
