"""A local server with as much of the hub's protocol as loading models and data files needs."""

import hashlib
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

import pytest

SHA = "0123456789abcdef0123456789abcdef01234567"
Repositories = dict[str, dict[str, bytes]]


class Hub(BaseHTTPRequestHandler):
    """GET api/KIND/ID[/revision/R], its tree, POST paths-info, and resolve with the hub's headers.

    Every repository is a dataset and a model. A full commit is answered as itself; any other revision is at `SHA`.
    """

    protocol_version = "HTTP/1.1"
    repositories: Repositories
    gated: Sequence[str]
    asked: list[str]

    def _send(self, status, body, **headers):
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), "Content-Type": "application/json", **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _json(self, value):
        self._send(200, json.dumps(value).encode())

    def _missing(self, code, status=404):
        self._send(status, json.dumps({"error": code}).encode(), X_Error_Code=code, X_Error_Message=code)

    def _entries(self, files, under="", recursive=True):
        """Folders and files below a folder, as the hub lists them."""
        above = {"/".join(path.split("/")[:n]) for path in files for n in range(1, path.count("/") + 1)}
        listed: list[dict[str, object]] = [
            {"type": "directory", "path": path, "size": 0, "oid": hashlib.sha1(path.encode()).hexdigest()}
            for path in sorted(above)
        ]
        listed += [
            {"type": "file", "path": path, "size": len(content), "oid": hashlib.sha1(content).hexdigest()}
            for path, content in files.items()
        ]
        start = f"{under}/" if under else ""
        return [
            entry
            for entry in listed
            if str(entry["path"]).startswith(start) and (recursive or "/" not in str(entry["path"])[len(start) :])
        ]

    def _answer(self, body=b""):
        url = urlsplit(self.path)
        self.asked.append(f"{self.command} {url.path}")
        parts = unquote(url.path).strip("/").split("/")
        api = parts[0] == "api"
        parts = parts[1:] if api else parts
        if not api and parts[0] != "datasets":  # files of models have no prefix
            parts = ["models", *parts]
        name = "/".join(parts[1:3])
        files = self.repositories.get(name)
        if parts[0] not in ("datasets", "models") or files is None:
            self._missing("RepoNotFound")
            return
        verb, rest = (parts[3] if len(parts) > 3 else "revision"), parts[5:]
        commit = parts[4] if len(parts) > 4 and re.fullmatch("[0-9a-f]{40}", parts[4]) else SHA
        if not api and name in self.gated:
            self._missing("GatedRepo", 403)
        elif api and verb == "revision":
            self._json(
                {
                    "id": name, "sha": commit, "private": False, "gated": False, "disabled": False, "tags": [],
                    "downloads": 0, "likes": 0, "lastModified": "2024-01-01T00:00:00.000Z",
                    "siblings": [{"rfilename": path} for path in files],
                }
            )  # fmt: skip
        elif api and verb == "tree":
            under = "/".join(rest)
            found = self._entries(files, under, "recursive=true" in url.query.lower())
            self._json(found) if found or not under else self._missing("EntryNotFound")
        elif api and verb == "paths-info":
            try:
                wanted = json.loads(body)["paths"]
            except ValueError:
                wanted = [
                    unquote(v) for k, _, v in (p.partition("=") for p in body.decode().split("&")) if k == "paths"
                ]
            self._json([entry for entry in self._entries(files) if entry["path"] in wanted])
        elif not api and verb == "resolve" and "/".join(rest) in files:
            content = files["/".join(rest)]
            tag = hashlib.sha1(content).hexdigest()
            self._resolved(content, ETag=f'"{tag}"', X_Repo_Commit=commit, Content_Type="application/octet-stream")
        else:
            self._missing("EntryNotFound")

    def _resolved(self, content, **headers):
        """A file, or the part of it that is asked for."""
        part = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if not part:
            self._send(200, content, **headers)
            return
        begin, end = int(part[1]), min(int(part[2] or len(content)), len(content) - 1)
        headers["Content_Range"] = f"bytes {begin}-{end}/{len(content)}"
        self._send(206, content[begin : end + 1], **headers)

    def do_GET(self):
        self._answer()

    def do_HEAD(self):
        self._answer()

    def do_POST(self):
        self._answer(self.rfile.read(int(self.headers.get("Content-Length", 0))))

    def log_message(self, *_):
        pass


@pytest.fixture
def serve():
    """Starts a hub with the files of repositories; gives its URL and the list of its requests."""
    servers = []

    def start(repositories, gated=()):
        asked: list[str] = []
        handler = type("OneHub", (Hub,), {"repositories": repositories, "asked": asked, "gated": gated})
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{server.server_port}", asked

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture
def in_fresh_process(root, tmp_path):
    """Runs code with a hub's URL and an argument, and gives the JSON lines it prints.

    The libraries read the hub's address when they are imported, so a test process cannot change it.
    """

    def run(code, endpoint, argument):
        kept = {k: v for k, v in os.environ.items() if not k.startswith("HF_") and not k.lower().endswith("_proxy")}
        environment = kept | {
            "HF_ENDPOINT": endpoint,
            "HF_HOME": str(tmp_path / "hub"),
            "HF_HUB_DISABLE_TELEMETRY": "1",
        }
        command = [sys.executable, "-c", code, json.dumps(argument)]
        done = subprocess.run(
            command, env=environment, cwd=root, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    return run
