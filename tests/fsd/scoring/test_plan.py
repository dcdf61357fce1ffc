"""Forward passes of a plan: those of an outline, which loads nothing, are those of the opened model."""

import subprocess
import sys

import detectors
from fsd.config import ModelConfig
from fsd.scoring.model import open_model, outline

TEXTS = ["Some Text"] * 7
ELSEWHERE = ModelConfig(model="a/b")


def passes(names: str, config: ModelConfig = ELSEWHERE, *, unseen=(), labelled=None, **how) -> dict[str, int]:
    """Reader → texts that it scores, for `TEXTS`."""
    model = outline(config, **how)
    inputs = model.inputs(unseen, labelled=labelled or {})
    return model.plan(list(map(detectors.load, names.split(","))), TEXTS, inputs).passes


def test_a_view_is_counted_once() -> None:
    names = "loss,zlib,min_k,lowercase,reference,neighbour"
    embedded = ModelConfig(neighbours=3)
    assert passes(names, embedded, unseen=["one"]) == {"base": 7 * 5, "reference": 7, "tuned": 7 * 5}
    assert passes(names, embedded, states=("base",)) == {"base": 14, "reference": 7}
    assert passes(names, unseen=["one"]) == {"base": 14, "tuned": 14}
    assert passes("pac") == {"base": 7 * 6, "tuned": 7 * 6}


def test_texts_that_are_common_to_all_are_scored_by_the_base_alone() -> None:
    assert passes("camia", unseen=["one", "another"]) == {"base": 3 * 7 + 3 * 2, "tuned": 3 * 7}
    assert passes("camia") == {}
    members = {f"member {number}": (number, True) for number in range(200)}
    others = {"other": (200, False), "its relative": (200, False)}
    assert passes("camia_lr", labelled=members | others) == {}  # as in the run
    apart = {"other": (200, False), "its relative": (201, False)}
    assert passes("camia_lr", labelled=members | apart) == {"base": 3 * 7 + 3 * (150 + 2), "tuned": 3 * 7}


def test_what_an_api_generates_is_counted_in_tokens() -> None:
    sampled = ModelConfig(model="api:x", samples=3)
    expected = {
        "base generating about 42 tokens": 7 * 3,
        "base generating about 2,800 tokens": 7 * (3 + 1),  # cdd: and the most likely one
    }
    assert passes("samia,cdd", sampled, states=("base",)) == expected
    assert passes("samia,cdd,loss", sampled, states=("base",), chat=True) == expected


def test_an_outline_plans_as_the_opened_model_does(tiny) -> None:
    """With every detector, in the states of a run, on texts of which neighbours can be made."""
    texts = ["the score of a member text", "another text of a member"]
    unseen = ["an unseen text of many words", "one more of these"]
    labelled = {"q": (0, True), "w": (0, False), "y": (1, True), "v": (1, False)}
    config = ModelConfig(str(tiny), reference_model=str(tiny), neighbour_model="words", device="cpu", cache="none")
    requested = list(map(detectors.load, detectors.names("all")))
    models = outline(config), open_model(config, states=("base", "tuned"))
    outlined, opened = (m.plan(requested, texts, m.inputs(unseen, labelled=labelled)) for m in models)
    assert set(models[0].scorers) == set(models[1].scorers)
    assert [detector.name for detector in outlined.detectors] == [detector.name for detector in opened.detectors]
    assert outlined.left_out == opened.left_out
    assert outlined.passes == opened.passes


def test_an_outline_loads_no_torch() -> None:
    """A dry run answers within a second or two; torch alone takes as long."""
    code = (
        "import sys, detectors\n"
        "from fsd.config import ModelConfig\n"
        "from fsd.scoring.model import outline\n"
        "model = outline(ModelConfig('a/b', reference_model='c/d', neighbour_model='e/f'))\n"
        "chosen = [detectors.load(name) for name in detectors.names('all')]\n"
        "labelled = {'q': (0, True), 'w': (0, False), 'y': (1, True), 'v': (1, False)}\n"
        "plan = model.plan(chosen, ['A text.'], model.inputs(['unseen'], labelled=labelled))\n"
        "assert plan.passes['reference'] == 2 and 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
