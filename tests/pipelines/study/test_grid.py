from itertools import pairwise

import pytest

from fsd.errors import UsageError
from pipelines.study import spec as studies
from pipelines.study.grid import Request, plan
from pipelines.study.spec import Axis, Study, of_data, of_models, plain
from pipelines.study.texts import documents, prepare

RATES = Axis("rate", {"low": {"training.learning_rate": 1e-4}, "high": {"training.learning_rate": 1e-3}})
RANKS = Axis("rank", {"8": {"training.rank": 8}, "16": {"training.rank": 16}}, {"16": {"training.rank": 16}})
GIVEN = Request(model=("a/model",), data=("texts.jsonl",), scale="full")


def study(*axes, **more):
    return Study(place="A, Table 1", title="?", detectors=plain("loss"), axes=axes, **more)


def test_all_combinations():
    cells = plan("s", study(RATES, RANKS), GIVEN)
    assert [tuple(cell.place.values()) for cell in cells] == [
        ("low", "8"),
        ("low", "16"),
        ("high", "8"),
        ("high", "16"),
    ]
    assert (cells[0].config.training.learning_rate, cells[0].config.training.rank) == (1e-4, 8)


def test_one_axis_at_a_time_leaves_the_others_at_their_defaults():
    cells = plan("s", study(RATES, RANKS, apart=True), GIVEN)
    assert [cell.place["setting"] for cell in cells] == ["rate low", "rate high", "rank 8", "rank 16"]
    assert cells[0].config.training.rank == 16
    assert cells[1].config == cells[3].config


def test_the_small_form_takes_the_small_levels():
    assert len(plan("s", study(RATES, RANKS), Request())) == 2


def test_models_and_data_given_replace_the_papers():
    grid = study(of_data("wikimia"), of_models("x/y"))
    cells = plan("s", grid, Request(model=("a/b", "a/c"), data=("one.jsonl", "two.jsonl")))
    found = [(cell.config.data.data, cell.config.model.model) for cell in cells]
    assert found == [((d,), m) for d in ("one.jsonl", "two.jsonl") for m in ("a/b", "a/c")]


def test_files_are_one_benchmark_where_no_benchmarks_are_compared():
    (cell,) = plan("s", study(), Request(model=("a/b",), data=("one.jsonl", "two.jsonl")))
    assert cell.config.data.data == ("one.jsonl", "two.jsonl")


def test_another_model_reads_the_published_benchmark_unless_texts_are_given():
    (cell,) = plan("s", study(settings={"data.data": ("wikimia:64",)}), Request(model=("a/b",)))
    assert cell.config.data.data == ("wikimia:64",)


@pytest.mark.parametrize(
    ("name", "request_", "message"),
    [
        ("fsd-t6", Request(scale="full"), "must have a model: give --model ID"),
        ("fsd-t6", Request(model=("a", "b")), "must have one --model; got a, b"),
        ("fsd-t6", Request(other=("a",)), "other must be given only to a study with foreign texts"),
        ("fsd-t15", Request(model=("a",), data=("f",)), "give --other FILE"),
        ("dcpdd-t4", Request(model=("a",), data=("f",)), "give --frequencies FILE FILE"),
        ("dcpdd-t5", Request(frequencies=("a", "b")), "must have one --frequencies"),
    ],
)
def test_a_missing_flag_is_named(name, request_, message):
    with pytest.raises(UsageError, match=message) as error:
        plan(name, studies.read(name), request_)
    assert "\n" not in str(error.value)


def test_an_unknown_study_lists_those_that_there_are():
    with pytest.raises(UsageError, match=r"study must be one of dcpdd-fig2, .*surp-t3; got 'fsd-t99'"):
        studies.load("fsd-t99")


def test_fields_and_dates_of_the_embedded_corpus():
    everything = documents(("embedded",))
    assert len(everything) == 420
    assert 0 < len(documents(("embedded:math",))) < len(documents(("embedded:math,stat",))) < 420
    dated = documents(("embedded:dated",))
    assert dated[0].text == f"16 January 2023. {everything[0].text}"
    with pytest.raises(UsageError, match=r"fields must be out of astro-ph, .*; got 'alchemy'"):
        documents(("embedded:alchemy",))
    with pytest.raises(UsageError, match="a study must have texts"):
        documents(())


def cells_of(name):
    return plan(name, studies.read(name), Request())


def test_all_columns_of_a_study_are_tested_on_the_same_texts():
    for name in ("fsd-t4", "fsd-t15", "fsd-fig4", "fsd-t16"):
        tested = {prepare(cell, trained=True).test for cell in cells_of(name)}
        assert len(tested) == 1, name


def test_what_is_trained_on():
    members, everything, others = (prepare(cell, trained=True).unseen for cell in cells_of("fsd-t4"))
    assert all(d.member for d in members)
    assert not any(d.member for d in others)
    assert set(members) | set(others) == set(everything)
    own, half, foreign = (set(prepare(cell, trained=True).unseen) for cell in cells_of("fsd-t15"))
    assert len(own) == len(half) == len(foreign)
    assert (len(own & half), len(own & foreign)) == (pytest.approx(len(own) / 2, abs=1), 0)
    sizes = [set(prepare(cell, trained=True).unseen) for cell in cells_of("fsd-fig4")]
    assert [len(size) for size in sizes] == [0, 10, 20, 40, 60]
    assert all(few < more for few, more in pairwise(sizes))


def test_timestamps_and_lengths():
    kept, deleted, replaced = (prepare(cell, trained=False).test[0].text[:20] for cell in cells_of("fsd-t5"))
    assert (kept[:16], replaced[:16]) == ("16 January 2023.", "16 January 2023.")
    assert "January" not in deleted
    last = [prepare(cell, trained=False).test[-1].text for cell in cells_of("fsd-t5")]
    assert "2023" in last[2]
    assert "2023" not in last[0]
    for cell in cells_of("surp-t1"):
        assert {len(d.text.split()) for d in prepare(cell, trained=False).test} == {cell.texts.words}
    head, middle, tail = (prepare(cell, trained=False).test[0].text for cell in cells_of("surp-t2"))
    whole = documents(("embedded",))[0].text
    assert whole.startswith(head)
    assert whole.endswith(tail)
    assert middle in whole
    assert head != middle != tail


def test_too_few_unseen_texts_are_told_with_what_gives_more(tmp_path):
    file = tmp_path / "few.jsonl"
    words = [" ".join(f"{chr(97 + k)}{n}" for k in range(9)) for n in range(40)]
    file.write_text("".join(f'{{"text": "{text}", "label": {n % 2}}}\n' for n, text in enumerate(words)))
    cells = plan("fsd-fig4", studies.read("fsd-fig4"), Request(data=(str(file),)))
    with pytest.raises(UsageError, match=r"unseen texts must be at least 10; .* holds 6: give more texts by --data"):
        prepare(cells[1], trained=True)
