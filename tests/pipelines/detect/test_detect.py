"""Verdicts on new texts, end to end on a tiny random model, which cannot tell members from non-members."""

import json
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import mlflow
import numpy as np
import pandas as pd
import pytest

import fsd
from fsd import tracking
from fsd.config import ModelConfig, ShardConfig
from fsd.data.documents import Document
from fsd.errors import UsageError
from fsd.files import CHECKSUMS, digest
from fsd.scoring.deviation import ScoreTable
from fsd.tracking.store import quiet
from fsd.verdicts.verdicts import ASSERTED, LEARNED, MEMBER, NO_VERDICT, OUT_OF_DOMAIN, Rules, Verdicts
from pipelines.detect import report
from pipelines.detect.__main__ import DetectConfig, prepare
from pipelines.detect.classifier import MembershipClassifier, _model_config
from pipelines.experiment.adapter_files import CALIBRATION, Setup
from tests.rows import write as jsonl

COLUMNS = ["score", "rank", "p_value", "verdict", "basis", "warning", "selected"]
CHAMPION = "models:/fsd-arxiv@champion"
RUSSIAN = "Измерения были проведены на двенадцати образцах и сравнены с расчётами. " * 2


@pytest.fixture(scope="module", autouse=True)
def working_folder(own_run):
    return own_run.folder


@pytest.fixture(scope="module")
def classifier(working_folder):
    return MembershipClassifier(CHAMPION)


@pytest.fixture(scope="module")
def served(working_folder, tiny, tmp_path_factory):
    """The model as MLflow serves it, with its base model in another folder."""
    moved = shutil.copytree(tiny, tmp_path_factory.mktemp("served") / "moved")
    # Importing mlflow.pyfunc warns of types of its own.
    with pytest.MonkeyPatch.context() as patch, quiet():
        patch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{working_folder}/mlruns/mlflow.db")
        model = mlflow.pyfunc.load_model(CHAMPION, model_config={"serving_model": str(moved)})
    assert model.unwrap_python_model().classifier.config.model == str(moved)
    return model


@pytest.fixture(scope="module")
def unlabelled(working_folder, make_rows, tmp_path_factory):
    unseen = json.loads(tracking.fetch_model_file(CHAMPION, "unseen.jsonl").read_text().splitlines()[0])["text"]
    texts = [row["text"] for row in make_rows(40, 1)] + [RUSSIAN, unseen]
    return jsonl(tmp_path_factory.mktemp("texts") / "new.jsonl", [{"text": text} for text in texts])


def detect(out, *files, **changes):
    prepare(replace(DetectConfig(files=files, adapter=CHAMPION, fpr=0.1, device="cpu", out=str(out)), **changes)).run()
    return pd.read_json(out, lines=True) if out.suffix == ".jsonl" else pd.read_parquet(out)


def test_unlabelled_texts_get_verdicts_a_report_and_a_run(unlabelled, tmp_path, capsys):
    page = tmp_path / "report.html"
    table = detect(tmp_path / "v.parquet", unlabelled, report=str(page))
    assert list(table.columns) == ["source", "text", *COLUMNS]
    assert len(table) == 42
    judged = table[table["warning"] == ""]
    np.testing.assert_array_equal(judged["verdict"] == MEMBER, judged["p_value"] <= 0.1 + 1e-9)
    assert list(table["verdict"][-2:]) == [OUT_OF_DOMAIN, LEARNED]
    assert "written in Cyrillic" in table["warning"].iloc[-2]
    assert "adapter itself was trained" in table["warning"].iloc[-1]
    assert not list(tmp_path.glob(".*"))
    html = page.read_text()
    for phrase in ("What was done", "How often the answer is wrong", "What this does not prove", "data:image/png"):
        assert phrase in html
    assert not re.search(r'(src|href)="(?!data:)', html)
    printed = capsys.readouterr().out
    assert "false-positive rate of 10.0%" in printed
    assert "tiny: " in printed
    run = tracking.find_runs("fsd-arxiv", {"task": "detect"})[0]
    assert run.tags["adapter"] == "models:/fsd-arxiv/1"
    assert run.metrics["detect/outside"] == (table["verdict"] == OUT_OF_DOMAIN).sum()
    assert run.metrics["detect/texts"] == 42
    kept = pd.read_parquet(tracking.fetch_artifact(run.id, "verdicts.parquet"))
    pd.testing.assert_frame_equal(kept, table)
    assert tracking.fetch_artifact(run.id, "report.html").read_text() == html


