"""Tracking on database servers and on servers of MLflow; PostgreSQL starts where it is installed."""

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from fsd import tracking
from fsd.errors import UsageError


def test_a_missing_driver_is_named_with_the_extra_that_holds_it(bare, monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "postgresql://u:hunter2@127.0.0.1:9/x")
    with pytest.raises(UsageError, match=r"psycopg[^\n]*: pip install 'fsd\[postgres\]'\)$") as error:
        tracking.open_store()
    assert "hunter2" not in str(error.value)


@pytest.mark.parametrize(("version", "refused"), [("2.22.1", True), ("3.1.0", False), ("a proxy's page", False)])
def test_a_server_of_an_older_mlflow_is_refused(bare, monkeypatch, version, refused):
    class Server(BaseHTTPRequestHandler):
        def do_GET(self):
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            body = (version if self.path == "/version" else "{}").encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self):
            self.do_GET()

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://u:hunter2@127.0.0.1:{server.server_port}")
        try:
            if not refused:
                tracking.open_store()
                return
            with pytest.raises(
                UsageError, match=r"must be MLflow 3 or later; http://127.* is MLflow 2\.22\.1"
            ) as error:
                tracking.open_store()
            assert "hunter2" not in str(error.value)
        finally:
            server.shutdown()


def execute(url, *statements):
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement)


def test_a_database_server_that_does_not_answer_is_refused_at_once(bare, postgres, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "postgresql://u:hunter2@127.0.0.1:9/x")
    with pytest.raises(UsageError, match=r"^the tracking store must be [^\n]*refused") as error:
        tracking.open_store()
    assert "hunter2" not in str(error.value)


def test_a_database_without_the_right_to_create_tables_is_refused(bare, postgres, monkeypatch):
    url = postgres("closed")
    execute(url, "drop role if exists guest", "create role guest login", "revoke create on schema public from public")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", url.replace("user=fsd", "user=guest"))
    with pytest.raises(
        UsageError, match=r"^the tracking store must be [^\n]*guest has no right to create tables in it"
    ):
        tracking.open_store()


@pytest.mark.slow
def test_two_commands_at_once_create_the_tables_which_serve_other_folders_but_not_other_users(
    bare, postgres, monkeypatch, tmp_path, register, adapter, code
):
    url = postgres("shared")
    program = "from fsd import tracking\nwith tracking.run('fsd-x', 'a') as run: run.log_metrics({'auc/loss.base': .5})"
    running = []
    for name in ("one", "two"):  # each with its own temporary folder, as on two machines: MLflow's lock is a file there
        (tmp_path / name).mkdir()
        settings = {**os.environ, "MLFLOW_TRACKING_URI": url, "TMPDIR": str(tmp_path / name)}
        arguments = [sys.executable, "-c", program]
        running.append(subprocess.Popen(arguments, env=settings, stderr=subprocess.PIPE, text=True))
    errors = [process.communicate(timeout=200)[1] for process in running]
    assert [process.returncode for process in running] == [0, 0], errors

    monkeypatch.setenv("MLFLOW_TRACKING_URI", url)
    assert len(tracking.find_runs("fsd-x")) == 2
    register(adapter, code, 0.7, method="lora")
    elsewhere = tmp_path / "another checkout"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    fetched = tracking.fetch_adapter("models:/fsd-arxiv@champion")
    assert (fetched / "adapter_model.safetensors").read_bytes() == b"weights"
    assert tracking.fetch_model_file("models:/fsd-arxiv@champion", "calibration.json").read_text() == "0.5"
    execute(
        url,
        "drop role if exists reader",
        "create role reader login",
        "grant select on all tables in schema public to reader",
    )
    monkeypatch.setenv("MLFLOW_TRACKING_URI", url.replace("user=fsd", "user=reader"))
    with pytest.raises(UsageError, match=r"^the tracking store must be [^\n]*reader has no right to insert into"):
        tracking.open_store()


def test_many_processes_open_a_new_tuning_database(postgres):
    from fsd.tuning.optuna_storage import open_storage

    url = postgres("trials")
    with ThreadPoolExecutor(4) as pool:
        assert len(list(pool.map(lambda _: open_storage(url), range(4)))) == 4
