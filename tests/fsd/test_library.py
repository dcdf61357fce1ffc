"""The library in three functions: its docstring's example, and what it refuses."""

import doctest
import importlib
import math
import pickle

import datasets
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from peft import LoraConfig, get_peft_model
from sklearn.base import clone
from sklearn.exceptions import NotFittedError, SkipTestWarning
from sklearn.metrics import get_scorer
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import estimator_checks
from transformers import AutoModelForCausalLM, AutoTokenizer

import fsd
from fsd import library
from fsd.config import AdapterConfig, ModelConfig
from fsd.data import embedded
from fsd.errors import UsageError
from fsd.library import unseen_texts
from fsd.models import finetuning
from fsd.models.adapters import quiet_peft


@pytest.mark.slow
def test_the_example_of_the_docstring_runs():
    for module in (library, importlib.import_module("fsd.estimator")):
        results = doctest.testmod(module)
        assert results.attempted >= 5
        assert results.failed == 0


def test_a_text_among_the_unseen_ones_is_refused():
    with pytest.raises(UsageError, match="texts must not be among the unseen texts; got 1 that are"):
        fsd.deviation("embedded", ["a text"], ["a text"], detectors=["loss"])
    # Also where one of them comes from a table, whose rows may have contexts.
    table = pd.DataFrame({"text": ["a text", "another"], "context": [None, "before"]})
    with pytest.raises(UsageError, match="texts must not be among the unseen texts; got 1 that are"):
        fsd.deviation("embedded", table, ["a text"], detectors=["loss"])
    # As a part of its own prefix, a text would be as probable as a member.
    with pytest.raises(UsageError, match="texts must not be among the unseen texts; got 1 that are"):
        fsd.score("embedded", ["a text", "another"], ["recall"], unseen=["a text"])


def test_one_string_or_another_type_in_place_of_texts_is_refused():
    for texts, message in (
        ("one string", "texts must be a list of strings; got one string, 'one string'"),
        ([1], "got 1 in it"),
        (["a", "b\ud800"], "texts, row 1: text must be valid Unicode; character 2 is half of a surrogate pair"),
        (pd.DataFrame({"words": ["one"]}), "with a column text; got the columns words: rename one of them"),
        ({"one": 1}, "got a dict: take one split or column of it"),
    ):
        with pytest.raises(UsageError, match=message):
            fsd.score("embedded", texts, ["loss"])


def test_texts_may_be_a_generator_and_unseen_texts_an_array(tiny, make_rows):
    texts = [row["text"] for row in make_rows(5, 0)]
    training = AdapterConfig(epochs=1)
    scores = fsd.deviation(str(tiny), iter(texts[:2]), np.array(texts[2:]), ["loss"], training=training)
    assert scores.shape == (2, 3)


@pytest.mark.parametrize("names", [["loss", "loss"], []])
def test_detectors_stand_once(names):
    with pytest.raises(UsageError, match="detectors must be at least one, and each once; got"):
        fsd.score("embedded", ["a text"], names)


@pytest.mark.parametrize("label", [float("nan"), None, pd.NA, "member", 0.5, -1, [True]])
def test_a_label_that_is_missing_or_another_is_refused(label):
    scores = pd.DataFrame({"loss.base": np.arange(6.0)})
    for judge in (fsd.evaluate, fsd.plot):
        with pytest.raises(UsageError, match=r"labels must be True or 1 \(member\), False or 0 \(non-member\); got "):
            judge(scores, [True, False, True, False, True, label])


def test_labels_of_any_type_are_those_of_files():
    scores = pd.DataFrame({"loss.base": np.arange(6.0)})
    expected = fsd.evaluate(scores, [True, False] * 3, resamples=20)
    for labels in ([1, 0] * 3, np.array([1.0, 0.0] * 3), ["1", "0"] * 3, (at % 2 == 0 for at in range(6))):
        pd.testing.assert_frame_equal(fsd.evaluate(scores, labels, resamples=20), expected)


