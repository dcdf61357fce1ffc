import json
import math

import pytest

from fsd import tracking
from fsd.errors import StorageError, UsageError
from fsd.tracking.registry import DIGESTS, SCORE, move_champion
from tests.fsd.tracking.conftest import COMPARABLE

CHAMPION = "models:/fsd-arxiv@champion"


@pytest.fixture
def judged(here):
    """`judged(score, barred=, base_model=, **digests)` makes a version without files; why it is no champion, or ""."""
    store = tracking.open_store()
    store.client.create_registered_model("fsd-arxiv")

    def make(score, barred="", base_model="", **digests):
        tags = {SCORE: repr(score), DIGESTS: json.dumps(COMPARABLE | digests), "base_model": base_model}
        number = int(store.client.create_model_version("fsd-arxiv", "nowhere", tags=tags).version)
        return move_champion(store, "fsd-arxiv", number, tags, barred)

    return make


def champion():
    return tracking.version_info(CHAMPION).number


def test_the_champion_is_the_newest_version_with_the_highest_score(judged):
    champions = []
    for score in (math.nan, 0.7, 0.6, 0.7, math.nan):
        stays = judged(score)
        champions.append(champion())
        assert (not stays) == (champions[-1] == len(champions))
    assert champions == [1, 2, 2, 4, 4]


@pytest.mark.parametrize("tag", ["benchmark", "base_fingerprint", "judging"])
def test_a_version_judged_on_something_else_or_unknown_does_not_become_champion(judged, tag):
    judged(0.7)
    for number, other in ((2, "another"), (3, "")):
        stays = judged(0.99, **{tag: other})
        assert f"stays version 1: version {number} differs in {tag}," in stays
        assert "\n" not in stays


def test_versions_of_which_neither_tells_the_texts_are_not_compared(judged):
    assert judged(0.5, benchmark="") == ""
    assert "version 2 differs in benchmark," in judged(0.9, benchmark="")


def test_an_alias_is_refused_where_versions_have_several_bases(judged):
    judged(0.7, base_model="embedded")
    tracking.check_one_base(CHAMPION)
    judged(0.9, base_fingerprint="another", base_model="./my-model")
    tracking.check_one_base("models:/fsd-arxiv/2")
    with pytest.raises(UsageError, match=r"it is models:/fsd-arxiv/1, .* models:/fsd-arxiv/2 is of ./my-model: name"):
        tracking.check_one_base(CHAMPION)


def test_a_barred_version_is_never_champion(judged):
    barred = "a blind classifier explains it"
    assert judged(0.99, barred) == f"fsd-arxiv has no champion, not version 1: {barred}"
    assert judged(0.7) == ""
    assert "stays version 2, not version 3" in judged(0.99, barred)
    assert champion() == 2


def test_of_equal_versions_there_is_one(full, register, adapter, code):
    first, again, other = (register(adapter, code, 0.7, method=method) for method in ("lora", "lora", "ia3"))
    assert (first, first.number, other.number) == (again, 1, 2)
    assert (first.present, other.present) == (True, False)
    assert (first.aliases, other.aliases) == (("champion",), ("champion",))
    assert len(tracking.open_store().client.search_logged_models(["1"])) == 2


def test_a_barred_version_is_registered_with_the_reason(here, register, adapter, code):
    version = register(adapter, code, 0.99, barred="a blind classifier explains it")
    assert (version.number, version.aliases) == (1, ())
    assert version.champion_stays == "fsd-arxiv has no champion, not version 1: a blind classifier explains it"


def test_a_study_that_is_finished_twice_registers_one_version(here, register, adapter, code):
    """Two processes that finish one study train adapters that may differ; `once` makes them equal."""
    first, second = (register(adapter, code, score, once="study") for score in (0.7, 0.6))
    assert first == second
    assert (first.present, second.present) == (False, True)


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
    expected = {"judged_on_digests": compared, "method": "lora"}
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
