"""Members and non-members of different kinds: no version becomes champion, and no verdict is given."""

import json
import shutil

import pandas as pd
import pytest

from fsd import tracking
from fsd.config import AdapterConfig, DataConfig, DetectorConfig, FSDConfig, ModelConfig
from fsd.data import embedded
from fsd.verdicts.verdicts import NO_VERDICT, OUT_OF_DOMAIN
from pipelines.detect.__main__ import DetectConfig
from pipelines.detect.__main__ import prepare as prepare_detect
from pipelines.experiment.adapter_files import AUDIT
from pipelines.fsd import prepare
from tests.rows import write

pytestmark = pytest.mark.slow
VERSION = "models:/fsd-arxiv/1"


def detect(file, adapter, out=None):
    prepare_detect(DetectConfig((file,), adapter, fpr=0.1, device="cpu", out=out)).run()
    return pd.read_parquet(out)


@pytest.fixture(scope="module")
def shifted_run(benchmark_data, tmp_path_factory):
    """A run on 100 embedded members and 100 articles of Wikipedia that are labelled non-members."""
    folder = tmp_path_factory.mktemp("shifted")
    members = [document.text for document in embedded.corpus() if document.member][:100]
    lines = (benchmark_data / "wikimia_128.jsonl").read_text(encoding="utf-8").splitlines()[:100]
    others = [json.loads(line)["input"] for line in lines]
    write(folder / "shifted.jsonl", [{"text": text, "label": at} for at in (0, 1) for text in (others, members)[at]])
    config = FSDConfig(
        data=DataConfig(data=("shifted.jsonl",)),
        model=ModelConfig(model="embedded", device="cpu"),
        training=AdapterConfig(epochs=1),
        detection=DetectorConfig(detectors="loss"),
        placebo="none",
        audit_repeats=1,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        prepare(config).run()
        yield folder


def test_texts_of_the_kind_of_the_members_get_no_verdict(shifted_run, tmp_path, capsys):
    """The embedded non-members look like the members: they are far above the calibration, which is of another kind."""
    assert tracking.version_info(VERSION).aliases == ()
    folder = shutil.copytree(tracking.fetch_adapter(VERSION).parent, tmp_path / "adapter of old")
    (folder / AUDIT).unlink()
    asked = [{"text": document.text} for document in embedded.corpus() if not document.member][:60]
    for number in (1, 60):
        table = detect(write(tmp_path / "asked.jsonl", asked[:number]), str(folder), str(tmp_path / "v.parquet"))
        assert set(table["verdict"]) <= {OUT_OF_DOMAIN, NO_VERDICT}
        assert table["p_value"].isna().all()
        assert not table["selected"].any()
    output = " ".join(capsys.readouterr().out.split())
    assert "WARNING: no verdict, since the texts together are not exchangeable" in output
    assert "WARNING: no audit of this adapter is known" in output