def _auc(scores, labels, groups=None):
    found = fsd.evaluate(scores, labels, groups, resamples=20)
    return found.query("metric == 'auc'")["value"].item()


def test_rows_of_pandas_meet_by_their_index_and_lists_by_position():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"label": [1, 0] * 10, "group": [f"g{row // 2}" for row in range(20)]})
    frame.index = [f"row {row}" for row in range(20)]
    scores = pd.DataFrame({"loss.base": rng.normal(size=20) + frame["label"]})
    in_order = scores.sort_values("loss.base")
    expected = fsd.evaluate(scores, frame, resamples=20)
    for labels, groups in (
        (frame, None),
        (frame["label"], frame["group"]),
        (frame.sample(frac=1, random_state=1), None),
        (list(frame["label"].loc[in_order.index]), list(frame["group"].loc[in_order.index])),
        (frame["label"].loc[in_order.index].to_numpy(), frame["group"].sample(frac=1, random_state=2)),
    ):
        found = fsd.evaluate(in_order, labels, groups, resamples=20)
        # The order of the rows has a part in which families a resample draws.
        assert found["value"].tolist() == pytest.approx(expected["value"].tolist())
    # The labels of other rows have another value, and a list says that it is meant so.
    assert _auc(in_order, list(frame["label"])) != pytest.approx(_auc(scores, frame))


def test_a_plot_meets_its_labels_by_their_index(monkeypatch):
    drawn = []
    monkeypatch.setattr("fsd.reporting.figures.roc", lambda members, *_: drawn.append(list(members)))
    frame = pd.DataFrame({"label": [1, 0, 0, 1]}, index=list("abcd"))
    scores = pd.DataFrame({"loss.base": [3.0, 1.0, 4.0, 2.0]}, index=list("abcd"))
    for labels in (frame, frame["label"], frame[::-1]):
        fsd.plot(scores.sort_values("loss.base"), labels)
    assert drawn == [[False, True, True, False]] * 3


@pytest.mark.parametrize("index", [range(5, 25), [0, *range(19)], [f"row {row}" for row in range(20)]])
def test_another_index_is_refused(index):
    scores = pd.DataFrame({"loss.base": np.arange(20.0)})
    frame = pd.DataFrame({"label": [1, 0] * 10, "group": "a"}, index=index)
    message = r"labels must have the index of scores, or none.*give list\(labels\) in the order of scores"
    for judge in (fsd.evaluate, fsd.plot):
        with pytest.raises(UsageError, match=message):
            judge(scores, frame)
    with pytest.raises(UsageError, match="groups must have the index of scores"):
        fsd.evaluate(scores, [1, 0] * 10, frame["group"])
    # Twice the same index in the same order is no question.
    scores.index = frame.index
    assert _auc(scores, frame["label"]) < 0.5


def test_scores_of_a_list_are_not_joined_to_a_shuffled_table(tiny, make_rows):
    frame = pd.DataFrame(make_rows(8, 8)).sample(frac=1, random_state=0)
    scores = fsd.score(str(tiny), frame["text"].tolist(), ["loss"])
    with pytest.raises(UsageError, match="scores come from a list without an index"):
        fsd.evaluate(scores, frame["label"])
    by_position = _auc(scores, list(frame["label"]))
    assert _auc(fsd.score(str(tiny), frame, ["loss"]), frame) == pytest.approx(by_position)
    # The numbers of a table that was never shuffled are those of the list.
    assert _auc(scores.sort_values("loss.base"), frame["label"].reset_index(drop=True)) == pytest.approx(by_position)


def test_an_estimator_joins_texts_and_labels_by_their_index(tiny, make_rows):
    frame = pd.DataFrame(make_rows(4, 4))
    backwards = frame["label"][::-1]
    detector = fsd.MembershipDetector(str(tiny), "loss", training=AdapterConfig(epochs=1))
    detector.fit(frame["text"], backwards)
    assert detector.unseen_ == frame.query("label == 0")["text"].tolist()
    members = pd.DataFrame(make_rows(6, 6)).query("text not in @detector.unseen_")
    members.loc[members.index[:3], "label"] = 0
    assert detector.score(members["text"], members["label"][::-1]) == detector.score(members["text"], members["label"])
    with pytest.raises(UsageError, match="y must have the index of X"):
        detector.fit(frame["text"], backwards.set_axis(range(3, 7)))


