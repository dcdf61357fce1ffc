import math

import pytest

from fsd import tracking
from fsd.errors import StorageError

CHAMPION = "models:/fsd-arxiv@champion"


def test_the_champion_is_the_newest_version_with_the_highest_score(here, register, adapter, code):
    champions = []
    for score in (math.nan, 0.7, 0.6, 0.7):
        version = register(adapter, code, score)
        champions.append(tracking.version_info(CHAMPION).number)
        assert ("champion" in version.aliases) == (champions[-1] == version.number)
    assert champions == [1, 2, 2, 4]


def test_a_version_judged_on_something_else_does_not_become_champion(full, register, adapter, code):
    for tag in ("benchmark", "base_fingerprint", "judging"):
        version = register(adapter, code, 0.99, **{tag: "another" if tag == "judging" else ""})
        assert version.aliases == ()
        assert f"stays version 1: version {version.number} differs in {tag}," in version.champion_stays
        assert "\n" not in version.champion_stays


def test_a_barred_version_is_registered_but_never_champion(here, register, adapter, code):
    first = register(adapter, code, 0.99, barred="a blind classifier explains it")
    assert first.champion_stays == "fsd-arxiv has no champion, not version 1: a blind classifier explains it"
    assert tracking.version_info("models:/fsd-arxiv/1").aliases == ()
    assert register(adapter, code, 0.7).aliases == ("champion",)
    third = register(adapter, code, 0.99, barred="a blind classifier explains it")
    assert "stays version 2, not version 3" in third.champion_stays
    assert tracking.version_info(CHAMPION).number == 2


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
    compared = {"benchmark": "texts", "base_fingerprint": "base", "judging": "grouped"}
    assert version.tags == {**compared, "method": "lora", "cutoff": "2024-01-01", "validation_score": "0.8"}
    for uri in (CHAMPION, "models:/fsd-arxiv/2", "models:/fsd-arxiv/latest"):
        assert tracking.version_info(uri) == version
    assert tracking.version_info(f"runs:/{version.run_id}/adapter") is None


def test_an_incomplete_model_is_not_registered(here, register, adapter, tmp_path):
    (tmp_path / "broken.py").write_text("raise RuntimeError('broken')")
    with pytest.raises(StorageError, match="broken"):
        register(adapter, tmp_path / "broken.py", 0.5)
    assert list(tracking.open_store().client.search_registered_models()) == []
