from itertools import pairwise

import pytest

from fsd.errors import UsageError
from pipelines.study import catalogue
from pipelines.study.grid import StudyConfig, plan
from pipelines.study.texts import load, split_texts


def test_fields_and_dates_of_the_embedded_corpus():
    everything = load(("embedded",)).documents
    assert len(everything) == 420
    assert 0 < len(load(("embedded:math",)).documents) < len(load(("embedded:math,stat",)).documents) < 420
    dated = load(("embedded:dated",)).documents
    assert dated[0].text == f"{everything[0].date:%d %B %Y}. {everything[0].text}"
    shown = {side: {d.text[:40].partition(". ")[0][-4:] for d in dated if d.member is side} for side in (True, False)}
    assert shown == {True: {"2023", "2024", "2025"}, False: {"2025", "2026", "2027"}}
    with pytest.raises(UsageError, match=r"fields must be out of astro-ph, .*; got 'alchemy'"):
        load(("embedded:alchemy",))
    with pytest.raises(UsageError, match="a study must have texts"):
        load(())


def plan_small(name):
    return plan(name, catalogue.studies()[name], StudyConfig())


def test_all_columns_of_a_study_are_tested_on_the_same_texts():
    for name in ("fsd-t4", "fsd-fig4", "fsd-t16"):
        tested = {split_texts(cell, trained=True).test for cell in plan_small(name)}
        assert len(tested) == 1, name


def test_the_papers_split_is_an_option():
    config = StudyConfig(split="paper")
    for cell in plan("fsd-t6", catalogue.studies()["fsd-t6"], config):
        parts = split_texts(cell, trained=True)
        assert parts.validation == ()
        assert len(parts.test) == 420 - round(0.3 * 420)  # 30 % of all rows, whose members are dropped
        assert not any(d.member for d in parts.unseen)


def test_unseen_texts():
    members, everything, others = (split_texts(cell, trained=True).unseen for cell in plan_small("fsd-t4"))
    assert all(d.member for d in members)
    assert not any(d.member for d in others)
    assert set(members) | set(others) == set(everything)
    first, second = plan_small("fsd-t15")[:3], plan_small("fsd-t15")[3:]
    own, both, other = (set(split_texts(cell, trained=True).unseen) for cell in first)
    assert own | other == both
    assert not own & other
    assert other <= set(split_texts(second[0], trained=True).unseen)
    sizes = [set(split_texts(cell, trained=True).unseen) for cell in plan_small("fsd-fig4")]
    assert [len(size) for size in sizes] == [0, 10, 20, 40, 60]
    assert all(few < more for few, more in pairwise(sizes))


def test_timestamps_and_lengths():
    kept, deleted, replaced = (split_texts(cell, trained=False).test[0].text[:20] for cell in plan_small("fsd-t5"))
    day = load(("embedded",)).documents[0].date
    assert (kept.partition(".")[0], replaced.partition(".")[0]) == (f"{day:%d %B %Y}", f"{day:%d %B} 2023")
    assert f"{day:%B}" not in deleted
    last = [split_texts(cell, trained=False).test[-1].text for cell in plan_small("fsd-t5")]
    assert "2023" in last[2]
    assert "2023" not in last[0]
    for cell in plan_small("surp-t1"):
        assert {len(d.text.split()) for d in split_texts(cell, trained=False).test} == {cell.texts.words}
    head, middle, tail = (split_texts(cell, trained=False).test[0].text for cell in plan_small("surp-t2")[:3])
    whole = load(("embedded",)).documents[0].text
    assert whole.startswith(head)
    assert whole.endswith(tail)
    assert middle in whole
    assert head != middle != tail


def test_too_few_unseen_texts_are_refused(tmp_path):
    file = tmp_path / "few.jsonl"
    words = [" ".join(f"{chr(97 + k)}{n}" for k in range(9)) for n in range(40)]
    file.write_text("".join(f'{{"text": "{text}", "label": {n % 2}}}\n' for n, text in enumerate(words)))
    cells = plan("fsd-fig4", catalogue.studies()["fsd-fig4"], StudyConfig(data=(str(file),)))
    with pytest.raises(UsageError, match=r"unseen texts must be at least 10; .* holds 6: give more texts by --data"):
        split_texts(cells[1], trained=True)