def test_a_text_whose_group_is_missing_is_its_own_group():
    scores, labels = pd.DataFrame({"loss.base": np.arange(6.0)}), [True, False] * 3
    expected = fsd.evaluate(scores, labels, resamples=20)
    groups = ["", None, math.nan, pd.NA, "", None]
    pd.testing.assert_frame_equal(fsd.evaluate(scores, labels, groups, resamples=20), expected)
    with pytest.raises(UsageError, match="resamples must be at least 1"):
        fsd.evaluate(scores, labels, resamples=0)


def test_scores_without_a_column_of_a_detector_are_refused():
    for scores, got in ((pd.DataFrame({"loss": [1.0, 2.0]}), "the columns loss"), (np.arange(2.0), "ndarray")):
        for judge in (fsd.evaluate, fsd.plot):
            with pytest.raises(
                UsageError, match=f"data frame with columns <detector>.base or <detector>.fsd; got {got}"
            ):
                judge(scores, [True, False])


def test_an_evaluation_prints_one_row_per_detector_and_is_drawn():
    rng = np.random.default_rng(0)
    labels = [True, False] * 20
    scores = pd.DataFrame(
        {f"{name}.{state}": rng.normal(size=40) for name in ("loss", "zlib") for state in ("base", "fsd")}
    )
    scores["pair.fsd"] = rng.normal(size=40)
    found = fsd.evaluate(scores, labels, resamples=50)
    assert found.wide().index.tolist() == ["loss", "zlib", "pair"]
    assert list(found.wide()) == ["base AUC", "FSD AUC", "gain", "base TPR at 5 % FPR", "FSD TPR at 5 % FPR"]
    assert set(found.wide().loc["pair", ["base AUC", "gain", "base TPR at 5 % FPR"]]) == {"–"}
    auc = found.query("detector == 'loss' and state == 'base' and metric == 'auc'")
    assert type(auc) is pd.DataFrame
    assert f"{auc['value'].item():.2f}".removeprefix("0") in repr(found).splitlines()[2]
    assert "<table" in found._repr_html_()
    figures = fsd.plot(scores, labels)
    assert [len(figure.axes) for figure in figures] == [3, 5]
    assert figures._repr_html_().count('<img src="data:image/png;base64,iVBOR') == 2


def test_every_setting_of_the_estimator_is_reached_by_its_name():
    given = AdapterConfig(rank=4)
    detector = fsd.MembershipDetector(training=given)
    params = detector.get_params()
    assert {f"training__{name}" for name in vars(given)} | {"model", "detector", "seed", "training"} == set(params)
    assert clone(detector).set_params(training__epochs=1, seed=7).training == AdapterConfig(rank=4, epochs=1)
    assert given.epochs == 3
    assert detector.set_params(training__epochs=2, training=None).training == AdapterConfig(epochs=2)
    with pytest.raises(UsageError, match=r"must be one of .*; got 'training__epoch'; did you mean training__epochs"):
        detector.set_params(training__epoch=1)
    with pytest.raises(ValueError, match="Invalid parameter 'adapter'"):
        detector.set_params(adapter__rank=1)


