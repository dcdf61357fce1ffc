"""The pages of MLflow: which one is opened, and what is refused before a server starts."""

import socket
import subprocess
import sys
import time
from pathlib import Path
from urllib.request import urlopen

import pytest

from fsd import tracking
from fsd.errors import UsageError
from pipelines.ui import UIConfig, check_free, main


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_the_page_is_the_table_of_the_newest_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for experiment in ("fsd-arxiv", "fsd-wikipedia"):
        with tracking.run(experiment, "a run", params={}, tags={}):
            time.sleep(0.01)
    store = tracking.open_store()
    ids = {e.name: e.experiment_id for e in store.client.search_experiments()}

    newest = tracking.newest_page(store, "http://server")
    named = tracking.newest_page(store, "http://server", "fsd-arxiv")

    assert newest.startswith(f"http://server/#/experiments/{ids['fsd-wikipedia']}/runs?workflowType=machine_learning")
    assert named.startswith(f"http://server/#/experiments/{ids['fsd-arxiv']}/runs?")
    with pytest.raises(UsageError, match=r"the experiment must be one of .*fsd-arxiv.*; got fsd-books"):
        main(UIConfig(domain="books"))


def test_a_port_that_is_taken_is_refused() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(UsageError, match="port must be free; got "):
            check_free(int(taken.getsockname()[1]))
    with pytest.raises(UsageError, match="port must be between 1 and 65535; got 0"):
        check_free(0)


def test_the_server_answers_and_ends_with_the_command(tmp_path: Path) -> None:
    port = free_port()
    command = [sys.executable, "-m", "pipelines.ui", "--port", str(port)]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        page = process.stdout.readline().strip()
        with urlopen(f"http://127.0.0.1:{port}/health", timeout=30) as reply:
            assert reply.status == 200
        process.terminate()
        assert process.wait(60) == 128 + 15
    assert page.startswith(f"http://127.0.0.1:{port}")
