import json
import math

import pytest

from fsd import tracking
from fsd.errors import StorageError, UsageError

CHAMPION = "models:/fsd-arxiv@champion"


def test_the_champion_is_the_newest_version_with_the_highest_score(here, register, adapter, code):
    champions = []
    for seed, score in enumerate((math.nan, 0.7, 0.6, 0.7, math.nan)):
        version = register(adapter, code, score, seed=seed)
        champions.append(tracking.version_info(CHAMPION).number)
        assert ("champion" in version.aliases) == (champions[-1] == version.number)
    assert champions == [1, 2, 2, 4, 4]


def test_a_version_judged_on_something_else_does_not_become_champion(full, register, adapter, code):
    for tag in ("benchmark", "base_fingerprint", "judging"):
        version = register(adapter, code, 0.99, digests={tag: "another" if tag == "judging" else ""})
        assert version.aliases == ()
        assert f"stays version 1: version {version.number} differs in {tag}," in version.champion_stays
        assert "\n" not in version.champion_stays


def test_an_alias_is_refused_where_versions_have_several_bases(full, register, adapter, code):
    tracking.check_one_base(CHAMPION)
    register(adapter, code, 0.9, digests={"base_fingerprint": "another"}, base_model="./my-model")
    tracking.check_one_base("models:/fsd-arxiv/2")
    with pytest.raises(UsageError, match=r"it is models:/fsd-arxiv/1, .* models:/fsd-arxiv/2 is of ./my-model: name"):
        tracking.check_one_base(CHAMPION)


def test_versions_judged_on_unknown_texts_are_not_compared(here, register, adapter, code):
    first, second = (register(adapter, code, score, digests={"benchmark": ""}, seed=score) for score in (0.5, 0.9))
    assert first.aliases == ("champion",)
    assert second.aliases == ()
    assert "version 2 differs in benchmark," in second.champion_stays


def test_a_barred_version_is_registered_but_never_champion(here, register, adapter, code):
    first = register(adapter, code, 0.99, barred="a blind classifier explains it")
    assert first.champion_stays == "fsd-arxiv has no champion, not version 1: a blind classifier explains it"
    assert tracking.version_info("models:/fsd-arxiv/1").aliases == ()
    assert register(adapter, code, 0.7).aliases == ("champion",)
    third = register(adapter, code, 0.99, barred="a blind classifier explains it", seed=1)
    assert "stays version 2, not version 3" in third.champion_stays
    assert tracking.version_info(CHAMPION).number == 2


@pytest.mark.parametrize("in_study", [True, False])
def test_of_equal_versions_there_is_one(here, register, adapter, code, in_study):
    """Two processes that finish one study train adapters that may differ; `once` makes them equal."""
    first, second, third = (
        register(adapter, code, score, once=name if in_study else "", seed=name)
        for name, score in (("a", 0.7), ("a", 0.6 if in_study else 0.7), ("b", 0.7))
    )
    assert (first.number, second.number, third.number) == (1, 1, 2)
    assert (first.present, second.present) == (False, True)
    assert second == first
    assert second.aliases == ("champion",)
    assert len(tracking.open_store().client.search_logged_models(["1"])) == 2


def test_the_page_of_the_model_has_its_versions_name_description_and_metrics(full):
    (model,) = tracking.open_store().client.search_logged_models(["1"])
    assert model.name == "fsd-arxiv"
    assert json.loads(model.tags["mlflow.modelVersions"]) == [{"name": "fsd-arxiv", "version": "1"}]
    assert model.tags["mlflow.note.content"] == "Yes."
    assert [(one.key, one.value) for one in model.metrics] == [("auc/loss.fsd", 0.7)]


def test_a_version_has_the_code_of_this_package(full):
    folder = tracking.fetch_adapter("models:/fsd-arxiv/1").parents[1]
    assert (folder / "artifacts" / "adapter" / "README.md").read_text() == "# The card"
    assert (folder / "code" / "pipelines" / "fsd.py").is_file()
    assert (folder / "code" / "extensions" / "chats" / "rows.py").is_file()
    (points,) = folder.glob("code/fsd-*.dist-info/entry_points.txt")
    assert "chats = extensions.chats:PLUG" in points.read_text()
    assert "\nName: fsd\n" in points.with_name("METADATA").read_text()
    assert not list(folder.glob("code/**/*.safetensors"))
    names = {line.partition("==")[0] for line in (folder / "requirements.txt").read_text().split()}
    assert {"mlflow", "torch", "tyro", "scikit-learn"} <= names
    assert not {"fsd", "pytest"} & names


def test_a_version_has_its_tags_and_run(full, register, adapter, code):
    version = register(adapter, code, 0.8, method="lora", cutoff="2024-01-01")
    assert version.uri == "models:/fsd-arxiv/2"
    compared = '{"benchmark": "texts", "base_fingerprint": "base", "judging": "grouped"}'
    expected = {"judged_on": "18 texts", "judged_on_digests": compared, "method": "lora"}
    expected |= {"cutoff": "2024-01-01", "validation_score": "0.8"}
    assert version.tags == expected
    for uri in (CHAMPION, "models:/fsd-arxiv/2", "models:/fsd-arxiv/latest"):
        assert tracking.version_info(uri) == version
    assert tracking.version_info(f"runs:/{version.run_id}/adapter") is None


def test_an_incomplete_model_is_not_registered(here, register, adapter, tmp_path):
    (tmp_path / "broken.py").write_text("raise RuntimeError('broken')")
    with pytest.raises(StorageError, match="broken"):
        register(adapter, tmp_path / "broken.py", 0.5)
    assert list(tracking.open_store().client.search_registered_models()) == []
