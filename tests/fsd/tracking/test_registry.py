import math

import pytest

from fsd import tracking
from fsd.errors import StorageError, UsageError


def champion():
    return tracking.version_info("models:/fsd-arxiv@champion").number


def test_the_champion_is_the_newest_version_with_the_highest_score(here, register, adapter, code):
    champions = []
    for score in (math.nan, 0.7, 0.6, 0.7):
        version = register(adapter, code, score)
        champions.append(champion())
        assert ("champion" in version.aliases) == (champions[-1] == version.number)
    assert champions == [1, 2, 2, 4]


@pytest.mark.parametrize("tag", ["benchmark", "base_fingerprint", "judging"])
def test_a_version_judged_on_something_else_does_not_become_champion(full, register, adapter, code, tag):
    version = register(adapter, code, 0.99, **{tag: "another" if tag == "judging" else ""})
    assert version.aliases == ()
    assert champion() == 1
    assert f"stays version 1: version {version.number} differs in {tag}," in version.champion_stays
    assert "\n" not in version.champion_stays


def test_a_champion_without_comparable_tags_keeps_the_alias(here, register, adapter, code):
    register(adapter, code, 0.6, benchmark="", base_fingerprint="", judging="")
    assert "differs in benchmark, base_fingerprint, judging" in register(adapter, code, 0.9).champion_stays
    assert champion() == 1


def test_a_barred_version_is_registered_but_never_champion(here, register, adapter, code):
    first = register(adapter, code, 0.99, barred="a blind classifier explains it")
    assert first.champion_stays == "fsd-arxiv has no champion, not version 1: a blind classifier explains it"
    assert tracking.version_info("models:/fsd-arxiv/1").aliases == ()
    assert register(adapter, code, 0.7).aliases == ("champion",)
    third = register(adapter, code, 0.99, barred="a blind classifier explains it")
    assert "stays version 2, not version 3" in third.champion_stays
    assert champion() == 2


def test_two_processes_that_finish_one_study_register_one_version(here, register, adapter, code):
    first, second, third = (
        register(adapter, code, 0.7, once=("study", "settings"), study="s", settings=settings)
        for settings in ("a", "a", "b")
    )
    assert (first.number, second.number, third.number) == (1, 1, 2)
    assert second == first
    assert second.aliases == ("champion",)


def test_a_version_has_its_tags_and_run(full, register, adapter, code):
    version = register(adapter, code, 0.8, method="lora", cutoff="2024-01-01")
    assert version.uri == "models:/fsd-arxiv/2"
    for uri in ("models:/fsd-arxiv@champion", "models:/fsd-arxiv/2", "models:/fsd-arxiv/latest"):
        assert tracking.version_info(uri) == version
        compared = {"benchmark": "texts", "base_fingerprint": "base", "judging": "grouped"}
        assert version.tags == {**compared, "method": "lora", "cutoff": "2024-01-01", "validation_score": "0.8"}
    assert tracking.version_info(f"runs:/{version.run_id}/adapter") is None


def test_an_incomplete_model_is_not_registered(here, adapter, code, tmp_path, monkeypatch):
    (tmp_path / "broken.py").write_text("raise RuntimeError('broken')")
    cases = [
        ({"name": "org/model"}, UsageError, "must be letters, digits"),
        ({"adapter": tmp_path}, UsageError, "must hold adapter_config.json"),
        ({"code": tmp_path / "none.py"}, UsageError, "code must be a file"),
        ({"files": {"calibration.json": tmp_path / "none.json"}}, UsageError, "must be a file to save"),
        ({"code": tmp_path / "broken.py"}, StorageError, "broken"),
    ]
    good = {"name": "fsd-x", "adapter": adapter, "code": code, "validation_score": 0.5}
    for wrong, error, message in cases:
        with pytest.raises(error, match=message), tracking.run("fsd-x", "a") as run:
            tracking.register(run, **(good | wrong))
    assert list(run.store.client.search_registered_models()) == []