def test_the_estimator_follows_the_conventions_of_scikit_learn(tiny, make_rows):
    checks = (
        "no_attributes_set_in_init parameters_default_constructible get_params_invariance set_params estimator_repr"
    )
    for name in f"{checks} estimator_cloneable estimator_tags_renamed valid_tag_types mixin_order".split():
        getattr(estimator_checks, f"check_{name}")("MembershipDetector", fsd.MembershipDetector())
    with pytest.warns(SkipTestWarning, match="requires input  of type .*string=True"):  # those of arrays of numbers
        estimator_checks.check_estimator(fsd.MembershipDetector())
    texts = [row["text"] for row in make_rows(12, 0)]
    unseen, test = texts[:6], texts[6:]
    training = AdapterConfig(epochs=1, batch_size=2)
    detector = fsd.MembershipDetector(str(tiny), "loss", training=training, seed=1)
    for name, given in (("loss", "one string"), ("lss", unseen)):
        with pytest.raises(UsageError, match=r"unseen must be a list of strings|did you mean loss"):
            fsd.MembershipDetector("nowhere", name).fit(given)
    with pytest.raises(NotFittedError):
        detector.score_samples(test)
    scores = detector.fit(unseen).score_samples(test)
    for same in (pickle.loads(pickle.dumps(detector)), clone(detector).fit(np.asarray(unseen))):
        assert same.score_samples(test[::-1])[::-1] == pytest.approx(scores, abs=1e-12)
    with pytest.raises(UsageError, match="texts must not be among the unseen texts"):
        detector.score_samples(unseen)
    with pytest.raises(UsageError, match="got one string"):
        detector.score_samples(test[0])
    clone(detector).set_params(model=detector.model_).fit(test)
    with pytest.raises(UsageError, match="the model must have the adapter of fit; it was fine-tuned again"):
        detector.score_samples(test)
    assert fsd.__version__


@pytest.mark.slow
def test_the_estimator_scores_as_the_functions_do(tiny, make_rows):
    texts = [row["text"] for row in make_rows(12, 0)]
    unseen, test = texts[:6], texts[6:]
    training = AdapterConfig(epochs=1, batch_size=2)
    detector = fsd.MembershipDetector(str(tiny), "loss", training=training, seed=1).fit(unseen)
    scores = detector.score_samples(test)
    shouted = make_pipeline(FunctionTransformer(lambda given: [text.lower() for text in given]), clone(detector))
    lower = shouted.fit([text.upper() for text in unseen]).score_samples([text.upper() for text in test])
    assert lower == pytest.approx(clone(detector).fit([*map(str.lower, unseen)]).score_samples([*map(str.lower, test)]))
    direct = fsd.deviation(str(tiny), test, unseen, ["loss"], training=training, seed=1)
    assert scores == pytest.approx(direct["loss.fsd"].to_numpy(), abs=1e-12)
    loaded = fsd.deviation(detector.model_.model, test, unseen, ["loss"])  # a PeftModel
    assert fsd.deviation(detector.model_.model, test, detectors=["loss"]).equals(loaded)  # needs no unseen texts
    with pytest.raises(UsageError, match="unseen must have texts to fine-tune on, as the model has no adapter"):
        fsd.deviation(str(tiny), test)
    assert loaded["loss.fsd"].to_numpy() == pytest.approx(scores, abs=1e-5)
    base = AutoModelForCausalLM.from_pretrained(tiny)
    assert fsd.score(base, test, ["loss"])["loss.base"].to_numpy() == pytest.approx(direct["loss.base"], abs=1e-5)


@pytest.fixture
def adapted(tiny):
    """A model of peft, whose adapter is as it was drawn: B is zero."""
    with quiet_peft():
        return get_peft_model(AutoModelForCausalLM.from_pretrained(tiny), LoraConfig(task_type="CAUSAL_LM"))


def train(model):
    """As if the adapter had been trained."""
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "lora_B" in name:
                weight.normal_(std=0.1, generator=torch.Generator().manual_seed(0))


