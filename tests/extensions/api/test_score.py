"""`pipelines.score` through an API, against the model itself: scores, AUCs, what is kept, what is refused."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fsd import tracking
from fsd.config import APIConfig, DetectorConfig, FSDConfig, ModelConfig, ScoreConfig
from fsd.errors import UsageError
from fsd.scoring.token_frequencies import FrequencyTable, fingerprint
from pipelines.fsd import prepare as fsd
from pipelines.score.job import prepare

KEY = "sk-secret-0123456789"


@pytest.fixture
def job(tmp_path, monkeypatch):
    rows = [{"text": f"The score {i} of a text {i * i}", "label": i % 2, "group": f"g{i}"} for i in range(12)]
    rows.append({"text": "A text of unknown origin", "label": None, "group": "g"})
    (tmp_path / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("fsd.text_audit.audit.REPEATS", 1)
    monkeypatch.setenv("FSD_CACHE", str(tmp_path / "cache"))

    def make(url, *, model="api:tiny", out="scores.parquet", frequencies=None, **options):
        api = APIConfig(base_url=url, **options)
        settings = ModelConfig(model=model, device="cpu", frequencies=frequencies)
        return ScoreConfig(data=("data.jsonl",), out=out, model=settings, api=api)

    return make


@pytest.fixture
def table(model, tmp_path):
    """A token-frequency table of the tiny tokenizer."""
    counts = np.arange(300, dtype=np.int64) ** 2
    file = tmp_path / "frequencies.npz"
    FrequencyTable(counts, fingerprint(model.tokenizer), "tiny", "made up", 1).save(file)
    return str(file)


def test_scores_equal_those_of_the_local_model(serve, vllm, tiny, job, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("FSD_API_KEY", KEY)
    url = serve(vllm(bos=True))
    prepare(job(url, price=1000.0)).run()
    output = capsys.readouterr()
    prepare(job(None, model=str(tiny), out="own.csv")).run()
    by_api, own = pd.read_parquet("scores.parquet"), pd.read_csv("own.csv")
    scored = [name for name in by_api if name.endswith(".base")]
    assert scored == [f"{name}.base" for name in ("loss", "lowercase", "min_k", "perplexity", "zlib")]
    assert "min_k_pp.base" in own
    np.testing.assert_allclose(by_api[scored], own[scored], rtol=1e-4)
    assert by_api["label"].isna().sum() == 1
    assert "13 texts: 26 requests, about" in output.err
    assert "at the given price" in output.err
    assert "surp left out: the API does not give what it needs: mean" in output.out
    assert "dc_pdd left out: it needs token ids, which --tokenizer MODEL gives" in output.out
    assert "base AUC" in output.out
    assert "blind: a classifier of words" in output.out
    assert {header["Authorization"] for header in url.headers} == {f"Bearer {KEY}"}
    assert not Path("scores.parquet.partial").exists()
    run = tracking.find_runs("fsd-arxiv", {"task": "score"})[-1]
    assert {"auc/loss.base", "tpr_at_5fpr/zlib.base", "audit/blind_auc"} <= set(run.metrics)
    assert KEY not in output.out + output.err
    kept = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert kept
    assert not any(KEY.encode() in path.read_bytes() for path in kept)


def test_a_dry_run_states_what_is_said_before_the_first_request(serve, vllm, job, capsys):
    url = serve(vllm(bos=True))
    chosen = job(url, price=1000.0)
    rows = {row.what: row.value for row in prepare(chosen).plan().tables[0].numbers.itertuples()}
    facts = dict(prepare(chosen).plan().facts)
    assert url.requests == []
    prepare(chosen).run()
    tokens = rows["tokens"]
    assert rows["requests"] == tokens["generated_at_most"] == 26
    assert rows["cost"] == pytest.approx((tokens["sent"] + 26) / 1000)
    said = f"13 texts: 26 requests, about {tokens['sent']:,} tokens sent and at most 26 generated, {facts['cost']}"
    assert said in capsys.readouterr().err
    assert facts["tokens"] == f"about {tokens['sent']:,} sent and at most 26 generated"


@pytest.mark.slow
def test_with_its_tokenizer_dc_pdd_too_by_a_given_table_or_the_one_beside_it(
    serve, vllm, tiny, job, table, tmp_path, capsys
):
    url = serve(vllm())
    prepare(job(url, tokenizer=str(tiny), frequencies=table)).run()
    output = capsys.readouterr().err
    prepare(job(None, model=str(tiny), out="own.csv", frequencies=table)).run()
    by_api, own = pd.read_parquet("scores.parquet"), pd.read_csv("own.csv")
    scored = [name for name in by_api if name.endswith(".base")]
    assert scored == [f"{name}.base" for name in ("dc_pdd", "loss", "lowercase", "min_k", "perplexity", "zlib")]
    np.testing.assert_allclose(by_api[scored], own[scored], rtol=1e-5)
    assert f"13 texts: {len(url.requests)} requests" in output
    beside = shutil.copytree(tiny, tmp_path / "beside")
    shutil.copy(table, beside / "frequencies.npz")
    prepare(replace(job(serve(vllm()), tokenizer=str(beside)), detection=DetectorConfig(detectors="dc_pdd"))).run()
    assert list(pd.read_parquet("scores.parquet"))[-1] == "dc_pdd.base"
    url = serve(vllm())
    with pytest.raises(UsageError, match=r"^frequency table must be made with the tokenizer of 'embedded'"):
        prepare(job(url, tokenizer="embedded", frequencies=table)).run()
    assert url.requests == []


def test_the_pipeline_resumes(serve, words, job, capsys):
    left = [{"prompt": "not what was asked"}]
    url = serve(lambda request: words(left.pop() if left else request))
    with pytest.raises(UsageError, match="must read the text whole"):
        prepare(job(url, concurrency=2)).run()
    first = len(url.requests)
    assert not Path("scores.parquet").exists()
    capsys.readouterr()
    prepare(job(url, concurrency=2)).run()
    assert f"{26 - (first - 1)} requests" in capsys.readouterr().err
    assert len(pd.read_parquet("scores.parquet")) == 13
    assert len(url.requests) == 26 + 1
    assert not Path("scores.parquet.partial").exists()


def test_answers_that_cannot_be_stored_are_not_paid_for(serve, words, tiny, job):
    url, partial = serve(words), Path("scores.csv.partial")
    partial.write_text("somebody's own\n")
    with pytest.raises(UsageError, match=r"scores\.csv\.partial must be a database that can be written; got: file is"):
        prepare(job(url, out="scores.csv")).run()
    assert url.requests == []
    prepare(replace(job(None, model=str(tiny), out="scores.csv"), detection=DetectorConfig(detectors="loss"))).run()
    assert partial.read_text() == "somebody's own\n"


def test_mistakes_are_refused_before_any_request(serve, words, job):
    url = serve(words)
    named = {name: replace(job(url), detection=DetectorConfig(detectors=name)) for name in ("surp", "dc_pdd")}
    for config, message in (
        (job(None), "^model api:tiny must come with --base-url"),
        (named["surp"], "^detector surp cannot be computed here: the API does not give .* mean$"),
        (named["dc_pdd"], "^detector dc_pdd cannot .*: it needs token ids, which --tokenizer MODEL"),
        (job(url, tokenizer="embedded", start_token="<s>"), "^start-token must not come with a tokenizer"),
        (replace(job(url), model=ModelConfig("api:tiny", first_token="given")), "^first-token must be scored where"),
    ):
        with pytest.raises(UsageError, match=message):
            prepare(config).run()
    with pytest.raises(UsageError, match=r"api:tiny can only be scored: fsd score$"):
        fsd(FSDConfig(model=ModelConfig(model="api:tiny"))).run()
    assert url.requests == []
