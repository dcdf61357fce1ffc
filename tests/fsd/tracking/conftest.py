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


@pytest.fixture(scope="session")
def register():
    """Open a run and register an adapter."""

    def call(adapter, code, score, name="fsd-arxiv", **tags):
        with tracking.run(name, "lora") as run:
            return tracking.register(
                run, name, adapter, code, validation_score=score, files={"calibration.json": "0.5"}, tags=tags
            )

    return call


@pytest.fixture(scope="session")
def material(tmp_path_factory):
    """A trained adapter and a model's code."""
    folder = tmp_path_factory.mktemp("material")
    (folder / "trained").mkdir()
    (folder / "trained" / "adapter_config.json").write_text('{"r": 4}')
    (folder / "trained" / "adapter_model.safetensors").write_bytes(b"weights")
    (folder / "trained" / "README.md").write_text("left behind")
    (folder / "serving.py").write_text(CODE)
    return folder


@pytest.fixture
def adapter(material, tmp_path):
    return Path(shutil.copytree(material / "trained", tmp_path / "trained"))


@pytest.fixture
def code(material, tmp_path):
    return Path(shutil.copy(material / "serving.py", tmp_path))


def _made_in(folder, make):
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        make()
    return folder / "mlruns"


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory):
    """Creating the tables takes seconds, copying them does not."""
    return _made_in(tmp_path_factory.mktemp("empty"), tracking.open_store)


@pytest.fixture(scope="session")
def full_store(tmp_path_factory, empty_store, material, register):
    """One registered model, fsd-arxiv, with one version."""
    folder = tmp_path_factory.mktemp("full")
    shutil.copytree(empty_store, folder / "mlruns")
    return _made_in(folder, lambda: register(material / "trained", material / "serving.py", 0.7, method="lora"))


@pytest.fixture
def bare(tmp_path, monkeypatch):
    """A fresh working folder without a store; a space in its name, as checkouts have them."""
    folder = tmp_path / "a checkout"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return folder


@pytest.fixture
def here(bare, empty_store):
    shutil.copytree(empty_store, bare / "mlruns")
    return bare


@pytest.fixture
def full(bare, full_store):
    shutil.copytree(full_store, bare / "mlruns")
    return bare