def test_the_adapter_of_a_model_counts_as_the_fine_tuning(tiny, adapted, make_rows, capsys):
    texts = [row["text"] for row in make_rows(6, 0)]
    with pytest.raises(UsageError, match=r"adapter must have been trained, .*it changes nothing"):
        fsd.deviation(adapted, texts[:2], texts[2:], ["loss"])
    with pytest.raises(UsageError, match=r"training must be None for a model that has an adapter"):
        fsd.deviation(adapted, texts[:2], texts[2:], ["loss"], training=AdapterConfig(epochs=1))
    train(adapted)
    capsys.readouterr()
    scores = fsd.deviation(adapted, texts[:2], texts[2:], ["loss"])
    assert capsys.readouterr().err.count("the model's own adapter counts as the fine-tuning: nothing is trained") == 1
    assert (scores["loss.fsd"] != 0).all()
    base = fsd.score(str(tiny), texts[:2], ["loss"])
    assert scores["loss.base"].to_numpy() == pytest.approx(base["loss.base"], abs=1e-5)

    # As it is: the base with its adapter.
    current = fsd.score(adapted, texts[:2], ["loss"])
    assert list(current) == ["loss.base"]
    assert current["loss.base"].to_numpy() == pytest.approx(scores["loss.tuned"], abs=1e-12)
    merged = fsd.score(adapted.merge_and_unload(), texts[:2], ["loss"])
    assert current["loss.base"].to_numpy() == pytest.approx(merged["loss.base"], abs=1e-5)


def test_an_adapter_in_whose_place_another_would_be_trained_is_refused(adapted, make_rows):
    texts = [row["text"] for row in make_rows(2, 0)]
    with pytest.raises(UsageError, match=r"model must have no adapter of its own, since fit trains one"):
        fsd.MembershipDetector(adapted).fit(texts)
    assert adapted.active_adapters == ["default"]


@pytest.mark.parametrize(("setting", "value"), [("bias", "all"), ("init_lora_weights", "pissa")])
def test_an_adapter_without_which_the_base_is_another_is_refused(tiny, make_rows, setting, value):
    texts = [row["text"] for row in make_rows(4, 0)]
    with quiet_peft():
        changing = get_peft_model(
            AutoModelForCausalLM.from_pretrained(tiny), LoraConfig(task_type="CAUSAL_LM", **{setting: value})
        )
    train(changing)
    with pytest.raises(UsageError, match=f"adapter must leave its base as it was, .*; {setting} is '{value}'"):
        fsd.deviation(changing, texts[:2], texts[2:], ["loss"])
    assert fsd.score(changing, texts[:2], ["loss"]).shape == (2, 1)


def test_an_adapter_that_transformers_attached_is_part_of_the_model_and_never_replaced(tiny, make_rows, tmp_path):
    texts = [row["text"] for row in make_rows(4, 0)]
    network = AutoModelForCausalLM.from_pretrained(tiny)
    base = fsd.score(network, texts[:2], ["loss"])
    network.add_adapter(LoraConfig(task_type="CAUSAL_LM"))
    train(network)
    with_adapter = fsd.score(network, texts[:2], ["loss"])
    assert not with_adapter.equals(base)
    for use in (
        lambda: fsd.deviation(network, texts[:2], texts[2:], ["loss"]),
        lambda: fsd.MembershipDetector(network).fit(texts),
    ):
        with pytest.raises(UsageError, match="transformers has put it into the network itself"):
            use()
    assert fsd.score(network, texts[:2], ["loss"]).equals(with_adapter)


def test_a_loaded_network_is_given_back_as_it_came(tiny, make_rows):
    texts = [row["text"] for row in make_rows(6, 0)]
    network = AutoModelForCausalLM.from_pretrained(tiny).train()
    network.get_input_embeddings().eval().requires_grad_(False)
    modes = [module.training for module in network.modules()]
    gradients = [weight.requires_grad for weight in network.parameters()]
    fsd.score(network, texts[:2], ["loss"])
    assert [module.training for module in network.modules()] == modes
    fsd.deviation(network, texts[:2], texts[2:], ["loss"], training=AdapterConfig(epochs=1))
    assert [module.training for module in network.modules()] == modes
    assert [weight.requires_grad for weight in network.parameters()] == gradients


