"""The texts of a cell, and the tag by which a finished one is found."""

import json
import shutil
from itertools import pairwise
from pathlib import Path

import pandas as pd
import pytest
import torch

from extensions.study import catalogue
from extensions.study.__main__ import prepare
from extensions.study.catalogue import DetectorSpec, Study
from extensions.study.cells import (
    _identity,
    _rates_below,
    below_the_bounds,
    best_of_grids,
    check_settings,
    load,
    prepare_cell,
    split_texts,
    with_counted_table,
)
from extensions.study.grid import StudyConfig, plan
from fsd.config import AdapterConfig, DataConfig
from fsd.data.documents import Document
from fsd.errors import UsageError
from fsd.statistics import metrics
from fsd.token_stats import Chat, Turn
from pipelines.experiment import experiment

TRAINING = AdapterConfig(epochs=2, batch_size=2)


@pytest.fixture
def key(tiny, texts):
    def key(name="fsd-t6", at=2, model=tiny, data=texts, **more):
        config = StudyConfig(model=(str(model),), data=(data,), **more)
        study = catalogue.studies()[name]
        return prepare_cell(plan(name, study, config)[at], study).tag

    return key


def test_a_table_of_the_manual_of_a_package_passes_the_check():
    study = catalogue.studies()["dcpdd-t4"]
    planned = plan("dcpdd-t4", study, StudyConfig())
    assert [cell.config.model.frequencies for cell in planned][1:] == ["docstrings:matplotlib", "docstrings:pandas"]
    check_settings(map(with_counted_table, planned), study)


def test_the_tag_covers_what_moves_the_numbers_and_nothing_else(key, other, tmp_path, texts, monkeypatch):
    same = tmp_path / "elsewhere.jsonl"
    shutil.copy(texts, same)
    assert key() == key() == key(data=str(same)) == key(domain="wikipedia") == key(device="cpu", dtype="float32")
    for base_scores in ("surp-t3", "dcpdd-fig2"):  # do not depend on the training
        assert key(base_scores, at=0) == key(base_scores, at=0, training=TRAINING)
    changed = tmp_path / "changed.jsonl"
    changed.write_text(same.read_text().replace("a0", "b0"))
    keys = [
        key(),
        key(at=1),
        key(model=other),
        key(seed=1),
        key(first_token="given"),
        key(data=str(changed)),
        key(training=TRAINING),
    ]
    keys += [key(dtype="bfloat16"), key(bits=8)]
    for package in experiment.PACKAGES:
        monkeypatch.setattr(experiment, "version", lambda name, changed=package: "2" if name == changed else "1")
        keys.append(key())
    assert len(set(keys)) == len(keys)
    monkeypatch.setattr("fsd.models.devices.torch_device", lambda _: torch.device("cuda"))
    monkeypatch.setattr("fsd.models.devices.computes_bfloat16", lambda _: True)
    assert key() == key(dtype="bfloat16") not in (key(dtype="float32"), keys[-1])  # the resolved precision


def test_texts_that_are_read_otherwise_are_other_cells():
    turns = (Turn("user", "a question"), Turn("assistant", "an answer"))
    documents = [
        Document("an answer"),
        Document("an answer", context="a question"),
        Document("an answer", chat=Chat(turns, given=1)),
        Document("an answer", chat=Chat(turns, given=1, tools='[{"name": "f"}]')),
    ]
    identities = {_identity(document) for document in documents}
    assert len(identities) == len(documents)


def test_of_a_grid_only_the_best_on_the_test_texts_is_kept():
    columns = {"split": ["test"] * 4 + ["validation"], "label": [1, 1, 0, 0, 0], "loss.base": [0.0] * 5}
    scores = pd.DataFrame({**columns, "a.base": [1, 0, 1, 0, 0], "b.base": [2, 1, 1, 0, 9], "c.base": [0, 0, 1, 1, 0]})
    grid = tuple(map(DetectorSpec, "abc"))
    none = DetectorSpec("none", grid=(DetectorSpec("d"),))  # none of which can be computed
    kept, names = best_of_grids(scores, Study("", "", (DetectorSpec("loss"), DetectorSpec("a", grid=grid), none)))
    assert names == {"loss": "loss", "b": "a best of grid"}
    assert list(kept) == ["split", "label", "loss.base", "a best of grid.base"]
    assert kept["a best of grid.base"].tolist() == [2, 1, 1, 0, 9]


def embedded(part=""):
    return load(DataConfig(data=(f"embedded{part}",)), Path()).documents


def test_fields_and_dates_of_the_embedded_corpus():
    everything = embedded()
    assert len(everything) == 420
    assert 0 < len(embedded(":math")) < len(embedded(":math,stat")) < 420
    dated = embedded(":dated")
    assert dated[0].text == f"{everything[0].date:%d %B %Y}. {everything[0].text}"
    shown = {side: {d.text[:40].partition(". ")[0][-4:] for d in dated if d.member is side} for side in (True, False)}
    assert shown == {True: {"2023", "2024", "2025"}, False: {"2025", "2026", "2027"}}
    with pytest.raises(UsageError, match=r"fields must be out of astro-ph, .*; got 'alchemy'"):
        embedded(":alchemy")
    with pytest.raises(UsageError, match="a study must have texts"):
        load(DataConfig(), Path())


def parts_of(name, trained=True, **given):
    cells = plan(name, catalogue.studies()[name], StudyConfig(**given))
    return [split_texts(cell, trained=trained)[0] for cell in cells]


