from detectors.combined import combined


def test_by_hand(make):
    base = make([-1.0, -6.0, -3.0, -4.0], mean=[-2.0, -2.0, -1.0, -4.0], std=[1.0, 2.0, 1.0, 0.5])
    tuned, other = make([-2.0, -2.0, -3.0, -4.0]), make([-2.0, -6.0, -1.0, -8.0])
    # log-ratios 1, 0, -2, 4; standardised 1, -2, -2, 0; deviations 1, -4, 0, 0, whose mean is -.75
    assert combined(base, tuned, other) == -2 + 0.5 * -2 + 4 * -0.75
    assert combined(base, tuned, other, k=0.5) == (-2 + 0) / 2 + 0.5 * -2 + 4 * -0.75
    assert combined(base, tuned, other, k=1.0, a=2.0, b=1.0) == 3 / 4 + 2 * -3 / 4 - 0.75


def slow(text, tuned, other, k, a, b):
    ratios, standardised, moved, size = [], [], 0.0, len(text.logp)
    for at in range(size):
        ratios.append(float(text.logp[at]) - float(other.logp[at]))
        standardised.append((float(text.logp[at]) - float(text.mean[at])) / float(text.std[at]))
        moved += float(text.logp[at]) - float(tuned.logp[at])
    n = max(1, int(k * size))
    return sum(sorted(ratios)[:n]) / n + a * sum(sorted(standardised)[:n]) / n + b * moved / size


def test_equals_a_loop(agree):
    agree(combined, slow, "text", "tuned", "reference", k=(0.1, 0.35, 1.0), a=(0.0, 0.5, 2.0), b=(0.0, 1.0, 4.0))
