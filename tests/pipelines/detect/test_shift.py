"""Members and non-members of different kinds: no version becomes champion, and no verdict is given."""

import json
import shutil

import pandas as pd
import pytest

from fsd import tracking
from fsd.config import AdapterConfig, DataConfig, DetectorConfig, FSDConfig, ModelConfig
from fsd.data import embedded
from fsd.errors import UsageError
from fsd.evaluation.verdicts import NO_VERDICT, OUT_OF_DOMAIN
from pipelines.common.adapter_files import AUDIT
from pipelines.detect.__main__ import DetectConfig
from pipelines.detect.__main__ import prepare as detect
from pipelines.fsd import prepare


@pytest.fixture(scope="module")
def shifted_run(benchmark_data, tmp_path_factory):
    """A run on 100 embedded members and 100 articles of Wikipedia that are labelled non-members."""
    folder = tmp_path_factory.mktemp("shifted")
    members = [document.text for document in embedded.corpus() if document.member][:100]
    lines = (benchmark_data / "wikimia_128.jsonl").read_text(encoding="utf-8").splitlines()
    articles = [json.loads(line)["input"] for line in lines]
    rows = [{"text": text, "label": 1} for text in members] + [{"text": text, "label": 0} for text in articles[:100]]
    (folder / "shifted.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        prepare(
            FSDConfig(
                audit_repeats=1,
                data=DataConfig(data=("shifted.jsonl",)),
                model=ModelConfig(model="embedded", device="cpu"),
                training=AdapterConfig(epochs=1),
                detection=DetectorConfig(detectors="loss"),
                placebo="none",
            )
        ).run()
        yield folder


def test_a_version_that_a_blind_classifier_explains_is_no_champion(shifted_run):
    version = tracking.version_info("models:/fsd-arxiv/1")

    assert version.aliases == ()
    assert json.loads(tracking.fetch_model_file(version.uri, AUDIT).read_text())["explains"]


def test_detect_refuses_an_adapter_that_a_blind_classifier_explains(shifted_run):
    with pytest.raises(UsageError, match=r"a blind classifier.*that benchmark cannot show membership") as caught:
        detect(DetectConfig(files=("shifted.jsonl",), adapter="models:/fsd-arxiv/1", fpr=0.1, device="cpu")).run()
    assert "\n" not in str(caught.value)


def test_texts_of_the_kind_of_the_members_get_no_verdict(shifted_run, tmp_path, capsys):
    """The embedded non-members look like the members: they are far above the calibration, which is of another kind."""
    folder = shutil.copytree(tracking.fetch_adapter("models:/fsd-arxiv/1").parent, tmp_path / "adapter of old")
    (folder / AUDIT).unlink()
    asked = [{"text": document.text} for document in embedded.corpus() if not document.member][:60]
    (tmp_path / "asked.jsonl").write_text("".join(json.dumps(row) + "\n" for row in asked), encoding="utf-8")
    files = (str(tmp_path / "asked.jsonl"),)
    detect(DetectConfig(files=files, adapter=str(folder), fpr=0.1, device="cpu", out=str(tmp_path / "v.parquet"))).run()

    table = pd.read_parquet(tmp_path / "v.parquet")
    assert set(table["verdict"]) <= {OUT_OF_DOMAIN, NO_VERDICT}
    assert table["p_value"].isna().all()
    assert not table["selected"].any()
    output = capsys.readouterr().out
    assert "WARNING: no verdict, since the texts together are not exchangeable" in " ".join(output.split())
    assert "WARNING: no audit of this adapter is known" in output
    one = [{"text": asked[0]["text"]}]
    (tmp_path / "one.jsonl").write_text(json.dumps(one[0]) + "\n", encoding="utf-8")
    detect(
        DetectConfig(
            files=(str(tmp_path / "one.jsonl"),),
            adapter=str(folder),
            fpr=0.1,
            device="cpu",
            out=str(tmp_path / "one.parquet"),
        )
    ).run()
    assert pd.read_parquet(tmp_path / "one.parquet")["verdict"].tolist()[0] in (OUT_OF_DOMAIN, NO_VERDICT)