def test_estimators_of_one_network_do_not_score_by_each_others_adapter(tiny, make_rows):
    texts = [row["text"] for row in make_rows(8, 0)]
    unseen, test = texts[:4], texts[4:]
    attention = AdapterConfig(epochs=1, learning_rate=0.01)
    dense = AdapterConfig(epochs=1, learning_rate=0.01, target_modules="dense")
    expected = fsd.deviation(str(tiny), test, unseen, ["loss"], training=dense)
    network = AutoModelForCausalLM.from_pretrained(tiny)
    first = fsd.MembershipDetector(network, training=attention).fit(unseen)
    assert np.isfinite(first.score_samples(test)).all()
    # Nothing of the first adapter is left, also in modules that the second training does not reach.
    second = fsd.MembershipDetector(network, training=dense).fit(unseen)
    assert second.score_samples(test) == pytest.approx(expected["loss.fsd"].to_numpy(), abs=1e-5)
    with pytest.raises(UsageError, match="it was fine-tuned again: load one for each estimator"):
        first.score_samples(test)
    fsd.deviation(network, test, unseen, ["loss"], training=dense)
    with pytest.raises(UsageError, match="the model must have the adapter of fit"):
        second.score_samples(test)


def test_an_estimator_scores_by_the_configuration_of_its_model(tiny, other, make_rows):
    texts = [row["text"] for row in make_rows(6, 0)]
    unseen, test = texts[:4], texts[4:]
    model = ModelConfig(str(tiny), reference_model=str(other), cache="none")
    training = AdapterConfig(epochs=1)
    expected = fsd.deviation(model, test, unseen, ["reference"], training=training)
    scores = fsd.MembershipDetector(model, "reference", training=training).fit(unseen).score_samples(test)
    assert scores == pytest.approx(expected["reference.fsd"].to_numpy(), abs=1e-12)


def test_a_model_comes_with_its_tokenizer(tiny, make_rows):
    texts = [row["text"] for row in make_rows(4, 0)]
    network, tokenizer = AutoModelForCausalLM.from_pretrained(tiny), AutoTokenizer.from_pretrained(tiny)
    network.config.name_or_path = ""
    training = AdapterConfig(epochs=1)
    expected = fsd.deviation(str(tiny), texts[:2], texts[2:], ["loss"], training=training)
    pair = (network, tokenizer)
    scores = fsd.deviation(pair, texts[:2], texts[2:], ["loss"], training=training)
    pd.testing.assert_frame_equal(scores, expected, atol=1e-5)
    assert fsd.score(pair, texts[:2], ["loss"])["loss.base"].to_numpy() == pytest.approx(
        expected["loss.base"], abs=1e-5
    )
    estimator = clone(fsd.MembershipDetector(pair, training=training)).fit(texts[2:])
    assert estimator.score_samples(texts[:2]) == pytest.approx(expected["loss.fsd"].to_numpy(), abs=1e-5)
    for model, message in (
        (network, r"or with its tokenizer, as \(model, tokenizer\); \w+ names none"),
        ((tokenizer, network), "a loaded model, or a pair .* got"),
        ((network, texts), "tokenizer must be a fast one of transformers; got list"),
        ((network,), "a pair .* got 1 objects"),
        (3, "got int"),
    ):
        with pytest.raises(UsageError, match=message):
            fsd.score(model, texts, ["loss"])


def test_tables_are_texts_with_labels_and_groups(tiny, make_rows):
    rows = make_rows(8, 0)
    frame = pd.DataFrame(rows, index=[f"row {row}" for row in range(8)])
    dataset = datasets.Dataset.from_list(rows)
    expected = fsd.score(str(tiny), [row["text"] for row in rows], ["loss"])
    scores = fsd.score(str(tiny), frame, ["loss"])
    assert list(scores.index) == list(frame.index)
    for given in (scores.reset_index(drop=True), fsd.score(str(tiny), dataset, ["loss"])):
        pd.testing.assert_frame_equal(given, expected)
    by_lists = fsd.evaluate(scores, list(frame["label"]), list(frame["group"]), resamples=20)
    for table in (frame, dataset):
        pd.testing.assert_frame_equal(fsd.evaluate(scores, table, resamples=20), by_lists)
    with pytest.raises(UsageError, match="labels must be a list, or a table with a column label; got the columns text"):
        fsd.evaluate(scores, frame[["text"]])
    with pytest.raises(UsageError, match="unseen must be texts that the model has not seen; got 4 with the label 1"):
        fsd.deviation(str(tiny), frame[:0], dataset, ["loss"])
    with pytest.raises(UsageError, match="got a DatasetDict: take one split"):
        fsd.score(str(tiny), datasets.DatasetDict(train=dataset), ["loss"])


