"""Shards computed by workers of Ray, each with a model of its own, on this machine or a cluster.

Ray only hands out the work. What it promises itself (a worker that died is started again, its task is repeated) is
asked for, and not relied on: each shard has a time limit here, a worker that is late or gone for good is replaced, and
a shard that fails is tried again. Only Ray's stable core is used: remote actors, get, wait and kill.
"""

import os
import subprocess
import sys
import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any, NamedTuple

from fsd.config import ShardConfig
from fsd.data.shards import Shard
from fsd.errors import StorageError, UsageError, first_line
from fsd.progress import note
from pipelines.common.shards import ATTEMPTS, Agree, Results, Work, Worker, final

CONNECT = 60.0
"""Seconds in which a cluster must answer."""
RESTARTS = 3
"""Times that Ray itself starts a worker again, and gives it its task again."""
TICK = 1.0
SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_worker_niceness": "0",  # else workers on this machine give way to every other process
    "RAY_DEDUP_LOGS_SKIP_REGEX": "^",  # else Ray prints each failed task, with its traceback, on our stdout
}


class Actor:
    """A worker in a process of Ray; the model is loaded at the first call, also after Ray has started it again."""

    def __init__(self, work: Work, folder: str) -> None:
        self.work = work
        os.chdir(folder)

    def identity(self) -> Mapping[str, str]:
        """What its model is."""
        return self._worker.identity

    def compute(self, shard: Shard, key: str) -> bytes:
        """The file of a shard."""
        return self._worker.compute(shard, key)

    @cached_property
    def _worker(self) -> Worker:
        return self.work.open()


class LostError(Exception):
    """A worker that died for good, or did not answer in time."""


class Task(NamedTuple):
    """A call that an actor is working on: a shard and how often it has been tried, or None while a model is loaded."""

    actor: Any
    shard: Shard | None
    attempt: int
    deadline: float


def compute(work: Work, shards: Sequence[Shard], agree: Agree) -> Results:
    """The files of shards, or why they could not be computed, as they come."""
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError as error:
        raise UsageError("engine ray must have the package ray; it is not installed: pip install 'fsd[ray]'") from error
    options: ShardConfig = work.config.shards
    _connect(ray, options.address)
    try:
        yield from _Pool(ray, work, options, len(shards)).results(shards, agree)
    finally:
        ray.shutdown()


def _connect(ray: Any, address: str | None) -> None:
    """Start Ray on this machine, or join a cluster, which another process tries first: Ray would try for very long."""
    if address:
        code = f"import ray; ray.init({address!r}, log_to_driver=False)"
        try:
            tried = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=CONNECT)
            reason = "" if tried.returncode == 0 else (tried.stderr.strip().splitlines() or ["no reason"])[-1]
        except subprocess.TimeoutExpired:
            reason = f"it did not answer within {CONNECT:.0f} s"
        if reason:
            raise UsageError(f"address must be of a Ray cluster that answers; {address}: {reason}")
    ray.init(address, include_dashboard=None if address else False, log_to_driver=False, logging_level="ERROR")


class _Pool:
    """The actors that are there, and what each is working on."""

    def __init__(self, ray: Any, work: Work, options: ShardConfig, shards: int) -> None:
        self.ray, self.work, self.limit = ray, work, options.shard_seconds
        there = ray.cluster_resources()
        gpus = options.actor_gpus if options.actor_gpus is not None else float(bool(there.get("GPU")))
        room = int(there["GPU"] / gpus) if gpus and there.get("GPU") else int(there.get("CPU", 1))
        self.size = min(options.actors or max(room, 1), shards)
        self.actor = ray.remote(Actor).options(num_gpus=gpus, max_restarts=RESTARTS, max_task_retries=RESTARTS)
        self.tasks: dict[Any, Task] = {}
        self.idle: list[Any] = []
        self.failures = Counter[Any]()

    def results(self, shards: Sequence[Shard], agree: Agree) -> Results:
        """Give each idle actor the next shard until all are computed or have failed often enough."""
        queue, key, vacant = deque((shard, 1) for shard in shards), "", self.size
        while queue or any(task.shard for task in self.tasks.values()):
            while self.idle and queue:
                self._call(self.idle.pop(), *queue.popleft(), key)
            while vacant and queue:
                self._open()
                vacant -= 1
            for task, value in self._ended():
                if task.shard is None:
                    key = self._admitted(task.actor, value, agree) or key
                    continue
                if final(value, task.attempt):
                    yield task.shard, value
                else:
                    queue.append((task.shard, task.attempt + 1))
                if isinstance(value, LostError):
                    self._close(task.actor)
                    vacant += 1
                elif not self._left_out(task.actor, value):
                    self.idle.append(task.actor)

    def _open(self) -> None:
        actor = self.actor.remote(self.work, os.getcwd())  # noqa: PTH109
        self.tasks[actor.identity.remote()] = Task(actor, None, 0, time.monotonic() + self.limit)

    def _admitted(self, actor: Any, value: Any, agree: Agree) -> str:
        """The key of the job, if the model of a new actor is that of the job; without it the actor is given up."""
        try:
            if isinstance(value, Exception):
                raise value
            key = agree(value)
        except Exception as error:
            self._close(actor)
            if not (self.tasks or self.idle):
                raise (
                    error if isinstance(error, UsageError) else StorageError(f"no worker: {first_line(error)}")
                ) from None
            note(f"a worker cannot be used: {first_line(error)}")
            return ""
        self.idle.append(actor)
        return key

    def _left_out(self, actor: Any, value: bytes | Exception) -> bool:
        """Give up a worker that fails twice in a row beside others: where the data are not, it takes all shards."""
        if not isinstance(value, Exception) or isinstance(value, UsageError):
            self.failures[actor] = 0
            return False
        self.failures[actor] += 1
        if self.failures[actor] < ATTEMPTS - 1 or not (self.tasks or self.idle):
            return False
        self._close(actor)
        note(f"a worker that fails again and again is left out: {first_line(value)}")
        return True

    def _call(self, actor: Any, shard: Shard, attempt: int, key: str) -> None:
        self.tasks[actor.compute.remote(shard, key)] = Task(actor, shard, attempt, time.monotonic() + self.limit)

    def _ended(self) -> list[tuple[Task, Any]]:
        """The tasks that have ended, with their values or errors; those beyond their time limit have failed."""
        ready, _ = self.ray.wait(list(self.tasks), timeout=TICK)
        ended = []
        for reference in ready:
            task = self.tasks.pop(reference)
            try:
                ended.append((task, self.ray.get(reference)))
            except self.ray.exceptions.RayTaskError as error:
                ended.append((task, error.cause if isinstance(error.cause, Exception) else error))
            except self.ray.exceptions.RayError as error:
                ended.append((task, LostError(str(error).strip().splitlines()[-1])))
        for reference, task in list(self.tasks.items()):
            if time.monotonic() > task.deadline:
                del self.tasks[reference]
                what = "the shard" if task.shard else "a model to be loaded, or a worker to be started,"
                ended.append((task, LostError(f"{what} took more than {self.limit:g} s (--shard-seconds)")))
        return ended

    def _close(self, actor: Any) -> None:
        with suppress(self.ray.exceptions.RayError):
            self.ray.kill(actor, no_restart=True)