def test_all_columns_of_a_study_are_tested_on_the_same_texts():
    for name in ("fsd-t4", "fsd-fig4", "fsd-t16"):
        assert len({parts.test for parts in parts_of(name)}) == 1, name


def test_the_papers_split_is_an_option():
    for parts in parts_of("fsd-t6", split="paper"):
        assert parts.validation == ()
        assert len(parts.test) == 420 - round(0.3 * 420)  # 30 % of all rows, whose members are dropped
        assert not any(d.member for d in parts.unseen)


def test_unseen_texts():
    members, everything, others = (parts.unseen for parts in parts_of("fsd-t4"))
    assert all(d.member for d in members)
    assert not any(d.member for d in others)
    assert set(members) | set(others) == set(everything)
    own, both, other, second = (set(parts.unseen) for parts in parts_of("fsd-t15")[:4])
    assert own | other == both
    assert not own & other
    assert other <= second
    sizes = [set(parts.unseen) for parts in parts_of("fsd-fig4")]
    assert [len(size) for size in sizes] == [0, 10, 20, 40, 60]
    assert all(few < more for few, more in pairwise(sizes))


def test_timestamps_and_lengths():
    first = embedded()[0]
    tested = [parts.test for parts in parts_of("fsd-t5", trained=False)]
    kept, deleted, replaced = (documents[0].text[:20] for documents in tested)
    assert (kept.partition(".")[0], replaced.partition(".")[0]) == (
        f"{first.date:%d %B %Y}",
        f"{first.date:%d %B} 2023",
    )
    assert f"{first.date:%B}" not in deleted
    assert ["2023" in documents[-1].text for documents in tested] == [False, False, True]
    for cell in plan("surp-t1", catalogue.studies()["surp-t1"], StudyConfig()):
        assert {len(d.text.split()) for d in split_texts(cell, trained=False)[0].test} == {cell.texts.words}
    head, middle, tail = ([d.text for d in parts.test] for parts in parts_of("surp-t2", trained=False)[:3])
    words = first.text.split()
    count = len(words) // 32
    assert first.text.startswith(head[0])
    assert middle[0].split() == words[count // 2 * 32 :][:32]
    assert tail[1].split() == words[(count - 1) * 32 :][:32]
    assert len(tail) == 2 * len(head)  # the last two segments


def test_too_few_unseen_texts_are_refused(texts):
    with pytest.raises(UsageError, match="must have more than 60 non-members to fine-tune on"):
        parts_of("fsd-fig4", data=(texts,))


def test_a_length_without_rows_and_one_without_a_class_are_refused(tmp_path):
    file = tmp_path / "texts.jsonl"
    rows = [{"text": " ".join(f"{label}-{n}" for n in range(24 if label else 9)), "label": label} for label in (0, 1)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(
        UsageError, match=r"at least 16 words must be of both classes; .*texts.jsonl has 1 members and 0"
    ):
        parts_of("surp-t1", trained=False, data=(str(file),))
    with pytest.raises(UsageError, match=r"both classes; .* 0 non-members, and its longest text 24 words"):
        parts_of("surp-t1", trained=False, data=(str(file),))


@pytest.mark.parametrize(
    ("name", "words", "message"),
    [
        ("surp-t2", 1024, r"whole works, not segments of 1,024 words; half of texts\.jsonl have 1,024 to"),
        ("surp-fig4", 1024, r"whole works, not segments of 1,024 words"),
        ("surp-books512", 900, r"whole works, not segments of 512 words; half of texts\.jsonl have 900 to"),
        ("fsd-t3", 6000, r"passages, not whole works; half of texts\.jsonl have 6,000 to 6,000 words"),
    ],
)
def test_segments_are_no_works_and_works_no_passages(name, words, message, tiny, tmp_path, monkeypatch):
    """Of a segment, head, middle and tail would be the same; it is refused in a dry run, before any model is opened."""
    monkeypatch.chdir(tmp_path)
    rows = [{"text": " ".join(f"{n}-{m}" for m in range(words)), "label": n % 2} for n in range(8)]
    (tmp_path / "texts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(UsageError, match=message):
        prepare(StudyConfig(name, scale="full", model=(str(tiny),), data=("texts.jsonl",)))


def test_the_papers_numbers_of_texts():
    for parts in parts_of("fsd-fig2", split="paper"):
        assert [len(part) for part in parts] == [40, 0, 200]
        assert parts.test.members.sum() == 100
    with pytest.raises(UsageError, match="must leave 630 members and 630 non-members"):
        parts_of("fsd-fig2", split="paper", scale="full", model=("embedded",))
    parts = parts_of("fsd-t3", split="paper")[0]
    assert (len(parts.validation), parts.validation.members.sum()) == (40, 20)


def test_true_positive_rates_below_the_bound_leave_out_a_rate_of_exactly_the_bound():
    falling = list(range(40, 0, -1))
    labels = [1, 0, 1, 1] + [1] * 17 + [0] * 19  # 20 non-members, of which one scores higher than 20 members
    scores = pd.DataFrame({"split": "test", "label": labels, "loss.base": falling})
    below = _rates_below(scores)
    assert metrics.METRICS["tpr_at_5fpr"].of(scores["label"], scores["loss.base"]) == 1
    assert below["tpr_at_5fpr_below/loss.base"] == pytest.approx(1 / 20)
    assert below["tpr_at_10fpr_below/loss.base"] == 1
    study = below_the_bounds(catalogue.studies()["fsd-t6"])
    assert study.metrics == ("auc", "tpr_at_5fpr_below")
