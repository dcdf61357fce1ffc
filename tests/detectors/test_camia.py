import math
from dataclasses import replace
from itertools import pairwise, product

import numpy as np
import pytest

from detectors.camia import COMBINATIONS, camia
from fsd.loss_signals import ALONG, loss_signals
from fsd.token_stats import Exemplars, Prompt


def test_the_signals_by_hand(make):
    text, copy = make([-1.0, -3.0], token=[5, 5]), make([-1.0, -1.0], token=[5, 5])
    # loss, perplexity, both by the half of the tokens that are distinct, the token above the mean; thresholds; words
    own = [2, math.exp(2), 4, 2 * math.exp(2), -0.5] * 3 + [-0.5, -0.5, -1] + [1, 1, 1]
    again = [1, math.e, 2, 2 * math.e, 0] * 3 + [-1, -1, -1] + [0.5, 0.5, 0.5]
    along = [0, 0, 0, 2, 2, 2, 0, 0, 0]  # nothing above the tokens before, slope, entropy
    expected = [*own, *(a - b for a, b in zip(own, again, strict=True)), *along]
    assert loss_signals(text, copy, along="text") == pytest.approx(expected)
    assert loss_signals(text, copy)[-6:-3] == pytest.approx([-0.2] * 3)  # losses 1, 3, 1, 1
    assert loss_signals(text, copy, copy).size == 72


def test_the_score_by_hand(make):
    text, worse = make([-1.0, -3.0]), make([-1.5, -3.5])
    same = Exemplars([[Prompt("")] * 3]).score_with(lambda prompts: [text] * 3)
    scores = {name: camia(text, [text, text], same, combination=name) for name in COMBINATIONS}
    half = math.log(2)  # every signal equals that of the one known text: p is 1/2
    assert scores == pytest.approx({"edgington": -0.5, "fisher": half, "pearson": -half, "george": 0})
    known = Exemplars([[Prompt("")]] * 3).score_with(lambda prompts: [worse, text, text])
    losses = camia(make([-1.0, -3.0]), [], known) * 30  # 21 signals of the text, 9 along it
    lower = 3 * 4 + 2  # loss and perplexity, plain and by diversity, at 3 cuts; shares above -1 and -3
    assert losses == pytest.approx(-(lower * 1.5 + (30 - lower) * 2) / 4)


def slow_signals(text, *copies, along):
    def levels(stats):
        found, logp = [], list(map(float, stats.logp))
        for cut in (len(logp), 200, 300):
            part, tokens = logp[:cut], list(stats.token)[:cut]
            loss, distinct = -sum(part) / len(part), len(set(tokens)) / len(tokens)
            above = sum(value > -loss for value in part) / len(part)
            found += [loss, math.exp(loss), loss / distinct, math.exp(loss) / distinct, -above]
        found += [-sum(value >= least for value in logp[:200]) / len(logp[:200]) for least in (-1, -2, -3)]
        for bins in (3, 4, 5):
            fine = [sum(edge < value for edge in np.linspace(min(logp[:200]), 0, 100)) for value in logp[:200]]
            edges = np.linspace(min(fine), max(fine), bins + 1)
            symbols = [sum(edge < value for edge in edges[1:]) for value in fine]
            words, word = set(), ()
            for symbol in symbols:
                word = (*word, symbol)
                if word not in words:
                    words.add(word)
                    word = ()
            found.append(len(words) / len(symbols))
        return np.array(found)

    logp = list(map(float, text.logp))
    before = [float(np.mean(logp[:t]) < logp[t]) for t in range(1, len(logp))] or [0.0]
    found = [levels(text), *(levels(text) - levels(copy) for copy in copies)]
    found.append(np.array([-np.mean(before[:cut]) for cut in (len(before), 199, 299)]))
    whole = np.concatenate([stats.logp for stats in (text, *copies)]) if along == "copies" else text.logp
    slopes, entropies = [], []
    for part in (whole[:600], whole[:800], whole[:1000]):
        slopes.append(np.polyfit(np.arange(part.size), -part, 1)[0] if part.size > 1 else 0.0)
        phi = []
        for length in (8, 9) if part.size > 9 else ():
            windows = np.lib.stride_tricks.sliding_window_view(part, length)
            apart = np.abs(windows[:, None] - windows[None]).max(2)
            phi.append(np.mean([math.log(np.mean(row <= 0.8 * part.std())) for row in apart]))
        entropies.append(sum(abs(b - a) for a, b in pairwise(phi)))
    return np.concatenate([*found, slopes, entropies])


def slow(own, others, combination):
    parts = []
    for at, value in enumerate(own):
        less = sum(row[at] < value - 1e-8 for row in others)
        equal = sum(abs(row[at] - value) <= 1e-8 for row in others)
        p = (less + equal / 2 + 0.5) / (len(others) + 1)
        ways = {"edgington": -p, "fisher": -math.log(p), "pearson": math.log(1 - p), "george": math.log((1 - p) / p)}
        parts.append(ways[combination])
    return sum(parts) / len(parts)


def test_equals_a_loop(random_views):
    for size, along in (*product((1, 2, 9, 10, 11, 30), ALONG), (310, "text")):
        views = random_views(size, size)
        given = [views[name] for name in ("text", "repeated", "nonmembers")]
        own, others = slow_signals(given[0], *given[1], along=along), given[2].of(slow_signals, along=along)
        assert loss_signals(given[0], *given[1], along=along) == pytest.approx(own, rel=1e-9, abs=1e-9)
        for name in COMBINATIONS:
            assert camia(*given, combination=name, along=along) == pytest.approx(slow(own, others, name), rel=1e-12)


def test_what_ranks_do_not_change(random_views):
    views = random_views(3, 40)
    given = [views[name] for name in ("text", "repeated", "nonmembers")]
    signals, others = loss_signals(given[0], *given[1]), given[2].of(loss_signals)
    ranks = (others < signals).sum(0)
    assert (ranks[[0, 2]] == ranks[[1, 3]]).all()  # a perplexity has the p-value of its loss
    scores = {name: camia(*given, combination=name) for name in COMBINATIONS}
    assert scores["george"] == pytest.approx(scores["fisher"] + scores["pearson"])


def test_a_text_beyond_the_longest_cut_counts_by_its_beginning(random_views):
    text = random_views(0, 1010)["text"]
    start = replace(text, token=text.token[:-9], logp=text.logp[:-9], mean=text.mean[:-9], std=text.std[:-9], top=None)
    after = [loss_signals(stats, along="text")[[1, *range(5, 15), *range(-6, 0)]] for stats in (text, start)]
    assert (after[0][1:] == after[1][1:]).all()
    assert after[0][0] != after[1][0]  # that of the whole text
