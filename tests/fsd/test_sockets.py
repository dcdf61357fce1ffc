"""Sockets that another package fills, and what is said where none does."""

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fsd import plugs
from fsd.config import APIConfig, ModelConfig
from fsd.errors import UsageError
from fsd.net import hub
from fsd.plugs import Plug
from fsd.scoring.services import service_scorers


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Makes a package with these sockets the only one that is installed."""

    def install(**sockets: str) -> None:
        monkeypatch.setattr(plugs, "plugs", lambda: (Plug(**sockets),))
        plugs.filled.cache_clear()

    yield install
    monkeypatch.undo()
    plugs.filled.cache_clear()


def zipped(model: str) -> hub.WeightsFile | None:
    """A package that knows files of its own: each is the model in the folder of its name."""
    path = Path(model)
    if path.suffix != ".zipped":
        return None
    header = SimpleNamespace(parameters=10, revision="zipped")
    return hub.WeightsFile(path, lambda: header, lambda cache, *, weights: path.with_suffix(""))


def service(config: ModelConfig, api: APIConfig, tokens: Any, chat: bool) -> dict[str, str]:
    """A package that knows a service."""
    return {"base": f"{config.model} {api.base_url} {tokens} {chat}"}


def test_a_file_of_weights(installed: Callable[..., None], tmp_path: Path) -> None:
    file = tmp_path / "tiny.zipped"
    file.write_bytes(b"12345")
    installed(weights=f"{__name__}:zipped")
    assert hub.locate(str(file)) == (tmp_path / "tiny", "zipped")
    assert hub.model_size(str(file)) == (tmp_path, 5, 10)
    assert hub.weights_file("embedded") is None


def test_a_service(installed: Callable[..., None]) -> None:
    installed(service=f"{__name__}:service")
    assert service_scorers(ModelConfig("api:x"), APIConfig(base_url="u"), chat=True) == {"base": "api:x u None True"}


def test_what_nobody_fills_is_refused(installed: Callable[..., None]) -> None:
    installed()
    message = "^an extension must fill the socket service here; none that is installed does$"
    with pytest.raises(UsageError, match=message):
        service_scorers(ModelConfig("api:x"), APIConfig())
