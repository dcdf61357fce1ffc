"""The pages of MLflow: which one is opened, and what is refused before a server starts."""

import base64
import json
import os
import re
import select
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.request import urlopen

import psutil
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


def test_services_refuse_a_port_on_which_another_program_answers(tmp_path: Path, root: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        for given, must in ((port, f"free; another program uses {port}"), ("0", "between 1 and 65535; got 0")):
            command = ["bash", str(root / "scripts" / "services.sh"), "start", str(tmp_path / "services"), given]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            assert done.returncode == 2
            assert done.stderr.startswith(f"services: the port must be {must}")
    assert list((tmp_path / "services").iterdir()) == []


class Served(NamedTuple):
    """A server with the pages of one finished run."""

    pid: int
    page: str
    server: str
    run: tracking.RunRecord
    client: Any


@pytest.fixture(scope="module")
def served(request: pytest.FixtureRequest) -> Iterator[Served]:
    port, folder = free_port(), os.environ.get("STORE") or request.getfixturevalue("finished_run").folder
    command = [sys.executable, "-m", "pipelines.ui", "--port", str(port)]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        page = process.stdout.readline().strip()
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder)
            run = next(run for run in reversed(tracking.find_runs("fsd-arxiv")) if "headline/auc" in run.metrics)
            client = tracking.open_store().client
        yield Served(process.pid, page, f"http://127.0.0.1:{port}", run, client)
        process.terminate()
        assert process.wait(60) == 128 + 15


VISIBLE = """
(text => [...document.querySelectorAll("*")].some(element => {
    const box = element.getBoundingClientRect(), x = (box.left + box.right) / 2, y = (box.top + box.bottom) / 2
    const top = !element.children.length && element.textContent.includes(text) && document.elementFromPoint(x, y)
    const inside = box.right <= innerWidth && box.bottom <= innerHeight
    return top && inside && (element.contains(top) || top.contains(element))
}))(%s)
"""
"""Whether a text is in the window, and nothing lies over it."""


class Browser:
    """Headless Chromium with a window of 1,400 × 900 pixels, driven by its debugging pipe."""

    def __init__(self, program: str, profile: Path) -> None:
        self.count, (theirs, self.send), (self.receive, answers) = 0, os.pipe(), os.pipe()
        quiet = ("gpu", "quic", "background-networking", "component-update", "sync", "dev-shm-usage")
        flags = ["--headless", "--no-sandbox", "--no-first-run", *(f"--disable-{name}" for name in quiet)]
        flags += ["--remote-debugging-pipe", "--hide-scrollbars", f"--user-data-dir={profile}", "about:blank"]
        self.process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{theirs} 4>&{answers}', "bash", program, *flags],
            pass_fds=(theirs, answers),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self.session: dict[str, str] = {}
        target = self("Target.createTarget", url="about:blank")["targetId"]
        self.session = {"sessionId": self("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]}
        self("Emulation.setDeviceMetricsOverride", width=1400, height=900, deviceScaleFactor=1, mobile=False)

    def __call__(self, method: str, **params: Any) -> Any:
        self.count += 1
        message = json.dumps({"id": self.count, "method": method, "params": params, **self.session})
        os.write(self.send, message.encode() + b"\0")
        while True:
            answer = b""
            while not answer.endswith(b"\0"):
                assert select.select([self.receive], [], [], 60)[0], f"{method}: no answer"
                answer += os.read(self.receive, 1)
            found = json.loads(answer[:-1])
            if found.get("id") == self.count:
                return found["result"]

    def open(self, address: str, *texts: str) -> bytes:
        """Open a page, wait until each text is visible, and return the picture."""
        self("Page.navigate", url="about:blank")
        self("Page.navigate", url=address)
        for text in texts:
            expression, end = VISIBLE % json.dumps(text), time.monotonic() + 120
            while not self("Runtime.evaluate", expression=expression)["result"].get("value"):
                assert time.monotonic() < end, f"{text!r} is not visible on {address}"
                time.sleep(0.2)
        time.sleep(1.0)
        return base64.b64decode(self("Page.captureScreenshot")["data"])


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("Chromium is not installed")
    opened = Browser(program, tmp_path_factory.mktemp("profile"))
    yield opened
    opened.process.terminate()
    opened.process.wait(60)


@pytest.mark.slow
def test_the_server_answers_until_the_command_ends(served: Served) -> None:
    assert served.page.startswith(f"{served.server}/#/experiments/")
    with urlopen(f"{served.server}/health", timeout=30) as reply:
        assert reply.status == 200
    command = psutil.Process(served.pid)
    started = [Path(f"/proc/{one.pid}/cmdline").read_text() for one in command.children(recursive=True)]
    assert any("mlflow" in line for line in started)
    assert not any("sqlite:" in line for line in started)  # nor, of a database, its password


@pytest.mark.slow
def test_the_pages_show_the_headline_within_1400_pixels(served: Served, browser: Browser, tmp_path: Path) -> None:
    """`SCREENS=docs/images` keeps the pictures, and `STORE=FOLDER` takes the runs of a folder with mlruns/."""
    run, experiment = served.run, served.page.partition("/experiments/")[2].partition("/")[0]
    assert re.fullmatch(r"\w+ s\d+ · .* · [\w ]+ \d?\.\d\d", run.name)
    auc, answer = (
        f"{run.metrics['headline/auc']:.4f}".rstrip("0"),
        re.sub(r"\\(.)", r"\1", run.tags["mlflow.note.content"].split("\n")[0]),
    )
    model = next(one for one in served.client.search_logged_models([experiment]) if one.source_run_id == run.id)
    (version,) = json.loads(model.tags["mlflow.modelVersions"])
    learning, registered = "workflowType=machine_learning", f"v{version['version']}"
    pages = {
        "runs": (served.page, auc, "headline/auc", "headline/blind"),
        "charts": (f"{served.page}&compareRunsMode=CHART", "Parallel Coordinates", "headline/auc"),
        "run": (tracking.address(served.server, experiment, run.id), run.name, registered, answer),
        "version": (f"{served.server}/#/models/fsd-arxiv/versions/{version['version']}?{learning}", answer),
        "model": (
            f"{served.server}/#/experiments/{experiment}/models/{model.model_id}?{learning}",
            model.name,
            registered,
            answer,
        ),
    }
    for name, (address, *texts) in pages.items():
        picture = browser.open(address, *texts)
        (Path(os.environ.get("SCREENS", tmp_path)) / f"{name}.png").write_bytes(picture)
