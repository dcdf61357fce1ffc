"""The library in three functions: its docstring's example, and what it refuses."""

import doctest
import importlib
import math
import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError, SkipTestWarning
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import estimator_checks
from transformers import AutoModelForCausalLM

import fsd
from fsd import library
from fsd.config import AdapterConfig
from fsd.errors import UsageError


@pytest.mark.slow
def test_the_example_of_the_docstring_runs():
    for module in (library, importlib.import_module("fsd.estimator")):
        results = doctest.testmod(module)
        assert results.attempted >= 5
        assert results.failed == 0


def test_a_text_among_the_unseen_ones_is_refused():
    with pytest.raises(UsageError, match="texts must not be among the unseen texts; got 1 that are"):
        fsd.deviation("embedded", ["a text"], ["a text"], detectors=["loss"])


def test_one_string_or_another_type_in_place_of_texts_is_refused():
    for texts, message in (
        ("one string", "texts must be a list of strings; got one string, 'one string'"),
        ([1], "got 1 in it"),
        (pd.DataFrame({"text": ["one"]}), "got a DataFrame: take one column of it"),
        ({"one": 1}, "got a dict"),
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
    assert found.wide().loc["pair"].tolist()[::2] == ["–", "–"]
    auc = found.query("detector == 'loss' and state == 'base' and metric == 'auc'")
    assert type(auc) is pd.DataFrame
    assert f"{auc['value'].item():.2f}".removeprefix("0") in repr(found).splitlines()[2]
    assert "<table" in found._repr_html_()
    assert [len(figure.axes) for figure in fsd.plot(scores, labels)] == [3, 5]


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
    for same in (pickle.loads(pickle.dumps(detector)), clone(detector).fit(np.asarray(unseen)), detector.fit(unseen)):
        assert same.score_samples(test[::-1])[::-1] == pytest.approx(scores, abs=1e-12)
    shouted = make_pipeline(FunctionTransformer(lambda given: [text.lower() for text in given]), clone(detector))
    lower = shouted.fit([text.upper() for text in unseen]).score_samples([text.upper() for text in test])
    assert lower == pytest.approx(clone(detector).fit([*map(str.lower, unseen)]).score_samples([*map(str.lower, test)]))
    direct = fsd.deviation(str(tiny), test, unseen, ["loss"], training=training, seed=1)
    assert scores == pytest.approx(direct["loss.fsd"].to_numpy(), abs=1e-12)
    loaded = fsd.deviation(detector.model_.model, test, unseen, ["loss"])  # a PeftModel
    assert loaded["loss.fsd"].to_numpy() == pytest.approx(scores, abs=1e-5)
    base = AutoModelForCausalLM.from_pretrained(tiny)
    assert fsd.score(base, test, ["loss"])["loss.base"].to_numpy() == pytest.approx(direct["loss.base"], abs=1e-5)
    with pytest.raises(UsageError, match="texts must not be among the unseen texts"):
        detector.score_samples(unseen)
    with pytest.raises(UsageError, match="got one string"):
        detector.score_samples(test[0])
    clone(detector).set_params(model=detector.model_).fit(test)
    with pytest.raises(UsageError, match="the model must have the adapter of fit; it was fine-tuned again"):
        detector.score_samples(test)
    assert fsd.__version__
