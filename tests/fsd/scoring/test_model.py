"""A plan says what can be computed, and counts the texts for which the prefix of `recall` is cut off."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tokenizers import normalizers

import detectors
from fsd.config import ModelConfig
from fsd.errors import UsageError
from fsd.models.language_model import load, read_tokenizer
from fsd.scores import Score
from fsd.scoring import view_inputs
from fsd.scoring.model import open_model
from fsd.scoring.model_checks import check_model
from fsd.scoring.model_scorer import ModelScorer
from fsd.scoring.scorers import TABLE
from fsd.scoring.token_frequencies import FrequencyTable, fingerprint
from fsd.token_stats import Prompt


@pytest.fixture(scope="module")
def config(tiny):
    return ModelConfig(str(tiny), device="cpu", cache="none")


@pytest.fixture(scope="module")
def opened(config):
    return open_model(config)


def test_the_texts_for_which_the_prefix_is_cut_are_counted(opened):
    model = opened.language_model
    texts = [" ".join(["score of a member"] * n) for n in range(6, 14)]
    unseen = ["q the text of an unseen member"]
    planned = opened.plan([detectors.load("recall")], texts, opened.inputs(unseen, shots=1))
    prefix = planned.inputs.primed
    ids = model.tokens([prefix])[0]
    whole, other = (list(ModelScorer(model)([Prompt(text, start + prefix[1:]) for text in texts])) for start in "qz")
    assert len(model.tokens(["z" + prefix[1:]])[0]) == len(ids)
    unchanged = [a.logp[-1] == b.logp[-1] for a, b in zip(whole, other, strict=True)]  # without the first letter
    sizes = [len(ids) + len(text) for text in model.tokens(texts)]
    cut = sum(size > model.context for size in sizes)
    assert unchanged == [size > model.context + 1 for size in sizes]  # the start token is cut off first
    assert 0 < cut < len(texts)
    remark = f"recall: the prefix is too long for the {model.context}-token context in {cut} of 8 texts and was cut; "
    assert planned.remarks == [f"{remark}shorter texts would fit"]
    twice = opened.plan([detectors.load("recall")], texts, opened.inputs(unseen * 2, shots=2))
    assert twice.remarks[0].endswith("texts and was cut; try --shots 1")


def test_a_reference_model_of_another_tokenizer_excludes_what_compares_tokens(tiny, other):
    config = ModelConfig(str(tiny), device="cpu", cache="none", reference_model=str(other))
    model = open_model(config)
    texts = ["Some text of a member.", "Another one, of nobody."]
    model = replace(model, tokens=lambda given: [[*ids, 0] for ids in load(config).tokens(given)])
    aligned = ["min_k_reference", "adapted_min_k_reference", "wbc", "adapted_wbc", "info_rmia", "adapted_info_rmia"]
    plan = model.plan([detectors.load(name) for name in (*aligned, "loss")], texts, strict=False)
    assert [detector.name for detector in plan.detectors] == ["loss"]
    assert plan.left_out == dict.fromkeys(aligned, "the reference model has another tokenizer")
    assert plan.remarks[0] == "min_k_reference left out: the reference model has another tokenizer"


def test_a_text_is_never_primed_by_itself_or_its_family():
    labelled = {"one": (0, True), "one again": (0, True), "no": (0, False), "two": (1, True), "three": (2, True)}
    for seed in range(9):
        prefix = view_inputs.member_prefix(labelled, 2, seed)
        assert prefix("one") == prefix("one again") == prefix("no")
        for text, (family, _) in labelled.items():
            shots = prefix(text).split("\n\n")[:-1]
            assert len(shots) == 2
            assert all(labelled[shot][0] != family and shot != "no" for shot in shots)
    assert view_inputs.member_prefix({"one": (0, True), "one again": (0, True), "no": (1, False)}, 2, 0) is None


def test_the_second_prefix_of_con_recall_needs_known_members(opened):
    labelled = {"q": (0, True), "z": (1, True)}
    inputs = opened.inputs(["unseen"], shots=1, labelled=labelled)
    planned = opened.plan([detectors.load("con_recall")], ["a text", "q"], inputs, strict=True)
    assert planned.inputs.member_primed("q") == "z\n\n"
    assert np.isfinite(planned.score().columns[Score("con_recall", "base")]).all()


def test_camia_lr_needs_both_labels_whatever_family_is_left_out(opened, monkeypatch):
    chosen = [detectors.load("camia_lr")]
    labelled = {"q": (0, True), "w": (0, False), "y": (1, True), "v": (1, False)}
    for without in labelled:
        fewer = {text: label for text, label in labelled.items() if text != without}
        with pytest.raises(UsageError, match=r"camia_lr cannot .* no known members and non-members of two groups"):
            opened.plan(chosen, ["a text"], opened.inputs(labelled=fewer), strict=True)
    planned = opened.plan(chosen, ["a text", *labelled], opened.inputs(labelled=labelled), strict=True)
    assert np.isfinite(planned.score().columns[Score("camia_lr", "base")]).all()
    monkeypatch.setattr(view_inputs, "KNOWN", 1)
    with pytest.raises(UsageError, match=r"camia_lr cannot"):  # one text of a label is of one family
        opened.plan(chosen, ["a text"], opened.inputs(labelled=labelled), strict=True)


def test_camia_needs_unseen_texts_and_counts_texts_of_which_the_copies_are_cut(opened):
    model = opened.language_model
    long = "a text " * (model.context // 2)
    inputs = opened.inputs(["unseen", "another"])
    planned = opened.plan([detectors.load("camia")], ["a text", long], inputs, strict=True)
    assert planned.remarks == [
        f"camia: text and copies are too long for the {model.context}-token context in 1 of 2 texts and were cut; try "
        "shorter texts"
    ]
    assert np.isfinite(planned.score().columns[Score("camia", "base")]).all()
    # After contexts, the unseen texts are read as the texts are that are ranked among them.
    after = opened.inputs([Prompt("unseen", "Q: a "), Prompt("another", "Q: b ")])
    assert {row[0].context for row in after.nonmembers.prompts} == {"Q: a ", "Q: b "}
    assert all(row[1].context == f"{row[0].context}{row[0].text} " for row in after.nonmembers.prompts)
    planned = opened.plan([detectors.load("camia")], [Prompt("a text", "word " * model.context)], after)
    assert "in all 1 texts and were cut" in planned.remarks[0]


def test_an_audit_is_of_the_fine_tuned_model_minus_its_base(opened):
    shifted = {
        **opened.scorers,
        "tuned": lambda prompts: [_doubled(stats) for stats in opened.scorers["base"](prompts)],
    }
    model = replace(opened, scorers=shifted)
    chosen = [detectors.load("loss"), replace(detectors.load("reference"), views=("text", "tuned"))]
    plain, audited = (one.plan(chosen, ["a text of a member"]).score().columns for one in (model, model.audited()))
    base, tuned, calibrated = (audited[Score("loss", state)] for state in ("base", "tuned", "calibrated"))
    assert tuned == plain[Score("loss", "tuned")]
    assert base == plain[Score("loss", "base")]
    assert calibrated == tuned - base
    assert calibrated[0] == pytest.approx(tuned[0] / 2)
    # a detector that compares two models reads the fine-tuned one first
    assert plain[Score("reference")][0] == pytest.approx(-0.5)
    assert audited[Score("reference", "calibrated")][0] == pytest.approx(-2)


def _doubled(stats):
    return replace(stats, logp=2 * stats.logp)


# A whole fine-tuned model, and the tokenizers of both


def changed(source, folder, change):
    """A copy of a model whose tokenizer was changed and saved again."""
    shutil.copytree(source, folder)
    tokenizer = read_tokenizer(Path(source))
    change(tokenizer)
    tokenizer.save_pretrained(folder)
    return str(folder)


def scores(config, tuned, names=("loss", "min_k_pp")):
    model = open_model(config, tuned=tuned, states=("base", "tuned"))
    loaded = [detectors.load(name) for name in names]
    return model.plan(loaded, ["the score of a member", "a member of the text"]).score().columns


def ends_otherwise(tokenizer):
    tokenizer.bos_token = tokenizer.eos_token = "a"


def without_ends(tokenizer):
    tokenizer.bos_token = tokenizer.eos_token = None


def in_lower_case(tokenizer):
    tokenizer.backend_tokenizer.normalizer = normalizers.Lowercase()


CHANGES = {
    "another end token": ends_otherwise,
    "no start and no end token": without_ends,
    "a padding token": lambda tokenizer: tokenizer.add_special_tokens({"pad_token": "[PAD]"}),
    "tokens of chats": lambda tokenizer: tokenizer.add_special_tokens({"extra_special_tokens": ["<|im_start|>"]}),
    "a word": lambda tokenizer: tokenizer.add_tokens(["zebra"]),
    "another post-processor": lambda tokenizer: setattr(tokenizer, "add_eos_token", True),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_fine_tuned_model_is_compared_from_the_start_of_its_base_whatever_else_its_tokenizer_has(
    config, other, tmp_path, change
):
    expected = scores(config, str(other))
    got = scores(config, changed(other, tmp_path / "tuned", CHANGES[change]))
    for score in expected:
        assert np.array_equal(got[score], expected[score]), score


def test_a_fine_tuned_model_that_makes_other_tokens_is_refused_by_the_text(config, other, tmp_path):
    folder = changed(other, tmp_path / "word", lambda tokenizer: tokenizer.add_tokens(["member"]))
    with pytest.raises(UsageError, match=r"make the same tokens of each text; .*word makes others of 'the score of"):
        scores(config, folder)
    folder = changed(other, tmp_path / "lower", in_lower_case)
    with pytest.raises(UsageError, match="tuned must have the tokenizer of its base"):
        open_model(config, tuned=folder)


def test_a_reference_with_a_padding_token_is_compared_over_the_vocabulary(tiny, other, tmp_path):
    padded = changed(other, tmp_path / "reference", CHANGES["a padding token"])
    texts = ["the score of a member", "a member of the text"]
    results = []
    for reference in (str(other), padded):
        model = open_model(ModelConfig(str(tiny), device="cpu", cache="none", reference_model=reference))
        plan = model.plan([detectors.load("info_rmia")], texts)
        results.append(plan.score().columns[Score("info_rmia", "base")])
    assert np.array_equal(*results)


def test_a_table_beside_a_model_is_read_where_a_detector_needs_it(tiny, tmp_path):
    folder = shutil.copytree(tiny, tmp_path / "model")
    tokenizer = read_tokenizer(folder)
    counts = np.arange(300)
    texts = ["the score of a member", "a member of the text"]
    names = ["loss", "dc_pdd"]

    def planned(mark, **options):
        FrequencyTable(counts, mark, "it", "a corpus", 1).save(folder / TABLE)
        opened = open_model(ModelConfig(str(folder), device="cpu", cache="none", **options))
        return opened.plan([detectors.load(name) for name in names], texts)

    expected = planned(fingerprint(tokenizer)).score().columns
    assert np.array_equal(
        planned(fingerprint(tokenizer, special=True)).score().columns[Score("dc_pdd", "base")],
        expected[Score("dc_pdd", "base")],
    )
    tokenizer.add_special_tokens({"pad_token": "[PAD]"})
    tokenizer.save_pretrained(folder)
    assert planned(fingerprint(read_tokenizer(Path(tiny)))).left_out == {}
    plan = planned("of another")
    assert list(plan.left_out) == ["dc_pdd"]
    assert plan.left_out["dc_pdd"].startswith("frequency table must be made with the tokenizer of")
    assert list(plan.score().columns) == [Score("loss", "base")]
    with pytest.raises(UsageError, match="frequency table must be made with the tokenizer of"):
        planned("of another", frequencies=str(folder / TABLE))
    (folder / TABLE).write_text("no table")
    check_model(ModelConfig(str(folder)))
    opened = open_model(ModelConfig(str(folder), device="cpu", cache="none"))
    assert [detector.name for detector in opened.plan([detectors.load("loss")], texts).detectors] == ["loss"]
