"""Stores and a registered adapter."""

import contextlib
import json
import shutil
import textwrap

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


@pytest.fixture
def register():
    """`register(adapter, code, score, barred=, once=, digests=, **tags)` opens a run and registers an adapter."""

    def register_version(adapter, code, score, barred="", once="", digests=None, **tags):
        tags["judged_on_digests"] = json.dumps(COMPARABLE | (digests or {}))
        options = {"validation_score": score, "files": {"calibration.json": "0.5"}, "tags": tags}
        rows = tracking.ServedRows(example={"text": "a text"})
        options |= {"card": "# The card", "rows": rows}
        with tracking.run("fsd-arxiv", "lora .70") as run:
            run.log_dataset("arxiv", ["a text"], source="data.jsonl", context="test")
            run.log_metrics({"auc/loss.fsd": score})
            return tracking.register(
                run, "fsd-arxiv", adapter, code, barred=barred, once=once, description="Yes.", **options
            )

    return register_version


@pytest.fixture
def adapter(tmp_path):
    """Folder of an adapter."""
    folder = tmp_path / "trained"
    folder.mkdir()
    contents = {"adapter_config.json": '{"r": 4}', "adapter_model.safetensors": "weights", "README.md": "not copied"}
    for name, content in contents.items():
        (folder / name).write_text(content)
    return folder


@pytest.fixture
def code(tmp_path):
    """The code of a registered model."""
    (tmp_path / "serving.py").write_text(CODE)
    return tmp_path / "serving.py"


@pytest.fixture
def here(tmp_path, monkeypatch):
    """The working folder, without a store and with a space in its name."""
    folder = tmp_path / "a checkout"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return folder


@pytest.fixture
def full(here, once, register, adapter, code):
    """The working folder with a store that holds one registered model, fsd-arxiv, with one version."""

    def made(folder):
        with contextlib.chdir(folder):
            register(adapter, code, 0.7, method="lora")

    shutil.copytree(once("registered", made), here, dirs_exist_ok=True)
    return here
