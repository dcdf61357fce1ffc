"""The pages of MLflow: which one is opened, and what is refused before a server starts."""

import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.request import urlopen

import pytest

from fsd import tracking
from fsd.errors import UsageError
from pipelines.ui import UIConfig, check_free, prepare


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

    newest = store.newest_page("http://server")
    named = store.newest_page("http://server", "fsd-arxiv")

    assert newest.startswith(f"http://server/#/experiments/{ids['fsd-wikipedia']}/runs?workflowType=machine_learning")
    assert named.startswith(f"http://server/#/experiments/{ids['fsd-arxiv']}/runs?")
    with pytest.raises(UsageError, match=r"the experiment must be one of .*fsd-arxiv.*; got fsd-books"):
        prepare(UIConfig(domain="books")).run()


def test_a_port_that_is_taken_is_refused() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(UsageError, match="port must be free; got "):
            check_free(int(taken.getsockname()[1]))
    with pytest.raises(UsageError, match="port must be between 1 and 65535; got 0"):
        check_free(0)


class Served(NamedTuple):
    """A server with the pages of one finished run."""

    page: str
    server: str
    run: tracking.RunRecord


@pytest.fixture(scope="module")
def served(finished_run: Any) -> Iterator[Served]:
    port = free_port()
    command = [sys.executable, "-m", "pipelines.ui", "--port", str(port)]
    with subprocess.Popen(command, cwd=finished_run.folder, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        page = process.stdout.readline().strip()
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(finished_run.folder)
            run = next(run for run in tracking.find_runs("fsd-arxiv") if "headline/auc" in run.metrics)
        yield Served(page, f"http://127.0.0.1:{port}", run)
        process.terminate()
        assert process.wait(60) == 128 + 15


@pytest.fixture
def browser(tmp_path: Path) -> Callable[..., str]:
    """`browser(flag, address)` opens a page in headless Chromium, and returns what it prints."""
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("Chromium is not installed")
    quiet = ("gpu", "quic", "background-networking", "component-update", "sync", "dev-shm-usage")
    flags = ["--headless", "--no-sandbox", "--no-first-run", *(f"--disable-{name}" for name in quiet)]
    # sandboxed frames in a process of their own are missing in screenshots
    flags += ["--disable-features=IsolateSandboxedIframes", f"--user-data-dir={tmp_path}/profile"]
    flags += ["--window-size=1800,1100", "--virtual-time-budget=25000"]

    def run(flag: str, address: str) -> str:
        done = subprocess.run([program, *flags, flag, address], capture_output=True, text=True, timeout=90, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.mark.slow
def test_the_server_answers_until_the_command_ends(served: Served) -> None:
    assert served.page.startswith(f"{served.server}/#/experiments/")
    with urlopen(f"{served.server}/health", timeout=30) as reply:
        assert reply.status == 200


@pytest.mark.slow
def test_the_pages_show_name_and_headline(served: Served, browser: Callable[..., str]) -> None:
    name, number = served.run.name, str(served.run.metrics["headline/auc"])[:12]
    experiment = served.page.partition("/experiments/")[2].partition("/")[0]
    assert re.fullmatch(r"[\w ]+ \d?\.\d\d · lora · seed \d+ · data · tiny", name)

    for page in (served.page, tracking.address(served.server, experiment, served.run.id)):
        shown = browser("--dump-dom", page)
        assert all(text in shown for text in (f">{name}<", "headline/auc", "headline/blind", number))
