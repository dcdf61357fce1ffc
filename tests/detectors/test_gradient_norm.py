import numpy as np
import pytest
import torch
from peft import get_peft_model

import detectors
from detectors.gradient_norm import gradient_norm
from fsd.config import AdapterConfig
from fsd.models.adapters import detach, peft_config, quiet_peft
from fsd.models.language_model import load
from fsd.scores import Score
from fsd.scoring.deviation import score_texts
from fsd.scoring.gradients import GradientScorer
from fsd.token_stats import GradientNorms, Prompt
from fsd.views import usable

TEXTS = ["the score of an unseen text", "a member", "the score moves more than that of a member"]


def test_by_hand():
    norms = GradientNorms(7.0, 5.0, 4.0)  # of the gradient (3, -4)
    assert [gradient_norm(norms, norm=norm) for norm in ("l1", "l2", "max")] == [-7, -5, -4]


def slow(model, text, names=None):
    """By transformers' own loss and backward pass, all gradients in one vector, or those of some names."""
    network = model.base
    network.requires_grad_(True)
    ids = torch.tensor([[model.start, *model.tokens([text])[0]]])
    network(input_ids=ids, labels=ids).loss.backward()
    weights = {name.replace(".base_layer", ""): weight for name, weight in network.named_parameters()}
    vector = torch.cat([weights[name].grad.flatten() for name in names or weights]).double()
    network.requires_grad_(False)
    network.zero_grad()
    return [float(vector.norm(p)) for p in (1, 2, torch.inf)]


def test_norms_are_those_of_one_vector_by_a_slow_backward_pass_and_leave_the_model_alone(tiny):
    model = load(str(tiny), device="cpu")
    before = [weight.clone() for weight in model.base.parameters()]
    norms = list(GradientScorer(model)([Prompt(text) for text in [*TEXTS, TEXTS[0]]]))
    for text, got in zip(TEXTS, norms, strict=False):
        assert got == pytest.approx(slow(model, text), rel=1e-5)
    assert norms[3] == norms[0]
    for weight, old in zip(model.base.parameters(), before, strict=True):
        assert torch.equal(weight, old)
        assert not weight.requires_grad
        assert weight.grad is None
    long = list(GradientScorer(model)([Prompt(" ".join(TEXTS * 20)), Prompt(TEXTS[1], " ".join(TEXTS * 20))]))
    assert np.isfinite(long).all()


def test_a_fresh_adapter_has_no_deviation_and_a_changed_one_has(tiny):
    model, chosen = load(str(tiny), device="cpu"), [detectors.load("gradient_norm")]
    with quiet_peft():
        model.model = get_peft_model(model.model, peft_config(model, AdapterConfig(), steps=10))
    scorers = {f"{state}.gradient": GradientScorer(model, tuned=state == "tuned") for state in ("base", "tuned")}
    scorers |= dict.fromkeys(("base", "tuned"), lambda _: ())
    assert score_texts(TEXTS, chosen, scorers).columns[Score("gradient_norm", "fsd")] == pytest.approx(0, abs=1e-6)
    with torch.no_grad():
        for name, weight in model.base.named_parameters():
            if "lora_B" in name:
                weight += 0.05
    found = score_texts(TEXTS, chosen, scorers)
    assert (abs(found.columns[Score("gradient_norm", "fsd")]) > 1e-4).all()
    detach(model)
    plain = score_texts(TEXTS, chosen, {"base": lambda _: (), "base.gradient": GradientScorer(model)})
    assert found.columns[Score("gradient_norm", "base")] == pytest.approx(plain.columns[Score("gradient_norm", "base")])


@pytest.mark.parametrize("method", ["lora", "ia3", "adalora"])
def test_weights_of_the_adapter_have_no_part(tiny, method):
    model = load(str(tiny), device="cpu")
    names = [name for name, _ in model.base.named_parameters()]
    with quiet_peft():
        model.model = get_peft_model(model.model, peft_config(model, AdapterConfig(method), steps=10))
    with torch.no_grad():
        for name, weight in model.base.named_parameters():
            if "lora_" in name or "ia3_" in name:
                weight += 1
    model.model.eval()
    (norms,) = GradientScorer(model, tuned=True)([Prompt(TEXTS[0])])
    assert norms == pytest.approx(slow(model, TEXTS[0], names), rel=1e-5)


def test_without_gradients_it_is_left_out():
    reason = "no gradient can be computed: the model must be local, on one device and not quantized"
    assert usable([detectors.load("gradient_norm")], TEXTS, ["base", "tuned"])[1] == {"gradient_norm": reason}