class Polars:
    """What polars has that is read: a lazy frame is collected, a frame becomes one of pandas."""

    def __init__(self, frame):
        self.frame = frame
        self.columns = list(frame.columns)

    def to_pandas(self):
        return self.frame


class Lazy:
    def __init__(self, frame):
        self.frame = frame

    def collect(self):
        return Polars(self.frame)


Polars.__module__ = Lazy.__module__ = "polars.dataframe"


def test_tables_of_arrow_and_polars_are_those_of_pandas(tiny, make_rows):
    frame = pd.DataFrame(make_rows(8, 0))
    expected = fsd.score(str(tiny), list(frame["text"]), ["loss"])
    table = pa.Table.from_pandas(frame)
    for given in (table, table["text"], Polars(frame), Lazy(frame)):
        pd.testing.assert_frame_equal(fsd.score(str(tiny), given, ["loss"]), expected)
    by_list = fsd.evaluate(expected, list(frame["label"]), resamples=20)
    for labels in (table.select(["text", "label"]), table["label"]):
        pd.testing.assert_frame_equal(fsd.evaluate(expected, labels, resamples=20), by_list)


def test_a_missing_label_of_a_frame_is_named_or_has_no_use(tiny, make_rows):
    frame = pd.DataFrame(make_rows(8, 0))
    frame["label"] = [float("nan")] * 4 + [0.0] * 4
    # Of these columns none is read.
    frame["date"], frame["source"] = "2019", [{"name": "x"}] * 8
    assert len(fsd.score(str(tiny), frame.assign(context="Before."), ["loss"])) == 8
    assert len(unseen_texts(frame)) == 8
    scores = fsd.score(str(tiny), frame, ["loss"])
    with pytest.raises(UsageError, match="got nan: drop the rows without a label, of scores and labels alike"):
        fsd.evaluate(scores, frame["label"])


def test_a_frame_of_alpaca_is_scored_by_its_outputs(tiny):
    frame = pd.DataFrame({"instruction": ["the score", "a text"], "input": ["", None], "output": ["of a text", "a"]})
    prompts = pd.DataFrame({"prompt": ["the score\n", "a text\n"], "completion": list(frame["output"])})
    expected = fsd.score(str(tiny), prompts, ["loss"])
    assert fsd.score(str(tiny), frame, ["loss"]).to_numpy() == pytest.approx(expected.to_numpy())


@pytest.mark.parametrize("columns", [["text", "text"], ["context", "context"]])
def test_columns_of_one_name_are_refused(columns):
    table = pd.DataFrame([["a", "b"], ["c", "d"]], columns=columns)
    with pytest.raises(UsageError, match="columns of a table must have different names; got "):
        fsd.deviation("embedded", ["a text"], table, ["loss"])


@pytest.mark.parametrize(
    ("labels", "groups", "message"),
    [
        ([1, 0] * 2, None, "labels must be as many as rows of scores, 6; got 4"),
        ([1, 0] * 3, ["a"], "groups must be as many as rows of scores, 6; got 1"),
    ],
)
def test_labels_and_groups_are_one_for_each_row(labels, groups, message):
    scores = pd.DataFrame({"loss.base": np.arange(6.0)})
    with pytest.raises(UsageError, match=message):
        fsd.evaluate(scores, labels, groups)


def test_completion_offers_what_the_package_exports():
    assert dir(fsd) == sorted([*fsd.__all__, "__version__"])