def test_the_hash_in_the_report_is_that_of_the_file_as_it_was_read(unlabelled, tmp_path):
    file = tmp_path / "new.jsonl"
    shutil.copy(unlabelled, file)
    as_read = digest(file)
    page = tmp_path / "report.html"
    job = prepare(DetectConfig(files=(str(file),), adapter=CHAMPION, fpr=0.1, device="cpu", report=str(page)))
    jsonl(file, [{"text": "Somebody has put another file in this place. " * 5}])
    job.run()
    assert f"SHA-256 {as_read}" in page.read_text()


def test_the_end_of_a_command_fits_one_screen_with_the_prompt(unlabelled, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    # at a rate of .1 so many are called that their rows alone, which are never hidden, would fill it
    detect(tmp_path / "v.parquet", unlabelled, fpr=0.06)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) < 24, "\n".join(lines)
    # What limits the verdicts is all there.
    for limit in ("! power: ", "! no verdict on ", "! audit: "):
        assert any(line.startswith(limit) for line in lines)
    # The same command once more, which without its rate would be refused.
    again = next(line for line in lines if line.startswith("next"))
    assert again.endswith(f"--out {tmp_path}/v.parquet --device cpu --known FILE")
    assert " --fpr 0.06 " in again


def test_the_reason_of_a_whole_request_is_said_once(make_rows, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    rows = [{"text": row["text"]} for row in make_rows(3, 21)]
    detect(tmp_path / "v.parquet", jsonl(tmp_path / "three.jsonl", [*rows, {"text": RUSSIAN}]))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) < 24, "\n".join(lines)
    assert any(line.startswith("! WARNING: no verdict, since fewer than 5 independent texts") for line in lines)


def test_a_shard_is_judged_as_a_file_of_its_own(unlabelled, tmp_path):
    alone = detect(tmp_path / "v.parquet", unlabelled)
    shard = detect(tmp_path / "out", unlabelled, shards=ShardConfig(shard_rows=100))
    assert shard["label"].isna().all()
    expected = alone.drop(columns=["rank", "selected"])  # some from the cache, of other batches
    # What earlier tests left in the cache changes the batches, and so the rounding: by 1.1e-7 after the golden ones.
    pd.testing.assert_frame_equal(shard.drop(columns="label"), expected, rtol=1e-5, atol=3e-7)


