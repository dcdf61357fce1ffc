"""Open the runs in MLflow's user interface, at the table of the newest experiment.

`fsd ui` serves the store that MLFLOW_TRACKING_URI names, else `mlruns/` in the working folder, until it
is interrupted. A store that is a server itself needs no other one: its address is printed.

Examples:
    fsd ui
    fsd ui --domain wikipedia --port 5001
"""

import os
import socket
import subprocess
import sys
import time
import webbrowser
from dataclasses import dataclass
from functools import partial
from typing import Annotated
from urllib.error import URLError
from urllib.request import urlopen

from tyro.conf import arg

from fsd.errors import StorageError, UsageError
from pipelines.command.cli import command
from pipelines.command.context import stage
from pipelines.command.job import Job, check_name

HOST = "127.0.0.1"
READY = 90.0
"""Seconds in which the server must answer."""


@dataclass(frozen=True)
class UIConfig:
    """Where the pages are served."""

    port: int = 5000
    """Port of the pages on this machine."""
    domain: Annotated[str, arg(metavar="NAME", help_behavior_hint="")] = ""
    """Open the experiment fsd-<domain>. Default: the one with the newest run."""
    open: bool = False
    """Open the page in a browser as well."""


def prepare(config: UIConfig) -> Job:
    """Check the domain."""
    if config.domain:
        check_name("domain", config.domain)
    return Job(
        partial(run, config),
        {"runs": f"of fsd-{config.domain}" if config.domain else "all"},
        checks=[partial(check_port, config.port)],
    )


def run(config: UIConfig) -> None:
    """Start the server, print the address of the page, and wait for the end of the server."""
    experiment = f"fsd-{config.domain}" if config.domain else ""
    with stage("data"):
        # MLflow takes a second, which the stage shows.
        from fsd import tracking

        store = tracking.open_store()
    if store.is_server:
        print(store.newest_page(store.server, experiment))
        return
    check_free(config.port)
    server = f"http://{HOST}:{config.port}"
    with stage("data"):
        page = store.newest_page(server, experiment)
    command_line = [sys.executable, "-m", "mlflow", "server", "--workers", "1"]
    command_line += ["--host", HOST, "--port", str(config.port)]
    if store.root:
        command_line += ["--artifacts-destination", str(store.root / "mlruns" / "artifacts")]
    # Every user can read a command line, and there may be a password in the address.
    environment = {**os.environ, "MLFLOW_BACKEND_STORE_URI": store.uri}
    # Its jobs are for generative AI, and six more processes.
    environment["MLFLOW_SERVER_ENABLE_JOB_EXECUTION"] = "false"
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command_line, env=environment, stdout=quiet, stderr=quiet) as process:
        try:
            with stage("server"):
                wait(process, server)
            print(f"{page}\nCtrl-C ends the server.", flush=True)
            if config.open:
                webbrowser.open(page)
            process.wait()
        finally:
            process.terminate()


def check_port(port: int) -> None:
    """Check that there is such a port."""
    if not 0 < port < 2**16:
        raise UsageError(f"port must be between 1 and 65535; got {port}")


def check_free(port: int) -> None:
    """Check that there is such a port, and that nothing else listens on it."""
    check_port(port)
    with socket.socket() as probe:
        # A port whose last connections are still being closed is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise UsageError(
                f"port must be free; got {port}, which another program uses or which is reserved: choose another by "
                "--port, or open the pages that are served there"
            ) from error


def wait(process: "subprocess.Popen[bytes]", server: str) -> None:
    """Wait until the server answers."""
    end = time.monotonic() + READY
    while time.monotonic() < end:
        if process.poll() is not None:
            raise StorageError(f"MLflow's server must serve the store; it ended with exit code {process.returncode}")
        try:
            with urlopen(f"{server}/health", timeout=5):
                return
        except (URLError, OSError):
            time.sleep(0.3)
    raise StorageError(f"MLflow's server must answer within {READY:.0f} s; {server} does not")


if __name__ == "__main__":
    command(UIConfig, prepare, __doc__ or "", stages={"data": "runs", "server": "starting MLflow's server"})
