"""Several processes of one job, as torchrun and accelerate launch start them: the main one leads, the others help.

The main process decides what is read and alone writes, tracks and prints; the others read their share of every
batch list when it says so, and train with it. They talk through the launcher's key-value store, which needs no
graphics card, no process group, and no call that the other side must answer: so an error can be told at any time.
"""

import _thread
import contextlib
import functools
import os
import pickle
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import Any, NoReturn, TypeVar

from fsd.errors import UsageError

T = TypeVar("T")
PATIENCE = 10.0
"""Seconds that a failing process gives the others to say so and to end."""
REACH = timedelta(seconds=300)
"""Most time until the processes find each other."""
LOOK = 0.2
"""Seconds between looks for an error elsewhere."""


def size() -> int:
    """Processes of this job; 1 where no launcher started it."""
    return int(os.environ.get("WORLD_SIZE") or 1)


def is_main() -> bool:
    """Whether this process leads; alone it does."""
    return size() == 1 or int(os.environ.get("RANK") or 0) == 0


@functools.cache
def team() -> "Team | None":
    """The other processes of this job and this one; None where it is alone.

    Raises:
        UsageError: if they do not find each other.
    """
    return Team(int(os.environ["RANK"]), size()) if size() > 1 else None


def from_main(make: Callable[[], T]) -> T:
    """What the main process makes, in every process: what lies in a store that only it may open, say."""
    group = team()
    return make() if group is None else group.from_main(make)


class Team:
    """The processes of a job.

    Args:
        rank: of this one; 0 leads.
        size: how many there are.
    """

    def __init__(self, rank: int, size: int) -> None:
        import torch

        self.rank, self.size = rank, size
        self._store, self._watched = _connect(rank, size), _connect(rank, size)
        self.turn = self._made = 0
        self._telling, self._told, self._ended = threading.Lock(), False, threading.Event()
        if torch.cuda.is_available():
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()

    @property
    def main(self) -> bool:
        """Whether this process leads."""
        return self.rank == 0

    def send(self, key: str, value: object) -> None:
        """Put something where another process finds it."""
        self._store.set(key, pickle.dumps(value))

    def receive(self, key: str, *, keep: bool = False) -> Any:
        """Wait for something, and clear it away unless others need it too."""
        self._wait(lambda: self._store.check([key]))
        value = pickle.loads(self._store.get(key))
        if not keep:
            self._store.delete_key(key)
        return value

    def _wait(self, ready: Callable[[], bool], seconds: float | None = None) -> None:
        """Wait in short naps, so that an error elsewhere can end it."""
        nap, begun = 0.0005, time.monotonic()
        while not ready() and (seconds is None or time.monotonic() - begun < seconds):
            time.sleep(nap)
            nap = min(2 * nap, 0.02)

    def from_main(self, make: Callable[[], T]) -> T:
        """What the main process makes; the others take it over, at the same place of the same program."""
        self._made += 1
        key = f"made/{self._made}"
        if not self.main:
            made: T = self.receive(key, keep=True)
            return made
        value = make()
        self.send(key, value)
        return value

    # Reading together

    def tell(self, order: object) -> int:
        """Say to all the others what is to be done next; the number of the order."""
        self.turn += 1
        for rank in range(1, self.size):
            self.send(f"order/{rank}/{self.turn}", order)
        return self.turn

    def orders(self) -> Iterator[Any]:
        """What the main process says, until it says None."""
        while True:
            self.turn += 1
            order = self.receive(f"order/{self.rank}/{self.turn}")
            if order is None:
                return
            yield order

    @contextlib.contextmanager
    def leading(self) -> Iterator[None]:
        """The block of the main process during which the others `serve`."""
        yield
        self.tell(None)

    def serve(self, scorers: Mapping[str, Any]) -> None:
        """Read what the main process says, with `fsd.scoring.distributed.Divided` of these names, until it is done."""
        for name, prompts, limit in self.orders():
            scorers[name].help(prompts, limit)

    # Ending together

    def _watch(self) -> None:
        """Look for an error in another process; the main one says it, and all of them end."""
        while not self._ended.wait(LOOK):
            try:
                if not self._watched.check(["error"]):
                    continue
                message = pickle.loads(self._watched.get("error"))
            except Exception:  # the store is gone, and with it everybody who could tell
                return
            self._tell(message)
            _thread.interrupt_main()
            if not self._ended.wait(PATIENCE / 2):  # it stands in a call that nothing interrupts
                self._watched.add("ended", 1)
                os._exit(2)
            return

    def _tell(self, message: str) -> None:
        """Print an error once, in the main process."""
        with self._telling:
            if self.main and not self._told:
                print(message, file=sys.stderr, flush=True)
                self._watched.set("told", b"1")
            self._told = True

    @property
    def failed(self) -> bool:
        """Whether an error has been told that ends all processes."""
        return self._told

    def fail(self, message: str, code: int = 2) -> NoReturn:
        """End all processes, with one line from the main one."""
        self._ended.set()
        with contextlib.suppress(Exception, KeyboardInterrupt):  # the watcher may have seen another's error meanwhile
            self._tell(message)
            if not self._store.check(["error"]):
                self.send("error", message)
            self._wait(lambda: self._store.check(["told"]), PATIENCE)
        self.leave(code)

    def leave(self, code: int = 2) -> NoReturn:
        """End this process after an error, together with the others: a launcher stops those that are late."""
        self._ended.set()
        with contextlib.suppress(Exception, KeyboardInterrupt):
            self._store.add("ended", 1)
            self._wait(lambda: self._store.add("ended", 0) >= self.size, PATIENCE)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)  # threads of a torn process group could hold the interpreter

    def close(self) -> None:
        """End well: let go of the others."""
        from torch import distributed

        self._ended.set()
        self._watcher.join()
        with contextlib.suppress(RuntimeError):  # the one that holds the store may have ended before
            self._store.add("ended", 1)
        if distributed.is_initialized():
            distributed.destroy_process_group()


def _connect(rank: int, size: int) -> Any:
    """A connection to the store of the job: torchrun's own, or one that the main process opens."""
    from torch import distributed as untyped

    distributed: Any = untyped  # the types of its stores are not exported
    agents = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    host, port = os.environ.get("MASTER_ADDR", "localhost"), int(os.environ.get("MASTER_PORT", "29500"))
    try:
        store = distributed.TCPStore(
            host, port, size, rank == 0 and not agents, REACH, wait_for_workers=False, multi_tenant=True
        )
    except (RuntimeError, ValueError) as error:
        raise UsageError(f"process {rank} of {size} must reach the store at {host}:{port}; it does not") from error
    return distributed.PrefixStore(f"fsd/{attempt}", store)
