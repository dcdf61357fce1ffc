"""The numbers of docs/peers.md: what other tools' formulas give, written anew from their code, beside ours."""

import math
import zlib
from collections import Counter

import numpy as np
import pytest
import torch

from detectors.dc_pdd import dc_pdd
from detectors.extraction_strength import extraction_strength
from detectors.ez import ez
from detectors.gradient_norm import gradient_norm
from detectors.min_k import min_k
from detectors.min_k_pp import min_k_pp
from detectors.pac import pac
from detectors.recall import recall
from detectors.samia import samia
from detectors.wbc import wbc
from fsd.scoring.model_scorer import token_statistics
from fsd.token_stats import Continuations, GradientNorms


def test_dc_pdd_with_log_probabilities_and_raw_counts(make):
    """Fast-MIA: logp · log(1 / count), capped; the paper: p · log(1 / f), f = (count + 1) / (N + V)."""
    counts, total, vocabulary = np.array([5e4, 9.0]), 1e6, 1000

    def ours(logp):
        return dc_pdd(make(logp), make(np.log((counts + 1) / (total + vocabulary))))

    def theirs(logp):
        return np.minimum(np.array(logp) * np.log(1 / counts), 0.01).mean()

    likely, unlikely = [-1e-4, -1e-3], [-9.0, -12.0]
    assert (ours(likely), ours(unlikely)) == (pytest.approx(0.01), pytest.approx(0.000221, abs=1e-6))
    assert (theirs(likely), theirs(unlikely)) == (pytest.approx(0.001640, abs=1e-6), pytest.approx(0.01))


def test_documents_in_place_of_tokens():
    """MIMIR: `counts[ids] += 1` adds one for each distinct token of a document."""
    counts, ids = torch.zeros(8), torch.tensor([5, 5, 5, 7])
    counts[ids] += 1
    assert counts[[5, 7]].tolist() == [1, 1]
    assert torch.bincount(ids, minlength=8)[[5, 7]].tolist() == [3, 1]


def test_min_k_pp_reduced_in_bfloat16():
    """OLMo-Detect: moments in the model's own precision, the variance clamped at 1e-9."""
    generator = torch.Generator().manual_seed(0)
    logits = 0.5 * torch.randn(64, 2048, generator=generator)
    target = logits.softmax(-1).multinomial(1, generator=generator)[:, 0]

    def theirs(dtype):
        logs = torch.log_softmax(logits.to(dtype), -1)
        mean = (logs.exp() * logs).sum(-1)
        std = ((logs.exp() * logs**2).sum(-1) - mean**2).clamp(min=1e-9).sqrt()
        z = (logs.gather(-1, target[:, None])[:, 0] - mean) / (std + 1e-9)
        return float(z.topk(12, largest=False)[0].mean())

    logp, mean, std, _ = token_statistics(logits.clone(), target).double().numpy()
    ours = np.sort((logp - mean) / std)[:12].mean()
    assert ours == pytest.approx(theirs(torch.float32), abs=1e-3)
    assert theirs(torch.float32) == pytest.approx(-1.36, abs=0.01)
    assert theirs(torch.bfloat16) < -1000


def test_min_k_pp_with_moments_over_the_vocabulary(make):
    """SoK: mean and deviation of log p over the vocabulary, not over the model's own distribution."""
    logs = np.log([1 / 2, 1 / 4, 1 / 8, 1 / 8])
    p = np.exp(logs)
    mean = p @ logs
    std = math.sqrt(p @ (logs - mean) ** 2)
    assert min_k_pp(make(logs[1:2], mean=[mean], std=[std])) == pytest.approx(-0.30, abs=0.005)
    assert (logs[1] - logs.mean()) / logs.std(ddof=1) == pytest.approx(0.26, abs=0.005)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_short_texts(make):
    """SoK and MIMIR: int(k·T) tokens, none below five; `x[-int(.05 T):]` is all of x below twenty."""
    logp = np.array([-1.0, -4.0, -2.0, -3.0])
    assert math.isnan(np.mean(np.sort(logp)[: int(0.2 * 4)]))
    assert min_k(make(logp)) == -4
    logp = -np.arange(1.0, 17.0)
    assert np.sort(logp)[-int(0.05 * 16) :].mean() == logp.mean() == -8.5
    assert pac(make(logp), [make([0.0])], low=0.05) == -15  # the highest of 16 is -1, the lowest -16


def test_con_recall_over_the_prefix_too(make):
    """SoK: the loss after a prefix is the mean over prefix and text together."""
    before, after, alone = np.array([-6.0, -2.0]), np.array([-1.0, -3.0]), np.array([-2.0, -6.0])
    assert recall(make(alone), make(after)) == 0.5
    assert np.concatenate([before, after]).mean() / alone.mean() == 0.75


