"""Audits of fine-tuned models: what the base as reference tells, and what is refused."""

import json
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from peft import LoraConfig, get_peft_model

import detectors
from extensions.adapter_audit.command import prepare
from extensions.adapter_audit.settings import AuditConfig
from fsd.config import AdapterConfig, DetectorConfig, ModelConfig
from fsd.data.embedded import corpus
from fsd.data.readers import read_files
from fsd.errors import UsageError
from fsd.models import language_model
from fsd.models.adapters import attach, quiet_peft, save_adapter
from fsd.models.finetuning import finetune
from fsd.scores import Score
from fsd.scoring.model_scorer import ModelScorer
from fsd.scoring.pair_scorer import PairScorer
from fsd.token_stats import Prompt
from fsd.tracking import fetch_artifact, find_runs, version_info
from pipelines.detect.__main__ import DetectConfig
from pipelines.detect.__main__ import prepare as detect
from pipelines.detect.classifier import MembershipClassifier

TRAINED, OTHERS = 40, 40


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An adapter trained on the beginnings of 40 abstracts, the same as a whole model, and the labelled texts."""
    out = tmp_path_factory.mktemp("audit")
    documents = [document for document in corpus() if not document.member][: TRAINED + OTHERS]
    texts = [" ".join(document.text.split()[:40]) for document in documents]
    model = language_model.load(ModelConfig(cache="none", device="cpu"))
    finetune(model, texts[:TRAINED], AdapterConfig(epochs=5, learning_rate=1e-2, batch_size=4), seed=0, shown=False)
    save_adapter(model, out / "adapter")
    rows = [{"text": text, "label": int(at < TRAINED)} for at, text in enumerate(texts)]
    (out / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    hidden = [{"text": row["text"]} if at % 20 in (3, 4) else row for at, row in enumerate(rows)]
    (out / "hidden.jsonl").write_text("".join(json.dumps(row) + "\n" for row in hidden))
    merged = model.model.merge_and_unload()
    merged.save_pretrained(out / "merged")
    model.tokenizer.save_pretrained(out / "merged")
    return out


def configured(folder: Path, **changes: object) -> AuditConfig:
    settings: dict[str, object] = {
        "data": (str(folder / "data.jsonl"),),
        "model": ModelConfig(device="cpu"),
        "adapter": str(folder / "adapter"),
        "detection": DetectorConfig(detectors="loss,min_k"),
    }
    return AuditConfig(**{**settings, **changes})  # type: ignore[arg-type]


@pytest.fixture
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
def test_the_base_tells_fine_tuning_texts_from_others(folder, there, capsys) -> None:
    prepare(configured(folder, out="scores.csv")).run()
    (run,) = find_runs("fsd-adapter-audit")
    assert run.metrics["auc/loss.calibrated"] > 0.9
    assert run.metrics["auc/loss.calibrated"] > run.metrics["auc/loss.tuned"]
    assert "auc_gain/loss" in run.metrics
    assert "audit/blind_auc" in run.metrics
    table = pd.read_parquet(fetch_artifact(run.id, "scores.parquet"))
    assert (table["loss.calibrated"] == table["loss.tuned"] - table["loss.base"]).all()
    assert len(pd.read_csv("scores.csv")) == TRAINED + OTHERS
    assert "fine-tuned" in fetch_artifact(run.id, "report.html").read_text()
    assert "can be distinguished from others" in capsys.readouterr().out
    # A merged model gives the numbers of its adapter; the embedded weights are half precision.
    lines = (folder / "data.jsonl").read_text().splitlines(keepends=True)
    for side, rows in (("members", lines[:TRAINED]), ("others", lines[TRAINED:])):
        Path(f"{side}.jsonl").write_text("".join(rows))
    sides = {"data": (), "members": ("members.jsonl",), "nonmembers": ("others.jsonl",)}
    prepare(configured(folder, adapter=None, tuned=str(folder / "merged"), out="merged.csv", **sides)).run()
    (of_sides,) = (again for again in find_runs("fsd-adapter-audit") if again.id != run.id)
    assert "members.jsonl, others.jsonl" in fetch_artifact(of_sides.id, "report.html").read_text()
    columns = ["loss.base", "loss.tuned", "min_k.tuned"]
    merged, adapter = (pd.read_csv(file)[columns].to_numpy() for file in ("merged.csv", "scores.csv"))
    assert merged == pytest.approx(adapter, abs=5e-3)


@pytest.mark.slow
def test_texts_without_a_label_are_judged_also_later_by_the_registered_adapter(folder: Path, there: Path) -> None:
    prepare(configured(folder, data=(str(folder / "hidden.jsonl"),), fpr=0.1, out="scores.parquet")).run()
    table = pd.read_parquet("scores.parquet")
    judged = table[table["split"] == "judged"]
    truth = {row["text"]: row["label"] for row in map(json.loads, (folder / "data.jsonl").read_text().splitlines())}
    assert len(judged) == 8
    assert judged["label"].isna().all()
    assert table.loc[table["split"] != "judged", "verdict"].isna().all()
    called = judged["verdict"] == "in the fine-tuning data"
    members = judged["text"].map(truth) == 1
    assert called[members].mean() >= 0.5
    assert called[~members].mean() <= 0.25
    version = version_info("models:/fsd-adapter-audit/1")
    assert version is not None
    assert version.aliases == ("champion",)
    hidden = (json.dumps({"text": text}) for text in judged["text"])
    (there / "further.jsonl").write_text("\n".join(hidden))
    adapter = "models:/fsd-adapter-audit/1"
    detect(DetectConfig(("further.jsonl",), adapter, fpr=0.1, out="verdicts.parquet", report="verdicts.html")).run()
    later = pd.read_parquet("verdicts.parquet")
    assert later["p_value"].to_numpy() == pytest.approx(judged["p_value"].to_numpy(), nan_ok=True)
    assert ((later["verdict"] == "member").to_numpy() == called.to_numpy()).all()
    assert "Were these texts in the fine-tuning data?" in Path("verdicts.html").read_text()


@pytest.mark.slow
def test_texts_of_another_kind_get_no_verdict(folder, there, prose, capsys) -> None:
    other = [json.dumps({"text": prose(seed, 120)}) for seed in range(20)]
    (there / "other.jsonl").write_text((folder / "data.jsonl").read_text() + "\n".join(other) + "\n")
    prepare(
        configured(folder, data=("other.jsonl",), detection=DetectorConfig(detectors="loss"), out="scores.parquet")
    ).run()
    judged = pd.read_parquet("scores.parquet").query("split == 'judged'")
    assert len(judged) == 20
    assert judged["p_value"].isna().all()
    assert set(judged["verdict"]) == {"outside the calibrated domain"}
    assert "not exchangeable with the benchmark's non-members" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(("known", "detector"), [(0, "wbc"), (1, "loss")])
@pytest.mark.slow
def test_what_the_base_knows_is_no_evidence_of_the_fine_tuning(folder, there, capsys, known, detector) -> None:
    """The adapter saw none of these texts: one side is from the base model's own training data."""
    members = [document for document in corpus() if document.member][:140]
    unread = [document for document in corpus() if not document.member][TRAINED + OTHERS :]
    rows: list[dict[str, object]] = [{"text": document.text, "label": known} for document in members]
    rows += [{"text": document.text, "label": 1 - known} for document in unread[:120]]
    for row in rows[::14]:
        del row["label"]
    (there / "known.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    asked = DetectorConfig(detectors=detector)
    prepare(configured(folder, data=("known.jsonl",), detection=asked, out="scores.parquet")).run()
    table = pd.read_parquet("scores.parquet")
    assert set(table.query("split == 'judged'")["verdict"]) == {"no verdict"}
    assert ("loss.tuned" in table) == (detector == "loss")
    shown = " ".join(capsys.readouterr().out.split())
    assert "the two sides differ before the fine-tuning" in shown
    assert "can be distinguished" not in shown


@pytest.mark.slow
def test_an_audit_that_a_blind_classifier_explains_judges_nothing(folder, there, prose) -> None:
    rows = [json.loads(line) for line in (folder / "data.jsonl").read_text().splitlines()]
    rows = [row if row["label"] else {"text": prose(at, 100), "label": 0} for at, row in enumerate(rows)]
    rows += [{"text": prose(at, 100)} for at in range(100, 112)]
    (there / "apart.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    loss = DetectorConfig(detectors="loss")
    prepare(configured(folder, data=("apart.jsonl",), detection=loss, out="scores.parquet", same_source=True)).run()
    judged = pd.read_parquet("scores.parquet").query("split == 'judged'")
    assert len(judged) == 12
    assert set(judged["verdict"]) == {"no verdict"}
    assert judged["p_value"].isna().all()
    assert judged["warning"].str.startswith("a blind classifier, which never sees the model, reaches").all()
    version = version_info("models:/fsd-adapter-audit/1")
    assert version is not None
    assert version.aliases == ()
    with pytest.raises(UsageError, match="adapter must come from a benchmark that can show membership"):
        detect(DetectConfig(("apart.jsonl",), "models:/fsd-adapter-audit/1")).run()


def test_models_that_do_not_belong_together_are_refused(there: Path, tiny: Path) -> None:
    model = language_model.load(ModelConfig(device="cpu"))
    with quiet_peft():
        model.model = get_peft_model(model.model, LoraConfig(task_type="CAUSAL_LM"))
    save_adapter(model, there / "adapter")
    rows = [{"text": document.text, "label": at % 2} for at, document in enumerate(corpus()) if at < 40]
    (there / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for change, message in (
        ({"model": ModelConfig(model=str(tiny), device="cpu")}, "adapter must be used on its own base model"),
        ({"adapter": None, "tuned": str(tiny)}, "tuned must have the tokenizer of its base"),
        ({"detection": DetectorConfig(detectors="min_k_deviation")}, "min_k_deviation cannot be used in an audit"),
    ):
        with pytest.raises(UsageError, match=message):
            prepare(replace(configured(there), **change)).run()  # type: ignore[arg-type]


@pytest.mark.slow
def test_windows_vote_between_the_fine_tuned_model_and_its_base(folder: Path, there: Path) -> None:
    """The same numbers as those of the detector with the base as its reference, after contexts; `detect` has them."""
    rows = map(json.loads, (folder / "data.jsonl").read_text().splitlines())
    (there / "data.jsonl").write_text("".join(json.dumps({**row, "context": "We show this."}) + "\n" for row in rows))
    asked = DetectorConfig(detectors="wbc")
    prepare(configured(folder, data=("data.jsonl",), detection=asked, out="scores.parquet")).run()
    table = pd.read_parquet("scores.parquet")
    model = language_model.load(ModelConfig(device="cpu"))
    attach(model, folder / "adapter")
    of_text = {document.text: document.prompt for document in read_files(["data.jsonl"], answers=True)}
    prompts = [of_text[text] for text in table["text"]]
    base, tuned = (list(ModelScorer(model, tuned=state)(prompts)) for state in (False, True))
    expected = [detectors.load("wbc").function(one, two) for one, two in zip(tuned, base, strict=True)]
    assert list(table["wbc.calibrated"]) == pytest.approx(expected)
    assert not {"wbc.base", "wbc.tuned"} & set(table)
    assert table.groupby("label")["wbc.calibrated"].mean().diff()[1] > 0.2
    again = MembershipClassifier("models:/fsd-adapter-audit@champion").scores(prompts)
    assert list(again.columns[Score("wbc", "calibrated")]) == pytest.approx(expected)


@pytest.mark.slow
def test_whole_distributions_of_the_fine_tuned_model_and_its_base_are_compared(folder: Path, there: Path) -> None:
    """As by the scorer of two models; scores of each alone, which come from the same passes, are as without it."""
    names = ("info_rmia", "standardised_ratio")
    scores = ["loss.base", "loss.tuned", "loss.calibrated", *(f"{name}.calibrated" for name in names)]
    without = ModelConfig(device="cpu", cache="none")
    for out, chosen in (("loss", "loss"), ("all", ",".join(("loss", *names)))):
        detection = DetectorConfig(detectors=chosen)
        prepare(configured(folder, detection=detection, model=without, out=f"{out}.parquet")).run()
    alone, table = pd.read_parquet("loss.parquet"), pd.read_parquet("all.parquet")
    assert [name for name in table if name in scores or name.startswith(names)] == scores
    assert alone[scores[:3]].to_numpy() == pytest.approx(table[scores[:3]].to_numpy(), abs=1e-5)
    model = language_model.load(ModelConfig(device="cpu"))
    attach(model, folder / "adapter")
    pairs = list(PairScorer(model, tuned=True, reference=model)(list(map(Prompt, table["text"]))))
    again = MembershipClassifier("models:/fsd-adapter-audit@champion").scores(list(table["text"]), every=True)
    for name in names:
        expected = [detectors.load(name).function(pair) for pair in pairs]
        assert list(table[f"{name}.calibrated"]) == pytest.approx(expected, abs=1e-5)
        assert list(again.columns[Score(name, "calibrated")]) == pytest.approx(expected, abs=1e-5)
        assert table.groupby("label")[f"{name}.calibrated"].mean().diff()[1] > 0.05
    whole = configured(folder, adapter=None, tuned=str(folder / "merged"), detection=detection, out="merged.parquet")
    prepare(whole).run()
    merged = pd.read_parquet("merged.parquet")
    assert merged[scores].to_numpy() == pytest.approx(table[scores].to_numpy(), abs=5e-3)


@pytest.fixture(scope="module")
def capitals(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """An adapter trained on abstracts and on articles in capitals, labelled abstracts, and unread ones."""
    out = tmp_path_factory.mktemp("capitals")
    texts = [" ".join(document.text.split()[:60]) for document in corpus() if not document.member][:130]
    loud = [" ".join(document.text.split()[:60]).upper() for document in corpus("wikipedia")][:80]
    model = language_model.load(ModelConfig(model="embedded-twin", cache="none", device="cpu"))
    training = AdapterConfig(epochs=4, learning_rate=1e-2, batch_size=8)
    finetune(model, [*texts[:40], *loud], training, seed=0, shown=False)
    save_adapter(model, out / "adapter")
    rows = [{"text": text, "label": int(at < 40)} for at, text in enumerate(texts[:110])]
    (out / "labelled.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return out, texts[110:]


@pytest.mark.parametrize("mixed", [pytest.param(False, id="all"), pytest.param(True, id="three")])
@pytest.mark.slow
def test_unread_texts_are_not_called_because_they_are_in_capitals(capitals, mixed, there: Path, capsys) -> None:
    """Neither by the audit nor by `detect` with the registered audit; without a check nearly all would be called."""
    folder, unread = capitals
    loud = [text.upper() for text in (unread[:3] if mixed else unread)]
    asked = [*loud, *unread[3:]] if mixed else loud
    (there / "asked.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in asked))
    model = ModelConfig(model="embedded-twin", device="cpu")
    config = configured(folder, model=model, data=(str(folder / "labelled.jsonl"), "asked.jsonl"), out="audit.parquet")
    prepare(config).run()
    detect(DetectConfig(("asked.jsonl",), "models:/fsd-adapter-audit/1", out="detect.parquet")).run()
    classifier = MembershipClassifier("models:/fsd-adapter-audit/1")
    calibration = classifier.calibration
    unchecked = calibration.p_values(classifier.scores(loud).columns[calibration.score]) <= 0.05
    assert unchecked.mean() > 0.6
    for file in ("audit.parquet", "detect.parquet"):
        table = pd.read_parquet(file)
        verdicts = table.loc[table["text"].isin(loud), "verdict"]
        assert set(verdicts) == {"outside the calibrated domain"}
    printed = " ".join(capsys.readouterr().out.split())
    assert "domain check: it found" in printed
    assert "of the benchmark's own texts after edits" in printed
    assert "written unlike the calibrated texts" in pd.read_parquet("audit.parquet")["warning"].str.cat()


@pytest.mark.slow
def test_what_the_base_does_not_know_is_no_fine_tuning_data(there) -> None:
    """Fine-tuning moves what is new to the base more than its own training data, which are the labelled other texts.

    By the difference of the scores alone, twice as many as promised would be called.
    """
    known = [document.text for document in corpus() if document.member]
    unread = [document.text for document in corpus() if not document.member]
    model = language_model.load(ModelConfig(cache="none", device="cpu"))
    training = AdapterConfig(epochs=8, learning_rate=3e-3, batch_size=4)
    finetune(model, unread[:70], training, seed=0, shown=False)
    save_adapter(model, there / "adapter")
    rows: list[dict[str, object]] = [{"text": text, "label": 1} for text in unread[10:70]]
    rows += [{"text": text, "label": 0} for text in known[:140]]
    rows += [{"text": text} for text in unread[:10] + unread[70:]]
    (there / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    prepare(configured(there, detection=DetectorConfig(detectors="loss,wbc"), out="scores.parquet")).run()
    judged = pd.read_parquet("scores.parquet").query("split == 'judged'")
    called = (judged["verdict"] == "in the fine-tuning data").to_numpy()
    assert called[:10].mean() >= 0.7
    assert called[10:].mean() <= 0.06
