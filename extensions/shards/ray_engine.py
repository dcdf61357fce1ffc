"""Shards computed by workers of Ray, each with a model of its own, on this machine or a cluster.

Ray starts a worker that died again, and gives it its task again. What fails all the same is computed by the next
command, which finds the finished shards.
"""

import os
import socket
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import islice
from secrets import token_hex
from typing import Any

from extensions.shards.files import Shard
from extensions.shards.shards import Agree, Results, computed
from fsd.api import ShardConfig, UsageError, refusing
from pipelines.api import RowWork, Worker

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
QUIET = {"log_to_driver": False, "logging_level": "ERROR"}


class Actor:
    """A worker in a process of Ray; the model is loaded at the first call, also after Ray has started it again."""

    def __init__(self, work: RowWork, folder: str) -> None:
        self.work = work
        os.chdir(folder)

    def identity(self) -> Mapping[str, str] | Exception:
        """What its model is, or why it cannot be loaded."""
        try:
            return self._worker.identity
        # Ray would wrap it, and print it with its traceback.
        except Exception as error:
            return error

    def compute(self, shard: Shard, key: str, identity: Mapping[str, str]) -> bytes | Exception:
        """The file of a shard, by the model that the job is of, or why there is none."""
        loaded = self.identity()
        if isinstance(loaded, Exception):
            return loaded
        if loaded != identity:
            return UsageError(f"all workers must have the same model; one has {loaded}, another {identity}")
        return computed(self._worker, shard, key)

    @cached_property
    def _worker(self) -> Worker:
        return self.work.open()


def compute(work: RowWork, shards: Sequence[Shard], agree: Agree) -> Results:
    """The files of shards, or why they could not be computed, as they come."""
    options: ShardConfig = work.config.shards
    # Ray itself would join the cluster of the variable too.
    address = options.address or os.environ.get("RAY_ADDRESS")
    settings = SETTINGS if address else SETTINGS | ALONE | {"RAY_AUTH_TOKEN": token_hex(32)}
    # Ray reads them when it is imported.
    for name, value in settings.items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError as error:
        raise UsageError("engine ray must have the package ray; it is not installed: pip install 'fsd[ray]'") from error
    try:
        if address:
            _check_answers(address)
            ray.init(address, **QUIET)
        else:
            # A cluster has a dashboard of its own; one of this machine alone needs none.
            ray.init(include_dashboard=False, **QUIET)
        yield from _results(ray, work, shards, agree)
    finally:
        ray.shutdown()


def _check_answers(address: str) -> None:
    """Refuse a cluster that does not answer, which Ray would try for very long."""
    host, _, port = address.rpartition("/")[2].rpartition(":")
    # Other words, such as auto, name no machine.
    if not port.isdecimal():
        return
    with refusing(f"address must be of a Ray cluster that answers; {address}: ", OSError):
        socket.create_connection((host, int(port)), timeout=60).close()


def _results(ray: Any, work: RowWork, shards: Sequence[Shard], agree: Agree) -> Results:
    """Give each worker that has nothing to do the next shard."""
    actors = _actors(ray, work, len(shards))
    identity = ray.get(actors[0].identity.remote())
    if isinstance(identity, Exception):
        raise identity
    key = agree(identity)
    waiting = iter(shards)
    running: dict[Any, tuple[Any, Shard]] = {}

    def begin(actor: Any) -> None:
        for shard in islice(waiting, 1):
            running[actor.compute.remote(shard, key, identity)] = (actor, shard)

    for actor in actors:
        begin(actor)
    while running:
        (done,), _ = ray.wait(list(running), num_returns=1)
        actor, shard = running.pop(done)
        begin(actor)
        try:
            yield shard, ray.get(done)
        # The worker died each time, as one does that has too little memory.
        except ray.exceptions.RayError as error:
            yield shard, RuntimeError(str(error).strip().splitlines()[-1])


def _actors(ray: Any, work: RowWork, shards: int) -> list[Any]:
    """As many workers as there is room for, or as were asked for, but no more than shards."""
    options: ShardConfig = work.config.shards
    resources = ray.cluster_resources()
    gpus = options.actor_gpus
    if gpus is None:
        gpus = 1.0 if resources.get("GPU") else 0.0
    room = int(resources.get("CPU", 1))
    if gpus and resources.get("GPU"):
        room = int(resources["GPU"] / gpus)
    size = min(options.actors or max(room, 1), shards)
    kind = ray.remote(Actor).options(num_gpus=gpus, max_restarts=-1, max_task_retries=3)
    return [kind.remote(work, os.getcwd()) for _ in range(size)]  # noqa: PTH109