def test_gradient_norms_of_single_tensors():
    """MIMIR, OpenUnlearning: the mean of the tensors' norms."""
    tensors = [np.array([3.0, -4.0]), np.array([12.0])]
    assert np.mean([np.linalg.norm(tensor) for tensor in tensors]) == 8.5
    assert gradient_norm(GradientNorms(19.0, float(np.linalg.norm(np.concatenate(tensors))), 12.0)) == -13


def test_extraction_strength_of_a_text_of_which_nothing_is_completed(make):
    """OpenUnlearning: the last beginning that is tried is kept where none fits."""
    missed, size = [True] * 4, 4
    k = next((k for k in range(size) if not any(missed[k:])), size - 1)
    assert 1 - k / size == 0.25
    assert extraction_strength(make([-3.0] * 4, top=[-1.0] * 4)) == 0


def test_window_sizes_of_wbc(make):
    """Fast-MIA: 1, 5, 10, 20; eq. 12: ten from 2 to 40, spaced geometrically; the authors' configuration: others."""
    difference = np.where(np.arange(60) % 3 < 1, 2.0, -0.95)
    text, other = make(difference - 3), make(np.full(60, -3.0))
    votes = {
        size: np.mean(np.convolve(difference, np.ones(size), "valid") > 0) for size in (1, 5, 10, 20, *range(2, 41))
    }
    assert np.mean([votes[size] for size in (1, 5, 10, 20)]) == pytest.approx(0.496, abs=5e-4)
    paper = [round(2 * 20 ** (i / 9)) for i in range(10)]
    assert paper == [2, 3, 4, 5, 8, 11, 15, 21, 29, 40]
    assert wbc(text, other, sizes=tuple(paper)) == pytest.approx(np.mean([votes[size] for size in paper]))
    assert wbc(text, other, sizes=tuple(paper)) == pytest.approx(0.763, abs=5e-4)
    authors = [2, 3, 4, 6, 9, 13, 18, 25, 32, 40]
    assert wbc(text, other) == pytest.approx(np.mean([votes[size] for size in authors]))
    assert wbc(text, other) == pytest.approx(0.732, abs=5e-4)


def test_a_text_without_a_fall_at_the_tokens_that_the_model_misses(make):
    """EZ-MIA's own code: infinite scores become 0."""
    rises, falls = np.array([0.5, 0.25]), np.array([])
    with np.errstate(divide="ignore"):
        score = np.float64(rises.sum()) / falls.sum()
    assert np.nan_to_num(score, posinf=0.0) == 0
    assert ez(make([-3.0, -2.0], top=[-1.0, -1.0]), make([-3.5, -2.25])) == 0


def test_the_divergence_of_info_rmia():
    """The paper adds the divergence of the reference from the target: the expectation is under the reference."""
    p, q = np.array([0.7, 0.2, 0.1]), np.array([0.4, 0.4, 0.2])
    delta = np.log(p / q)
    assert (q * np.log(q / p)).sum() == pytest.approx(-(q * delta).sum()) == pytest.approx(0.192, abs=5e-4)
    assert (p * delta).sum() == pytest.approx(0.184, abs=5e-4)


def test_signals_turned_by_the_labels_of_the_tested_texts():
    """CAMIA: the sign of a signal is that of the difference of means over all texts, members and non-members."""
    aucs = []
    for seed in range(20):
        signals = np.random.default_rng(seed).normal(size=(24, 200))  # noise; the first half are members
        turned = signals * np.where(signals[:, :100].mean(1) > signals[:, 100:].mean(1), -1, 1)[:, None]
        known, tested = turned[:, 100:130], np.delete(turned, np.r_[:30, 100:130], axis=1)
        p = (known[:, None] < tested[..., None]).mean(2).mean(0)
        aucs.append((p[:70, None] < p[70:]).mean())
    assert np.mean(aucs) == pytest.approx(0.65, abs=0.005)


def test_one_p_value_of_zero_among_72():
    """CAMIA, OLMo-Detect: 0 becomes 1e-10; here p = (rank + 1/2) / (K + 1), for K = 150 known texts."""
    alike = [math.exp((71 * math.log(0.5) + math.log(least)) / 72) for least in (1e-10, 0.5 / 151)]
    assert alike == pytest.approx([0.37, 0.47], abs=0.005)


def test_samia_of_a_sample_that_repeats_the_text():
    """Fast-MIA: `words[round(text_length / 2):]` of the samples too, which begin after the prompt."""
    words = [f"w{n}" for n in range(32)]
    truth, sample = words[16:], words[16:][16:]
    assert sum((Counter(truth) & Counter(sample)).values()) / len(truth) == 0
    assert samia(Continuations(" ".join(truth), (" ".join(truth),))) == 1


def test_samia_times_zlib():
    """SoK: `" ".join(sample)` of a string."""
    sample = "the end of it"
    assert len(zlib.compress(" ".join(sample).encode())) == 28
    assert samia(Continuations(sample, (sample,)), zlib=True) == 21
