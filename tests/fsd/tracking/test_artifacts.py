import errno
import hashlib
import os
import shutil
from pathlib import Path

import pytest

from fsd import tracking
from fsd.errors import UsageError
from fsd.leftovers import own_temporary_files


def test_an_adapter_is_fetched_as_a_copy_with_its_files(full, adapter, tmp_path):
    version = tracking.version_info("models:/fsd-arxiv/1")
    for form in ("models:/fsd-arxiv@champion", "models:/fsd-arxiv/1", "runs:/{}", "runs:/{}/adapter"):
        uri = form.format(version.run_id)
        folder = tracking.fetch_adapter(uri)
        assert {p.name for p in folder.iterdir()} == {"adapter_config.json", "adapter_model.safetensors", "README.md"}
        assert not folder.is_relative_to(full)
        assert tracking.fetch_model_file(uri, "calibration.json").read_text() == "0.5"
        assert tracking.fetch_model_file(uri, "reference.json") is None
    (tmp_path / "calibration.json").write_text("beside")
    assert tracking.fetch_model_file(str(adapter), "calibration.json").read_text() == "beside"


def test_a_second_command_fetches_what_was_deleted_with_the_first(full):
    for _ in range(2):
        with own_temporary_files():
            assert tracking.fetch_adapter("models:/fsd-arxiv/1").is_dir()


def test_files_that_the_store_cannot_give_are_one_line_with_the_cause(full, monkeypatch):
    def broken(*_, **__):
        raise OSError(errno.EIO, os.strerror(errno.EIO), "README.md")

    monkeypatch.setattr(shutil, "copy2", broken)  # by which MLflow fetches them
    with pytest.raises(UsageError, match=r"^files of models:/fsd-arxiv/1 must be where .*; .*Input/output error"):
        tracking.fetch_adapter("models:/fsd-arxiv/1")


def test_a_file_that_differs_from_its_checksum_is_refused(here, register, adapter, code, tmp_path):
    (adapter / "SHA256SUMS").write_text(f"{'0' * 64}  adapter_config.json\n")
    version = register(adapter, code, 0.7)
    for uri in (version.uri, f"runs:/{version.run_id}"):
        sums = (tracking.fetch_adapter(uri) / "SHA256SUMS").read_text()
        assert sums.splitlines()[1] == f"{hashlib.sha256(b'0.5').hexdigest()}  ../calibration.json"
    assert tracking.fetch_model_file(version.uri, "calibration.json").read_text() == "0.5"
    folder = shutil.copytree(tracking.fetch_adapter(version.uri).parent, tmp_path / "copy")
    (folder / "calibration.json").write_text("0.6")
    for uri in (folder, folder / "adapter"):
        with pytest.raises(UsageError, match=r"calibration\.json must be as it was saved with its adapter; it differs"):
            tracking.fetch_model_file(str(uri), "calibration.json")


def test_a_local_folder_needs_no_store(here, adapter):
    shutil.copytree(adapter, here / "model" / "adapter")
    assert tracking.fetch_adapter(str(adapter)) == adapter
    assert tracking.fetch_adapter("model") == Path("model/adapter")
    assert tracking.version_info("model") is None
    assert not (here / "mlruns").exists()


WRONG = [
    ("models:/fsd-none@champion", r"must name a registered model; there are fsd-arxiv @champion \(1\); "),
    ("models:/fsd:none/1", r"must name a registered model; there are fsd-arxiv @champion \(1\); "),
    ("models:/fsd-arxiv@best", r"there are fsd-arxiv @champion \(1\); .*not found"),
    ("models:/fsd-arxiv/7", r"there are fsd-arxiv @champion \(1\); .*not found"),
    ("runs:/0123", "'0123' is none"),
    ("runs:/{bare}", "must hold 'adapter'; it holds roc.png$"),
    (".", "must hold adapter_config.json; . holds mlruns; .*--tuned"),
]


def test_a_wrong_address_lists_what_exists(full):
    with tracking.run("fsd-x", "a") as run:
        run.log("roc.png", b"")
    for uri, message in WRONG:
        with pytest.raises(UsageError, match=message) as caught:
            tracking.fetch_adapter(uri.format(bare=run.id))
        assert "\n" not in str(caught.value)


def test_the_folder_of_a_trainer_is_an_adapter_or_names_its_checkpoints(here, adapter):
    out = Path("out")
    shutil.copytree(adapter, out / "checkpoint-5")
    assert tracking.fetch_adapter("out") == out / "checkpoint-5"
    shutil.copytree(adapter, out / "checkpoint-10")
    with pytest.raises(UsageError, match=r"several, name one: out/checkpoint-10, out/checkpoint-5; "):
        tracking.fetch_adapter("out")
    shutil.copytree(adapter, out, dirs_exist_ok=True)
    assert tracking.fetch_adapter("out") == out


FETCH = """
import json, os, sys

os.environ["HF_HUB_OFFLINE"], *names = json.loads(sys.argv[1])
from fsd import tracking
from fsd.errors import UsageError

for name in names:
    try:
        print(json.dumps(sorted(path.name for path in tracking.fetch_adapter(name).iterdir())))
    except UsageError as error:
        print(json.dumps(str(error)))
"""


def test_an_adapter_of_the_hub_is_downloaded_and_kept(serve, in_fresh_process, adapter):
    own = {path.name: path.read_bytes() for path in adapter.iterdir()}
    url, _ = serve({"some/adapter": own | dict.fromkeys(["optimizer.pt", "checkpoint-5/adapter_config.json"], b"x")})
    names = ["some/adapter", "some/adapter@v1"]
    online = in_fresh_process(FETCH, url, ["0", *names, "no/adapter"])
    assert online[:2] == [["adapter_config.json", "adapter_model.safetensors"]] * 2
    assert online[2].startswith(
        "adapter must be a folder or on the hub, and open to you; there is no folder no/adapter"
    )
    assert "\n" not in online[2]
    assert in_fresh_process(FETCH, url, ["1", "some/adapter"]) == online[:1]
