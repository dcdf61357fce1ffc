import math

import numpy as np
import pytest
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler

from detectors.camia_lr import camia_lr
from fsd.loss_signals import ALONG, loss_signals
from fsd.token_stats import Exemplars, Prompt


def known(labelled, statistics):
    """Labelled texts with statistics of each: text → that of the text and its copies."""
    rows = [[Prompt(text)] * len(statistics[text]) for text in labelled]
    return Exemplars(rows, labelled).score_with(lambda prompts: [one for text in labelled for one in statistics[text]])


def test_the_score_by_hand(make):
    texts = {name: make([logp]) for name, logp in (("m", -1.0), ("n", -3.0), ("between", -2.0))}
    labelled = known({"m": (0, True), "n": (1, False)}, {name: [texts[name]] for name in "mn"})
    m, n, between = (camia_lr(text, [], labelled) for text in texts.values())
    # 14 signals, loss and perplexity, plain and by diversity, at 3 cuts, and 2 shares, are 0 for m and 1 for n, so that
    # they have one weight. Where the penalised loss is least, it is minus the probability that n is a member.
    weight, intercept = (n - m) / 14, m
    p_m, p_n = 1 / (1 + math.exp(-m)), 1 / (1 + math.exp(-n))
    assert weight == pytest.approx(-p_n)
    assert intercept == pytest.approx(1 - p_m - p_n)
    assert between == pytest.approx(m + weight * (6 / 2 + 6 / (1 + math.e) + 1))


def slow(text, repeated, labelled, components, along):
    family = labelled.labelled[text.text][0] if text.text in labelled.labelled else None
    rows, members = [], []
    for signals, prompts in zip(labelled.of(loss_signals, along=along), labelled.prompts, strict=True):
        of, member = labelled.labelled[prompts[0].text]
        if of != family:
            rows.append(signals)
            members.append(member)
    fitted = LogisticRegression(solver="liblinear", class_weight="balanced", tol=1e-10, max_iter=5000)
    parts = [PCA(min(components, len(rows)))] if components else []
    model = make_pipeline(MinMaxScaler(), *parts, fitted).fit(rows, members)
    return model.decision_function([loss_signals(text, *repeated, along=along)])[0]


def test_equals_scikit_learn(make, random_views):
    for size in (1, 5, 20):
        views = random_views(size, size)
        for name in ("A text", *"abcde"):
            text = make(views["text"].logp, token=views["text"].token, text=name)
            for components, along in ((0, "copies"), (0, "text"), (2, "copies"), (10, "copies")):
                given = text, views["repeated"], views["labelled"]
                ours = camia_lr(*given, components=components, along=along)
                assert ours == pytest.approx(slow(*given, components, along), rel=1e-5, abs=1e-6)
    assert set(ALONG) == {"copies", "text"}


def test_a_text_of_validation_is_scored_without_its_family(make, random_views):
    names = "abcdefgh"
    labelled = {name: (at // 2, at % 3 == 0) for at, name in enumerate(names)}
    statistics = {name: [random_views(at, 12)["text"]] for at, name in enumerate(names)}
    other = {**labelled, "a": (0, False), "b": (0, True)}, {**statistics, "a": statistics["c"]}
    before, after = known(labelled, statistics), known(*other)
    for name in (*names, "another", "relative"):
        for one in (before, after):  # of a's family, but not among those that are fitted
            one.labelled = {**one.labelled, "relative": (0, True)}
        text = make(statistics["d"][0].logp, text=name)
        assert (camia_lr(text, [], before) == camia_lr(text, [], after)) == (name in ("a", "b", "relative"))


def test_labels_that_mean_nothing_are_not_found_again(make):
    apart, within = [], []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        labelled = {str(at): (at, at % 2 == 0) for at in range(40)}
        statistics = {name: [make(-rng.exponential(2, 9), text=name) for _ in range(3)] for name in labelled}
        fitted, members = known(labelled, statistics), [member for _, member in labelled.values()]
        for aucs, prefix in ((apart, ""), (within, "unknown ")):
            texts = [make(text.logp, text=prefix + name) for name, (text, *_) in statistics.items()]
            copies = [copies for _, *copies in statistics.values()]
            scores = [camia_lr(text, again, fitted) for text, again in zip(texts, copies, strict=True)]
            aucs.append(roc_auc_score(members, scores))
    assert abs(np.mean(apart) - 0.5) < 0.1
    assert np.mean(within) > 0.8
