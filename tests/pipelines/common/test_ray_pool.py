"""What the engine does with workers that cannot work, by a Ray of a few lines: no process, no model, no time."""

import errno
import os
import sys
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fsd.config import ShardConfig
from fsd.data.shards import Shard
from fsd.errors import StorageError, UsageError
from fsd.leftovers import host
from pipelines.common import ray_engine
from pipelines.common.shards import Work

SHARDS = [Shard(number, "x.jsonl", 0, 0, number + 1, 1) for number in range(6)]


class RayError(Exception):
    """A worker that is gone."""


class RayTaskError(RayError):
    """An error in a worker."""

    def __init__(self, cause: Exception) -> None:
        self.cause = cause


class Actor:
    """A call gives a reference, which is a function of the answer."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self.identity, self.compute = (
            SimpleNamespace(remote=partial(partial, call, name)) for name in ("identity", "compute")
        )


class Ray:
    """As much of Ray as the engine uses: `call(worker, method, ...)` answers for each worker."""

    exceptions = SimpleNamespace(RayError=RayError, RayTaskError=RayTaskError)

    def __init__(self, call: Callable[..., Any]) -> None:
        self.call, self.numbers, self.killed = call, count(), 0
        self.folder, self.mode = Path(), 0

    def init(self, *_: object, _temp_dir: str, **__: object) -> None:
        """Nothing is started."""
        self.folder = Path(_temp_dir)
        self.mode = self.folder.stat().st_mode & 0o777

    def shutdown(self) -> None:
        """Nothing has to be ended."""

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": 3.0}

    def remote(self, _: type) -> Any:
        return SimpleNamespace(options=lambda **_: SimpleNamespace(remote=self.start))

    def start(self, *_: object) -> Any:
        return Actor(partial(self.call, next(self.numbers)))

    def wait(self, references: list[Any], timeout: float) -> tuple[list[Any], list[Any]]:
        return sorted(references, key=lambda reference: reference.args[0])[:1], []  # the first worker is the fastest

    def get(self, reference: Callable[[], Any]) -> Any:
        return reference()

    def kill(self, _: object, *, no_restart: bool) -> None:
        self.killed += no_restart


@pytest.fixture
def compute(monkeypatch) -> Callable[[Callable[..., Any]], dict[int, bytes | str]]:
    """What comes of each shard, by workers that answer so."""

    def run(call: Callable[..., Any]) -> dict[int, bytes | str]:
        monkeypatch.setitem(sys.modules, "ray", Ray(call))
        work = Work("none", SimpleNamespace(shards=ShardConfig(engine="ray")))
        found = list(ray_engine.compute(work, SHARDS, lambda identity: f"key of {identity['name']}"))
        assert len(found) == len(SHARDS)
        return {shard.number: str(result) if isinstance(result, Exception) else result for shard, result in found}

    return run


def working(method: str, *arguments: Any) -> Any:
    return {"name": "m"} if method == "identity" else f"{arguments[0].number} {arguments[1]}".encode()


WHOLE = {shard.number: f"{shard.number} key of m".encode() for shard in SHARDS}
WITHOUT = {
    "package": RayError("The actor died because of an error raised in its creation task.\nNo module named 'fsd'"),
    "model": RayTaskError(UsageError("model must be a folder; there is none at /models/m")),
}


def test_a_worker_without_the_package_or_the_model_is_named_and_left_out(compute, capsys) -> None:
    def call(worker: int, method: str, *arguments: Any) -> Any:
        if worker < len(WITHOUT):
            raise list(WITHOUT.values())[worker]
        return working(method, *arguments)

    assert compute(call) == WHOLE
    assert [line for line in capsys.readouterr().err.splitlines() if line] == [
        "a worker cannot be used: No module named 'fsd'",
        "a worker cannot be used: model must be a folder; there is none at /models/m",
    ]


@pytest.mark.parametrize(
    ("what", "kind", "message"),
    [("package", StorageError, "no worker: No module named 'fsd'"), ("model", UsageError, "model must be a folder")],
)
def test_without_any_worker_the_last_reason_is_the_error(what, kind, message, compute) -> None:
    def call(*_: object) -> Any:
        raise WITHOUT[what]

    with pytest.raises(kind, match=message):
        compute(call)


@pytest.mark.parametrize("broken", [1, 3])
def test_a_worker_with_a_full_disk_does_not_take_all_shards(broken, compute, capsys) -> None:
    def call(worker: int, method: str, *arguments: Any) -> Any:
        if method == "compute" and worker < broken:
            raise RayTaskError(OSError(errno.ENOSPC, "No space left on device"))
        return working(method, *arguments)

    reason = "[Errno 28] No space left on device"
    assert compute(call) == (WHOLE if broken == 1 else dict.fromkeys(WHOLE, reason))
    assert capsys.readouterr().err.count(f"a worker that fails again and again is left out: {reason}") == min(broken, 2)


def test_ray_on_this_machine_alone_is_for_this_user_alone_and_leaves_nothing(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(ray_engine, "LONGEST", 500)
    for name in (*ray_engine.ALONE, ray_engine.TOKEN):
        monkeypatch.delenv(name, raising=False)
    killed = tmp_path / f"{ray_engine.SESSION}killed"
    killed.mkdir()
    (killed / ray_engine.OWNER).write_text(f"{host()}-{2**22}-1")
    ray = Ray(lambda _, *call: working(*call))
    monkeypatch.setitem(sys.modules, "ray", ray)
    work = Work("none", SimpleNamespace(shards=ShardConfig(engine="ray")))
    (*_,) = ray_engine.compute(work, SHARDS, lambda identity: "key")

    assert ray.folder.parent == tmp_path
    assert ray.mode == 0o700
    assert list(tmp_path.iterdir()) == []
    assert os.environ["RAY_AUTH_MODE"] == "token"
    assert len(os.environ[ray_engine.TOKEN]) == 64


def test_the_sockets_of_ray_have_room_below_its_folder(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / ("x" * 40)))
    with ray_engine._session_folder() as folder:
        assert len(str(folder)) <= ray_engine.LONGEST
