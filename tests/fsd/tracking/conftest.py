"""Stores and a registered adapter; creating a store takes seconds, so tests get a copy of one."""

import shutil
import textwrap
from pathlib import Path

import pytest

from fsd import tracking

CODE = textwrap.dedent(
    """
    from pathlib import Path
    import mlflow
    import pandas as pd

    class Length(mlflow.pyfunc.PythonModel):
        def load_context(self, context):
            self.folder = Path(context.artifacts["adapter"])
            self.bias = float((self.folder.parent / "calibration.json").read_text())

        def predict(self, context, model_input: pd.DataFrame, params=None) -> pd.DataFrame:
            return pd.DataFrame({"score": [len(text) + self.bias for text in model_input["text"]]})

    mlflow.models.set_model(Length())
    """
)

COMPARABLE = {"benchmark": "texts", "base_fingerprint": "base", "judging": "grouped"}


@pytest.fixture(scope="session")
def register():
    """`register(adapter, code, score, barred=, once=, **tags)` opens a run and registers an adapter."""

    def register_version(adapter, code, score, barred="", once=(), **tags):
        options = {"validation_score": score, "files": {"calibration.json": "0.5"}, "tags": {**COMPARABLE, **tags}}
        with tracking.run("fsd-arxiv", "lora") as run:
            return tracking.register(run, "fsd-arxiv", adapter, code, barred=barred, once=once, **options)

    return register_version


@pytest.fixture(scope="session")
def sources(tmp_path_factory):
    """Folder with an adapter, `trained`, and a model's code, `serving.py`."""
    folder = tmp_path_factory.mktemp("sources")
    (folder / "trained").mkdir()
    (folder / "trained" / "adapter_config.json").write_text('{"r": 4}')
    (folder / "trained" / "adapter_model.safetensors").write_bytes(b"weights")
    (folder / "trained" / "README.md").write_text("not copied")
    (folder / "serving.py").write_text(CODE)
    return folder


@pytest.fixture
def adapter(sources, tmp_path):
    return Path(shutil.copytree(sources / "trained", tmp_path / "trained"))


@pytest.fixture
def code(sources, tmp_path):
    return Path(shutil.copy(sources / "serving.py", tmp_path))


@pytest.fixture(scope="session")
def full_store(tmp_path_factory, sources, register):
    folder = tmp_path_factory.mktemp("full")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        register(sources / "trained", sources / "serving.py", 0.7, method="lora")
    return folder / "mlruns"


@pytest.fixture
def here(tmp_path, monkeypatch):
    """The working folder, without a store and with a space in its name."""
    folder = tmp_path / "a checkout"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return folder


@pytest.fixture
def full(here, full_store):
    """The working folder with a store that holds one registered model, fsd-arxiv, with one version."""
    shutil.copytree(full_store, here / "mlruns")
    return here