def test_model_selection_fine_tunes_on_nonmembers_alone(tiny, make_rows, monkeypatch):
    trained = []
    finetune = finetuning.finetune

    def recorded(model, texts, config, *, seed):
        trained.append(set(texts))
        finetune(model, texts, config, seed=seed)

    monkeypatch.setattr(finetuning, "finetune", recorded)
    rows = make_rows(12, 0)
    texts, labels = [row["text"] for row in rows], [row["label"] for row in rows]
    nonmembers = {text for text, label in zip(texts, labels, strict=True) if not label}
    detector = fsd.MembershipDetector(str(tiny), training=AdapterConfig(epochs=1, batch_size=4))
    scores = cross_val_score(detector, texts, labels, cv=2, scoring="roc_auc", error_score="raise")
    assert np.isfinite(scores).all()
    assert all(fitted < nonmembers for fitted in trained)
    assert set.union(*trained) == nonmembers
    assert detector.fit(pd.DataFrame(rows[:8])).unseen_ == [text for text in texts[:8] if text in nonmembers]
    # What is compared without a measure is the AUC as well.
    assert detector.score(texts[8:], labels[8:]) == get_scorer("roc_auc")(detector, texts[8:], labels[8:])
    assert detector.classes_.tolist() == [False, True]
    assert not hasattr(detector, "predict")
    for wrong, message in ((labels[:3], "labels must be as many as texts, 12; got 3"), ([1] * 12, "at least one 0")):
        with pytest.raises(UsageError, match=message):
            detector.fit(texts, wrong)


@pytest.mark.slow
def test_a_grid_search_chooses_the_better_detector_of_the_embedded_model():
    documents = [document for document in embedded.corpus() if document.member is not None]
    members = [document for document in documents if document.member][:60]
    nonmembers = [document for document in documents if not document.member][:60]
    texts = [document.text for document in [*members, *nonmembers]]
    labels = [1] * 60 + [0] * 60
    search = GridSearchCV(
        fsd.MembershipDetector("embedded"),
        {"detector": ["loss", "min_k"]},
        scoring="roc_auc",
        cv=2,
        error_score="raise",
    )
    search.fit(texts, labels)
    assert clone(search.best_estimator_).get_params()["training__epochs"] == 3
    means = search.cv_results_["mean_test_score"]
    assert means.min() > 0.55
    assert search.best_score_ == means.max() > 0.65
    others = [document.text for document in documents if document.text not in set(texts)][:5]
    assert search.decision_function(others).shape == (5,)


def test_tables_of_chats_are_scored_by_their_answers(tiny, tmp_path):
    (tmp_path / "t.jinja").write_text(
        "{% for m in messages %}{{ m.role + m.content }}{% endfor %}{% if add_generation_prompt %}assistant{% endif %}"
    )
    model = ModelConfig(str(tiny), device="cpu", cache="none", chat_template=str(tmp_path / "t.jinja"))
    talks = [
        [{"role": "user", "content": "the score"}, {"role": "assistant", "content": answer}] for answer in ("a", "text")
    ]
    table = pd.DataFrame({"messages": talks}, index=[7, 8])
    scores = fsd.score(model, table, ["loss"])
    assert list(scores.index) == [7, 8]
    assert fsd.score(model, datasets.Dataset.from_pandas(table, preserve_index=False), ["loss"]).equals(
        scores.reset_index(drop=True)
    )
    divided = pd.DataFrame({"prompt": [talk[:1] for talk in talks], "completion": [talk[1:] for talk in talks]})
    assert fsd.score(model, divided, ["loss"]).to_numpy() == pytest.approx(scores.to_numpy())
    with pytest.raises(UsageError, match="must not be among the unseen texts; got 2"):
        fsd.deviation(model, table, table, ["loss"])
    with pytest.raises(UsageError, match="texts, row 1: a chat must have an answer"):
        fsd.score(model, pd.DataFrame({"messages": [talks[0], talks[1][:1]]}), ["loss"])
