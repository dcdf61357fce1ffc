"""Shards computed by workers of Ray, each with a model of its own, on this machine or a cluster.

Ray only hands out the work. What it promises itself (a worker that died is started again, its task is repeated) is
asked for, and not relied on: each shard has a time limit here, a worker that is late or gone for good is replaced, and
a shard that fails is tried again. Only Ray's stable core is used: remote actors, get, wait and kill.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cached_property
from pathlib import Path
from secrets import token_hex
from typing import Any, NamedTuple

from fsd.config import ShardConfig
from fsd.data.shards import Shard
from fsd.errors import StorageError, UsageError, first_line
from fsd.leftovers import has_ended, this_process
from fsd.progress import note
from pipelines.common.shards import ATTEMPTS, Agree, Results, Work, Worker, final

# Seconds in which a cluster must answer.
CONNECT = 60.0
# Times that Ray itself starts a worker again, and gives it its task again.
RESTARTS = 3
# Seconds after which time limits are looked at.
TICK = 1.0
SETTINGS = {
    # Nobody asked the user whether statistics may be sent.
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_worker_niceness": "0",  # else workers on this machine give way to every other process
    "RAY_DEDUP_LOGS_SKIP_REGEX": "^",  # else Ray prints each failed task, with its traceback, on our stdout
}


# Of Ray on this machine alone: else it listens on all interfaces, and runs what anybody sends.
ALONE = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # no cluster, on any system: the loopback interface
    "RAY_AUTH_MODE": "token",
}
TOKEN = "RAY_AUTH_TOKEN"
QUIET = {"log_to_driver": False, "logging_level": "ERROR"}
SESSION = "fsd-ray-"
# Characters of the path of its folder: sockets are 62 characters below it, and the system allows them 107.
LONGEST = 107 - 62
OWNER = "process"


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
    options: ShardConfig = work.config.shards
    # Ray itself would join the cluster of the variable too.
    address = options.address or os.environ.get("RAY_ADDRESS")
    settings = SETTINGS if address else SETTINGS | ALONE | {TOKEN: token_hex(32)}
    # Ray reads them when it is imported.
    for name, value in settings.items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError as error:
        raise UsageError("engine ray must have the package ray; it is not installed: pip install 'fsd[ray]'") from error
    with ExitStack() as ending:
        if address:
            _check_answers(address)
            ending.callback(ray.shutdown)
            ray.init(address, **QUIET)
        else:
            folder = ending.enter_context(_session_folder())
            ending.callback(ray.shutdown)
            # A cluster has a dashboard of its own; one of this machine alone needs none.
            ray.init(include_dashboard=False, _temp_dir=str(folder), **QUIET)
        yield from _Pool(ray, work, options, len(shards)).results(shards, agree)


@contextmanager
def _session_folder() -> Iterator[Path]:
    """A folder for the files of Ray, of this user alone; those that killed processes left are removed.

    Its name is short, unlike that of the command's own temporary folder.
    """
    parent = Path(os.environ.get("TMPDIR") or "/tmp")
    if len(str(parent / f"{SESSION}12345678")) > LONGEST:
        parent = Path("/tmp")
    for folder in parent.glob(f"{SESSION}*"):
        with suppress(OSError):
            if has_ended((folder / OWNER).read_text()):
                shutil.rmtree(folder, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=SESSION, dir=parent, ignore_cleanup_errors=True) as name:
        (Path(name) / OWNER).write_text(this_process())
        yield Path(name)


def _check_answers(address: str) -> None:
    """Refuse a cluster that does not answer; another process tries it first, since Ray would try for very long."""
    code = f"import ray; ray.init({address!r}, log_to_driver=False)"
    reason = ""
    try:
        attempt = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, timeout=CONNECT)
        if attempt.returncode:
            reason = attempt.stderr.strip().rpartition("\n")[2] or "no reason"
    except subprocess.TimeoutExpired:
        reason = f"it did not answer within {CONNECT:.0f} s"
    if reason:
        raise UsageError(f"address must be of a Ray cluster that answers; {address}: {reason}")


class _Pool:
    """The actors that are there, and what each is working on."""

    def __init__(self, ray: Any, work: Work, options: ShardConfig, shards: int) -> None:
        self.ray = ray
        self.work = work
        self.limit = options.shard_seconds
        resources = ray.cluster_resources()
        cluster_gpus = resources.get("GPU", 0)
        gpus = options.actor_gpus
        if gpus is None:
            gpus = 1.0 if cluster_gpus else 0.0
        room = int(resources.get("CPU", 1))
        if gpus and cluster_gpus:
            room = int(cluster_gpus / gpus)
        self.size = min(options.actors or max(room, 1), shards)
        self.actor = ray.remote(Actor).options(num_gpus=gpus, max_restarts=RESTARTS, max_task_retries=RESTARTS)
        self.tasks: dict[Any, Task] = {}
        self.idle: list[Any] = []
        self.failures = Counter[Any]()

    def results(self, shards: Sequence[Shard], agree: Agree) -> Results:
        """Give each idle actor the next shard until all are computed or have failed often enough."""
        queue = deque((shard, 1) for shard in shards)
        key = ""
        vacant = self.size
        while queue or any(task.shard for task in self.tasks.values()):
            while self.idle and queue:
                shard, attempt = queue.popleft()
                actor = self.idle.pop()
                self._watch(actor.compute.remote(shard, key), actor, shard, attempt)
            while vacant and queue:
                actor = self.actor.remote(self.work, os.getcwd())  # noqa: PTH109
                self._watch(actor.identity.remote(), actor)
                vacant -= 1
            for task, result in self._ended():
                if task.shard is None:
                    key = self._admitted(task.actor, result, agree) or key
                    continue
                if final(result, task.attempt):
                    yield task.shard, result
                else:
                    queue.append((task.shard, task.attempt + 1))
                # A lost worker is replaced; one that fails again and again is not.
                if isinstance(result, LostError):
                    self._close(task.actor)
                    vacant += 1
                elif not self._left_out(task.actor, result):
                    self.idle.append(task.actor)

    def _watch(self, reference: Any, actor: Any, shard: Shard | None = None, attempt: int = 0) -> None:
        self.tasks[reference] = Task(actor, shard, attempt, time.monotonic() + self.limit)

    def _admitted(self, actor: Any, identity: Any, agree: Agree) -> str:
        """The key of the job, if the model of a new actor is that of the job; without it the actor is given up."""
        try:
            if isinstance(identity, Exception):
                raise identity
            key = agree(identity)
        except Exception as error:
            self._close(actor)
            if self.tasks or self.idle:
                note(f"a worker cannot be used: {first_line(error)}")
                return ""
            # It was the last one, and its reason is the user's to mend.
            if isinstance(error, UsageError):
                raise
            raise StorageError(f"no worker: {first_line(error)}") from None
        self.idle.append(actor)
        return key

    def _left_out(self, actor: Any, result: bytes | Exception) -> bool:
        """Give up a worker that fails twice in a row beside others: where the data are not, it takes all shards."""
        # A mistake in the data is none of the worker's.
        if not isinstance(result, Exception) or isinstance(result, UsageError):
            self.failures[actor] = 0
            return False
        self.failures[actor] += 1
        if self.failures[actor] < ATTEMPTS - 1 or not (self.tasks or self.idle):
            return False
        self._close(actor)
        note(f"a worker that fails again and again is left out: {first_line(result)}")
        return True

    def _ended(self) -> list[tuple[Task, Any]]:
        """The tasks that have ended, with their values or errors; those beyond their time limit have failed."""
        ready, _ = self.ray.wait(list(self.tasks), timeout=TICK)
        errors = self.ray.exceptions
        ended = []
        for reference in ready:
            try:
                result = self.ray.get(reference)
            # Raised by our own code in the worker; Ray may not be able to send it as it is.
            except errors.RayTaskError as error:
                result = error.cause if isinstance(error.cause, Exception) else error
            except errors.RayError as error:
                result = LostError(str(error).strip().splitlines()[-1])
            ended.append((self.tasks.pop(reference), result))
        for reference, task in list(self.tasks.items()):
            if time.monotonic() > task.deadline:
                what = "the shard" if task.shard else "a model to be loaded, or a worker to be started,"
                result = LostError(f"{what} took more than {self.limit:g} s (--shard-seconds)")
                ended.append((self.tasks.pop(reference), result))
        return ended

    def _close(self, actor: Any) -> None:
        with suppress(self.ray.exceptions.RayError):
            self.ray.kill(actor, no_restart=True)