def test_pyfunc_and_the_pipeline_agree(served, unlabelled, tmp_path):
    table = detect(tmp_path / "v.jsonl", unlabelled)
    found = served.predict(table[["text"]], params={"fpr": 0.1})
    assert list(found) == served.metadata.signature.outputs.input_names() == COLUMNS
    for name in ("verdict", "warning", "selected"):
        assert list(found[name]) == list(table[name].fillna(""))
    np.testing.assert_allclose(found["score"].astype(float), table["score"], rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(found["p_value"].astype(float), table["p_value"], rtol=1e-12)


def test_requests_at_once_get_the_scores_of_one_after_the_other(served, make_rows):
    # A server answers each in a thread of its own, and all by one model, whose adapter is on or off for all of them.
    requests = [pd.DataFrame({"text": [row["text"] for row in make_rows(3, seed)]}) for seed in range(60, 66)]
    with ThreadPoolExecutor(len(requests)) as pool:
        answers = list(pool.map(partial(served.predict, params={"fpr": 0.1, "same_source": True}), requests))
    # What was answered wrongly would be in the cache, too.
    alone = MembershipClassifier(CHAMPION, cache="none")
    for request, answer in zip(requests, answers, strict=True):
        scores = alone.verdicts(list(request["text"]), fpr=0.1, same_source=True)["score"]
        np.testing.assert_allclose(answer["score"].astype(float), scores, rtol=1e-5, atol=3e-7)


def test_the_served_model_refuses_what_makes_no_sense(served, make_rows):
    assert served.metadata.get_params_schema().params[0].default == 0.05
    text = make_rows(1, 12)[0]["text"]
    for given, params, message in (
        (" ", {"fpr": 0.1}, "not blank"),
        (None, {"fpr": 0.1}, "not blank"),
        ("a b", {"fpr": 0.001}, "at least"),
        (text, {"fp": 0.1}, "params must be among fpr, fdr, same_source; got 'fp'"),
        (text, {"fpr": None}, "fpr must be a number; got null"),
        (text, {"fpr": 0.1, "fdr": 0.0}, "fdr must be above 0 and below 1; got 0"),
        (text, {"same_source": None}, "same_source must be true or false; got None"),
    ):
        with pytest.raises(mlflow.MlflowException, match=message) as caught:
            served.predict(pd.DataFrame({"text": [given]}), params=params)
        assert caught.value.error_code == "INVALID_PARAMETER_VALUE"


def test_a_request_that_is_too_large_or_has_a_wrong_rate_costs_no_work(served, monkeypatch):
    of_model = served.unwrap_python_model().classifier

    def works(*_):
        pytest.fail("a text was read before the request was refused")

    monkeypatch.setattr(of_model, "_excluded", works)
    monkeypatch.setattr(of_model.verdict_maker, "outside", works)
    for texts, fpr, message in (
        (["a b"], 0.001, "fpr must be at least"),
        (["a b"] * 10_001, 0.1, "at most 10,000 texts; it has 10,001"),
        (["a" * 900_000] * 6, 0.1, "at most 5,000,000 characters together; they have 5,400,000"),
    ):
        with pytest.raises(mlflow.MlflowException, match=message) as caught:
            served.predict(pd.DataFrame({"text": texts}), params={"fpr": fpr})
        assert caught.value.error_code == "INVALID_PARAMETER_VALUE"


@pytest.mark.slow
def test_texts_of_another_kind_get_no_verdict_and_are_not_scored(classifier, make_rows, prose, monkeypatch):
    """Length alone places a megabyte outside, and no pass over it keeps a server busy."""
    long = "a word of a very long text " * 40_000
    scored = []
    scores = classifier.scores
    monkeypatch.setattr(classifier, "scores", lambda texts: scored.extend(texts) or scores(texts))
    ordinary = make_rows(1, 13)[0]["text"]
    table = classifier.verdicts([long, ordinary], fpr=0.1, same_source=True)
    assert [prompt.text for prompt in scored] == [ordinary]
    assert "length 280000 words" in table["warning"][0]
    assert table[["score", "p_value"]].loc[0].isna().all()
    result = classifier.classify([Document(prose(seed, 14)) for seed in range(20)], Rules(0.1))
    assert [prompt.text for prompt in scored] == [ordinary]
    assert result.bases[0].test.rejected
    assert set(result.table["verdict"]) == {OUT_OF_DOMAIN}
    assert result.table["p_value"].isna().all()


def test_selected_texts_are_in_the_table_the_report_and_the_metrics(
    classifier, make_rows, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(
        MembershipClassifier,
        "scores",
        lambda self, texts: ScoreTable({self.calibration.score: np.full(len(texts), 1e6)}),
    )
    file = jsonl(tmp_path / "t.jsonl", [{"text": row["text"]} for row in make_rows(20, 14)])
    table = detect(tmp_path / "v.parquet", file, fdr=0.2, report=str(tmp_path / "r.html"))
    judged = table["warning"] == ""
    assert judged.sum() > 10
    np.testing.assert_array_equal(table["selected"], judged)
    assert tracking.find_runs("fsd-arxiv", {"task": "detect"})[0].metrics["detect/selected"] == judged.sum()
    assert f"at a false discovery rate of 20%, {judged.sum()} texts are selected" in capsys.readouterr().out
    assert "FDR 20%" in (tmp_path / "r.html").read_text()


def test_a_run_a_version_and_a_folder_give_the_same_scores(classifier, working_folder, make_rows, tmp_path):
    texts = [row["text"] for row in make_rows(6, 2)]
    run_id = tracking.version_info(CHAMPION).run_id
    folder = shutil.copytree(tracking.fetch_adapter(CHAMPION).parent, tmp_path / "copy")
    score = classifier.calibration.score
    expected = classifier.scores(texts).columns[score]
    for uri in (f"runs:/{run_id}", str(folder), str(folder / "adapter")):
        again = MembershipClassifier(uri).scores(texts).columns[score]
        np.testing.assert_allclose(again, expected, rtol=1e-6, atol=1e-9)


def test_the_verdict_on_a_text_is_independent_of_the_others(classifier, make_rows):
    texts = [row["text"] for row in make_rows(8, 16)]
    together = classifier.verdicts(texts, fpr=0.1)
    alone = [classifier.verdicts([text], fpr=0.1, same_source=True) for text in texts]
    alone = pd.concat(alone, ignore_index=True)
    assert list(together["verdict"]) == list(alone["verdict"])
    np.testing.assert_allclose(together["score"], alone["score"], rtol=1e-5, atol=1e-7)


@pytest.mark.slow
def test_labels_give_measured_error_rates_also_without_the_run_of_the_adapter(make_rows, tmp_path, capsys):
    file = jsonl(tmp_path / "labelled.jsonl", make_rows(60, 5))
    table = detect(tmp_path / "v.parquet", file)
    others = table[(table["warning"] == "") & (table["label"] == 0)]
    metrics = tracking.find_runs("fsd-arxiv", {"task": "detect"})[0].metrics
    assert metrics["detect/labelled_fpr"] == pytest.approx((others["verdict"] == MEMBER).mean())
    assert "detect/test_fpr" in metrics
    assert f"of {len(others)} known non-members were wrongly called members" in capsys.readouterr().out
    folder = shutil.copytree(tracking.fetch_adapter(CHAMPION).parent, tmp_path / "adapter only")
    detect(tmp_path / "v.parquet", file, adapter=str(folder))
    metrics = tracking.find_runs("fsd-arxiv", {"task": "detect"})[0].metrics
    assert "detect/labelled_fpr" in metrics
    # the calibration has the non-members that try the rate; the members of the test are in scores.parquet alone
    assert "detect/test_fpr" in metrics
    assert "detect/test_found" not in metrics
    detect(tmp_path / "v.parquet", file, cutoff="2030-01-01")  # the model may have read the non-members
    assert "detect/labelled_fpr" not in tracking.find_runs("fsd-arxiv", {"task": "detect"})[0].metrics


@pytest.mark.slow
def test_known_non_members_add_a_verdict_on_the_data_set(make_rows, tmp_path, capsys):
    suspect = jsonl(tmp_path / "s.jsonl", [{"text": row["text"]} for row in make_rows(20, 6)])
    known = jsonl(tmp_path / "k.jsonl", [{"text": row["text"]} for row in make_rows(20, 7)])
    detect(tmp_path / "v.parquet", suspect, known=(known,))
    assert "independent texts against" in capsys.readouterr().out
    p = tracking.find_runs("fsd-arxiv", {"task": "detect"})[0].metrics["detect/corpus_p"]
    assert 0 < p <= 1
    with pytest.raises(UsageError, match=r"known must hold other texts .* 20 pairs are alike: .* \(copy\)"):
        detect(tmp_path / "v.parquet", suspect, known=(suspect,))
    few = jsonl(tmp_path / "few.jsonl", [{"text": row["text"]} for row in make_rows(3, 8)])
    with pytest.raises(UsageError, match="at least 5 groups of texts"):
        detect(tmp_path / "v.parquet", suspect, known=(few,))
    member = jsonl(tmp_path / "member.jsonl", [row for row in make_rows(12, 9) if row["label"]])
    with pytest.raises(UsageError, match=r"non-members; .* is labelled a member"):
        detect(tmp_path / "v.parquet", suspect, known=(member,))
    foreign = jsonl(tmp_path / "foreign.jsonl", [{"text": f"слово {number} и лист"} for number in range(9)])
    with pytest.raises(UsageError, match=r"^known texts must have some .* of 9 none can, 9 for this reason: "):
        detect(tmp_path / "v.parquet", suspect, known=(foreign,))
    # All of it is refused before a run is opened.
    assert not tracking.find_runs("fsd-arxiv", {"task": "detect"}, status="FAILED")


@pytest.mark.slow
def test_a_single_text_is_judged_by_assertion_alone(make_rows, tmp_path, capsys, served):
    file = jsonl(tmp_path / "one.jsonl", [{"text": row["text"]} for row in make_rows(1, 15)])
    page = tmp_path / "r.html"
    table = detect(tmp_path / "v.parquet", file, report=str(page))
    assert "Scores and p-values" not in page.read_text()  # a curve of no text
    assert table["verdict"].tolist() == [NO_VERDICT]
    assert table["score"].notna().all()
    assert table["p_value"].isna().all()
    output = " ".join(capsys.readouterr().out.split())
    assert "no verdict on the text; 1 text has a score and a rank alone" in output
    assert "more than chance" not in output
    assert "--known" not in output
    page.unlink()
    table = detect(tmp_path / "w.parquet", file, same_source=True, report=str(page))
    assert table["basis"].tolist() == [ASSERTED]
    assert ASSERTED in capsys.readouterr().out
    assert ASSERTED in page.read_text()
    assert "Scores and p-values" in page.read_text()
    assert tracking.find_runs("fsd-arxiv", {"task": "detect"})[0].params["same_source"] == "True"
    (warning,) = served.predict(table[["text"]], params={"fpr": 0.1})["warning"]
    assert warning.endswith("; same_source: true asserts that they are of one source and kind")
    for asserted, verdict in ((False, NO_VERDICT), (True, table["verdict"][0])):
        assert served.predict(table[["text"]], params={"fpr": 0.1, "same_source": asserted})["verdict"][0] == verdict


def test_the_champion_of_one_of_several_bases_is_refused(working_folder, unlabelled, other):
    version = tracking.version_info("models:/fsd-arxiv/1")
    client = tracking.open_store().client
    model = client.get_model_version("fsd-arxiv", "1")
    client.create_model_version("fsd-arxiv", model.source, version.run_id, tags={"base_model": str(other)})
    with pytest.raises(UsageError, match=r"@champion must be of the only base model; it is models:/fsd-arxiv/1, of "):
        prepare(DetectConfig(files=(unlabelled,), adapter=CHAMPION)).check()
    client.delete_model_version("fsd-arxiv", "2")


def test_what_the_adapter_does_not_support_is_a_one_line_error(unlabelled, tmp_path):
    """What needs no adapter is in docs/bad_input.tsv."""
    before = len(tracking.find_runs("fsd-arxiv", {"task": "detect"}))
    bare = shutil.copytree(tracking.fetch_adapter(CHAMPION).parent, tmp_path / "bare")
    (bare / CALIBRATION).unlink()
    for changes, message in (
        ({"fpr": 0.001}, r"fpr must be at least 0\.0\d+ = 1/\(\d+\+1\)"),
        ({"fpr": 1.5}, "below 1"),
        ({"fdr": 0.0}, "fdr must be above 0 and below 1; got 0"),
        ({"model": "no/such/folder/at/all"}, "there is no folder"),
        ({"adapter": "models:/fsd-books@champion"}, "must name a registered model"),
        ({"adapter": str(bare)}, r"must come with a calibration .* has no calibration\.json"),
    ):
        with pytest.raises(UsageError, match=message) as caught:
            detect(tmp_path / "v.parquet", unlabelled, **changes)
        assert "\n" not in str(caught.value)
    assert len(tracking.find_runs("fsd-arxiv", {"task": "detect"})) == before


def test_a_setup_chooses_no_file_of_this_machine():
    model = ModelConfig("embedded", cache="/somewhere", frequencies="/etc/passwd")
    config = _model_config(Setup(model, False, "arxiv", {}, 2, 42), None, {"dtype": "float32"})
    assert config == ModelConfig("embedded", dtype="float32")


def test_a_version_by_a_base_score_is_asked_without_its_adapter(working_folder, make_rows, tmp_path, monkeypatch):
    folder = shutil.copytree(tracking.fetch_adapter(CHAMPION).parent, tmp_path / "copy")
    calibration = json.loads((folder / CALIBRATION).read_text())
    of_loss = {"detector": "loss", "state": "base", "settings": {}}
    (folder / CALIBRATION).write_text(json.dumps(calibration | of_loss))
    (folder / "adapter" / CHECKSUMS).unlink()
    monkeypatch.setattr("fsd.models.adapters.attach", lambda *_: pytest.fail("the adapter was attached"))
    classifier = MembershipClassifier(str(folder))
    texts = [row["text"] for row in make_rows(6, 2)]
    assert classifier.score_title == "loss base score"
    (scores,) = classifier.scores(texts).columns.values()
    expected = fsd.score(classifier.language_model, texts, ["loss"])["loss.base"]
    np.testing.assert_allclose(scores, expected, rtol=1e-6)
    assert classifier.verdicts(texts, same_source=True)["p_value"].notna().any()
    # the base is checked all the same
    monkeypatch.setattr("pipelines.detect.classifier.check_base", lambda *_: pytest.fail("the base was checked"))
    with pytest.raises(pytest.fail.Exception, match="the base was checked"):
        MembershipClassifier(str(folder))


def test_a_setup_or_calibration_of_another_form_names_what_is_wrong(tmp_path):
    folder = shutil.copytree(tracking.fetch_adapter(CHAMPION).parent, tmp_path / "changed")
    (folder / "adapter" / "SHA256SUMS").unlink()
    setup, calibration = (json.loads((folder / name).read_text()) for name in ("setup.json", CALIBRATION))
    known = {name: {"detector": name, "settings": {}} for name in ("con_recall", "camia_lr")}
    for name, content, message in (
        ("setup.json", {}, "setup.json must be the settings of a run; model: field required"),
        ("setup.json", [1], "settings of a run; content: input should be an object"),
        ("setup.json", setup | {"shots": "many"}, "shots: input should be a valid integer; got 'many'"),
        ("setup.json", setup | {"domain": "../x"}, "domain: string should match pattern"),
        ("setup.json", setup | {"model": {"model": 3}}, "model.model: input should be a valid string; got 3"),
        ("setup.json", setup | {"detectors": {"surp": {"k": -5}}}, "k must be"),
        ("setup.json", setup | {"detectors": {"../../x": {}}}, "detector must be one of"),
        ("setup.json", setup | {"detectors": {"loss": {"name": "x"}}}, "setting of loss must be one of"),
        (CALIBRATION, calibration | {"detector": "loss "}, "detector must be one of"),
        (CALIBRATION, calibration | {"settings": {"k": -5}}, "setting|k must be"),
        *((CALIBRATION, calibration | one, f"no known members, .* is by {name}") for name, one in known.items()),
    ):
        (folder / "setup.json").write_text(json.dumps(setup))
        (folder / CALIBRATION).write_text(json.dumps(calibration))
        (folder / name).write_text(json.dumps(content))
        with pytest.raises(UsageError, match=message) as caught:
            MembershipClassifier(str(folder))
        assert "\n" not in str(caught.value)


def test_a_base_model_that_has_moved_must_be_located(working_folder, unlabelled, tiny, other, tmp_path, monkeypatch):
    folder = shutil.copytree(tracking.fetch_adapter(CHAMPION).parent, tmp_path / "relative")
    setup = json.loads((folder / "setup.json").read_text())
    setup["model"]["model"] = "models/tiny"
    (folder / "setup.json").write_text(json.dumps(setup))
    (folder / "adapter" / "SHA256SUMS").unlink()  # an adapter of an earlier release has none
    with pytest.raises(UsageError, match=r"must be in the folder 'models/tiny'.*--model FOLDER"):
        MembershipClassifier(str(folder))
    with pytest.raises(UsageError, match="must be used on its own base model"):
        MembershipClassifier(str(folder), model=str(other))
    shutil.copytree(tiny, tmp_path / "models" / "tiny")
    monkeypatch.chdir(tmp_path)
    assert MembershipClassifier(str(folder)).config.model == "models/tiny"


def test_texts_that_the_adapter_was_trained_on_are_told_apart_from_those_of_another_kind():
    table = pd.DataFrame({"verdict": [LEARNED] * 3 + [OUT_OF_DOMAIN] * 2})
    finding = report._unjudged(Verdicts(table, [], np.arange(5), Rules(0.05)))
    assert finding.text == (
        "no verdict on 5: the adapter itself was trained on 3, and 2 are outside the calibrated domain"
    )
