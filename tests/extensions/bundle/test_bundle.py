"""Bundles: made, altered in each part, verified, recomputed; protocols, gates and the page for readers."""

import hashlib
import json
import re
import shutil
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from extensions.bundle.checking import Bundle
from extensions.bundle.command import BundleConfig, prepare
from extensions.bundle.manifest import Difference, differences
from extensions.bundle.protocol import Protocol, check
from extensions.bundle.provenance import inputs, settings_in
from extensions.bundle.quotations import Quotations
from fsd import tracking
from fsd.errors import UsageError
from fsd.tracking.store import open_store
from tests.rows import write

pytestmark = pytest.mark.filterwarnings("ignore:.*found in sys.modules:RuntimeWarning")  # runpy of what is imported
TEST = "contamination new.jsonl --model {tiny} --device cpu --cache none --orders 3 --report-for reader"


class Made(NamedTuple):
    """A run under a protocol, and its bundle."""

    folder: Path
    run: str
    sha256: str

    def bundle(self) -> Path:
        return self.folder / "bundle"


@pytest.fixture(scope="module")
def made(tiny: Path, run_command: Callable, make_rows: Callable, tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("bundled")
    write(folder / "new.jsonl", [{"text": row["text"]} for row in make_rows(20, 1)])
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        line = f"{TEST.format(tiny=tiny)} --protocol p.json"
        run_command(f"{line} --dry-run")
        printed = json.loads(run_command(f"{line} --json"))
        run = printed["run"]["id"]
        bundled = json.loads(run_command(f"bundle {run} --out bundle --json"))
    return Made(folder, run, bundled["headline"].rpartition(" ")[2])


@pytest.fixture
def copy(made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the bundle in the working folder."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(made.bundle(), "bundle")
    return tmp_path / "bundle"


@pytest.fixture
def fails(run_command: Callable, capsys: pytest.CaptureFixture) -> Callable[..., str]:
    """Runs a command that must fail with an exit code, and gives its last line."""

    def run(line: str, code: int = 1) -> str:
        with pytest.raises(SystemExit) as ended:
            run_command(line)
        assert ended.value.code == code
        return capsys.readouterr().err.strip().splitlines()[-1]

    return run


def test_a_bundle_holds_the_run_and_what_it_read_and_verifies(made: Made, run_command: Callable) -> None:
    bundle = Bundle.opened(str(made.bundle()))
    paths = bundle.manifest.hashes.keys()
    assert {"inputs/files-1/new.jsonl", "run/answer.json", "run/config.yaml", "run/report.html"} <= paths
    assert {"run/protocol.json", "run/provenance.json", "run/results.json"} <= paths
    assert [len(texts) for texts in bundle.manifest.text_hashes.values()] == [20]
    (weights,) = bundle.manifest.weights
    assert "model.safetensors" in weights.files
    assert {"torch", "numpy"} <= bundle.provenance.libraries.keys()
    printed = run_command(f"verify {made.bundle()} --sha256 {made.sha256}")
    assert printed.startswith(f"nothing was altered: {len(paths)} files")
    assert "the run is that of the protocol" in printed


def test_a_version_stands_for_the_run_that_registered_it(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(made.folder)
    client = open_store().client
    client.create_registered_model("fsd-x")
    client.create_model_version("fsd-x", "nowhere", made.run)
    assert prepare(BundleConfig("models:/fsd-x/1")).writes == [Path(f"evidence-{made.run[:8]}")]


def test_every_file_that_is_changed_is_found(copy: Path) -> None:
    bundle = Bundle.opened("bundle")
    for name in bundle.manifest.hashes:
        path = copy / name
        content = path.read_bytes()
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        (altered,) = bundle.alterations(None)
        assert altered.path == name
        assert altered.what.startswith("changed")
        path.write_bytes(content)
    assert not bundle.alterations(None)


def edit(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    file = folder / "manifest.json"
    content = json.loads(file.read_bytes())
    change(content)
    file.write_text(json.dumps(content))


def replace_file(folder: Path, name: str, content: bytes) -> None:
    """Another file, with its hash in the manifest."""
    (folder / name).write_bytes(content)

    def change(manifest: dict[str, Any]) -> None:
        (entry,) = (entry for entry in manifest["files"] if entry["path"] == name)
        entry |= {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content)}

    edit(folder, change)


def consistent(folder: Path) -> None:
    name = "inputs/files-1/new.jsonl"
    replace_file(folder, name, (folder / name).read_bytes() + b'{"text": "another"}\n')


def link(folder: Path) -> None:
    (folder / "run/report.html").rename(folder.parent / "report.html")
    (folder / "run/report.html").symlink_to(folder.parent / "report.html")


ALTERATIONS = {
    "missing": (lambda folder: (folder / "run/report.html").unlink(), "run/report.html is missing"),
    "added": (lambda folder: (folder / "run/more.txt").write_text("x"), "run/more.txt is added"),
    "renamed": (
        lambda folder: (folder / "run/report.html").rename(folder / "run/page.html"),
        "run/report.html is missing",
    ),
    "link": (link, "run/report.html is no regular file"),
    "edited": (lambda folder: edit(folder, lambda content: content.update(headline="yes")), "manifest.json is edited"),
    "consistent": (consistent, "manifest.json is edited"),
}


@pytest.mark.parametrize("kind", ALTERATIONS)
def test_an_alteration_is_found(kind: str, made: Made, copy: Path, fails: Callable) -> None:
    alter, message = ALTERATIONS[kind]
    alter(copy)
    assert f"failed: the bundle is not as it was made: {message}" in fails(f"verify bundle --sha256 {made.sha256}")


def test_inputs_other_than_those_that_the_run_recorded_are_found_without_a_hash(copy: Path, fails: Callable) -> None:
    consistent(copy)
    assert "new.jsonl is not the file that the run read" in fails("verify bundle")


def test_a_zip_file_is_verified_as_a_folder_is(
    made: Made, run_command: Callable, fails: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(made.folder)
    out = tmp_path / "evidence.zip"
    run_command(f"bundle {made.run} --out {out}")
    assert run_command(f"verify {out}").startswith("nothing was altered")
    with zipfile.ZipFile(out, "a") as archive:
        archive.writestr("run/more.txt", "x")
    assert "run/more.txt is added" in fails(f"verify {out}")
    with zipfile.ZipFile(out, "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("run/more.txt", "y")
    assert "holds one twice" in fails(f"verify {out}", 2)


def test_texts_can_stand_as_hashes(made: Made, run_command: Callable, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(made.folder)
    run_command(f"bundle {made.run} --out {tmp_path}/hashed --without-texts")
    assert not list(tmp_path.rglob("new.jsonl"))
    texts = [json.loads(line)["text"] for line in (made.folder / "new.jsonl").read_text().splitlines()]
    for path in tmp_path.rglob("*.*"):
        assert not any(text[:40] in path.read_text() for text in texts), path
    assert run_command(f"verify {tmp_path}/hashed").startswith("nothing was altered")


def test_quotations_are_replaced_in_tables_and_found_on_pages() -> None:
    quotations = Quotations(["One two three, four five six.", "short", "一二三四五六七"])
    assert quotations.without("page.html", b"<td>two three four&#160;five six</td>") is None
    assert quotations.without("page.html", "<td>二三四五六</td>".encode()) is None
    unquoted = {"page.html": b"<td>one two three four</td>", "a.csv": b"n,m\n1, 2\n", "b.json": b"[ 1]"}
    for name, content in unquoted.items():
        assert quotations.without(name, content) == content
    table = json.dumps({"a": ["short", "two three four five six", 1, "else"]}).encode()
    hashed = json.loads(quotations.without("a.json", table) or b"")
    assert [str(value)[:7] for value in hashed["a"]] == ["sha256:", "sha256:", "1", "else"]
    text = (quotations.without("a.csv", b"text,n\nshort,3\n") or b"").partition(b",3")[0]
    assert b"sha256:" in text


def test_a_run_of_an_earlier_release_is_refused_with_what_to_do(
    fails: Callable, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    with tracking.run("fsd-contamination", "earlier") as run:
        run.log("answer.json", {})
    message = fails(f"bundle {run.id} --out other", 2)
    assert "by fsd 0.2.0 or later" in message
    assert message.endswith(f"{run.id} has no provenance.json: run its command again, and bundle the new run")


def test_an_input_that_has_changed_since_the_run_is_refused(made: Made, fails: Callable, monkeypatch: Any) -> None:
    monkeypatch.chdir(made.folder)
    file = made.folder / "new.jsonl"
    content = file.read_bytes()
    file.write_bytes(content + b'{"text": "more"}\n')
    assert "new.jsonl has been changed since" in fails(f"bundle {made.run} --out other", 2)
    file.unlink()
    assert "there is no new.jsonl" in fails(f"bundle {made.run} --out other", 2)
    file.write_bytes(content)


@pytest.mark.parametrize(
    ("change", "message"),
    [("--orders 4", "p.json has orders 3; the run has 4"), ("--level .01", "p.json has level 0.05; the run has 0.01")],
)
def test_a_run_that_is_not_its_protocol_is_refused_before_the_model_is_loaded(
    change: str, message: str, made: Made, tiny: Path, fails: Callable, monkeypatch: Any
) -> None:
    monkeypatch.chdir(made.folder)
    monkeypatch.setattr("fsd.models.language_model.load", lambda *_, **__: pytest.fail("a model was loaded"))
    line = TEST.format(tiny=tiny).replace("--orders 3", "") if "orders" in change else TEST.format(tiny=tiny)
    assert message in fails(f"{line} {change} --protocol p.json", 2)


def test_a_protocol_fixes_the_texts_and_not_their_place(
    made: Made, tiny: Path, run_command: Callable, fails: Callable, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(made.folder)
    line = f"{TEST.format(tiny=tiny)} --protocol p.json --dry-run"
    shutil.copy("new.jsonl", tmp_path / "moved.jsonl")
    planned = run_command(line.replace("new.jsonl", str(tmp_path / "moved.jsonl")))
    assert planned.endswith("dry run: nothing was trained, scored or tracked\n")
    with (tmp_path / "moved.jsonl").open("a") as file:
        file.write('{"text": "more"}\n')
    assert "has other texts of files" in fails(line.replace("new.jsonl", str(tmp_path / "moved.jsonl")), 2)
    other = f"extract new.jsonl --model {tiny} --prefix 9 --suffix 9 --protocol p.json --dry-run"
    assert "has command contamination; the run is of extract" in fails(other, 2)


def test_hidden_files_of_a_folder_are_no_inputs(tmp_path: Path) -> None:
    """Readers skip them, and the folder of somebody else has others."""
    (tmp_path / "a.jsonl").write_text('{"text": "a"}')
    (tmp_path / ".DS_Store").write_bytes(b"\0")
    (read,) = inputs("detect", {"files": [str(tmp_path)]})
    assert [file.name for file in read.files] == ["a.jsonl"]


def test_a_protocol_fixes_the_weights(
    made: Made, tiny: Path, other: Path, run_command: Callable, fails: Callable, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(made.folder / "new.jsonl", tmp_path)
    shutil.copytree(tiny, "model")
    line = f"{TEST.format(tiny='model')} --protocol p.json"
    run_command(f"{line} --dry-run")
    fixed = json.loads(Path("p.json").read_text())["weights"]["model"]
    assert {"config.json", "model.safetensors"} <= fixed.keys()
    run = json.loads(run_command(f"{line} --json"))["run"]["id"]
    shutil.copy(other / "model.safetensors", "model")
    # The same name, and weights that are loaded without a complaint.
    monkeypatch.setattr("fsd.models.language_model.load", lambda *_, **__: pytest.fail("a model was loaded"))
    assert "p.json has other weights of model (model.safetensors)" in fails(line, 2)
    run_command(f"bundle {run} --out bundle")
    assert "it has other weights of model (model.safetensors)" in fails("verify bundle")
    shutil.rmtree("model")
    assert "model" in fails(line, 2)


def test_a_model_without_hashes_is_fixed_by_its_name_and_that_is_said() -> None:
    fixed = Protocol(2, "contamination", {}, {}, {"m": {"a.bin": "1"}, "api:x": {}}, "tests", 0.05)
    assert fixed.by_name == ["api:x"]
    absent = replace(fixed, weights={"m": {}, "api:x": {}})
    assert absent.mismatch(fixed) == fixed.mismatch(absent) == ""
    with pytest.raises(
        UsageError, match="the weights that a protocol fixes must be on this machine; those of m are not"
    ):
        check("p.json", fixed, absent)
    check("p.json", absent, fixed)
    more = replace(fixed, weights={"m": {"a.bin": "1", "b.bin": "2"}})
    assert fixed.mismatch(more) == "other weights of m (b.bin)"


def test_an_empty_key_hides_no_difference() -> None:
    fixed = Protocol(2, "contamination", {}, {"seed": 1}, {"m": {"a.bin": "1"}}, "tests", 0.05)
    for part in ("texts", "settings"):
        assert fixed.mismatch(replace(fixed, **{part: {"": 1, "seed": 2}}))  # type: ignore[arg-type]
    assert fixed.mismatch(replace(fixed, weights={"m": {"": "1", "a.bin": "2"}})) == "other weights of m ()"


@pytest.mark.parametrize(("content", "got"), [("", "; got None"), ("- a", r"; got \['a'\]"), ("a: [", "; ")])
def test_settings_that_somebody_else_recorded_are_refused_in_one_line(content: str, got: str) -> None:
    with pytest.raises(UsageError, match=f"must be its settings by name, in YAML{got}") as refused:
        settings_in(content.encode())
    assert "\n" not in str(refused.value)


def test_a_protocol_in_the_bundle_that_is_not_of_the_run_is_found(copy: Path, fails: Callable) -> None:
    content = json.loads((copy / "run/protocol.json").read_bytes())
    content["settings"]["orders"] = 9
    replace_file(copy, "run/protocol.json", json.dumps(content).encode())
    assert "protocol.json is not that of the run: it has orders 9; the run has 3" in fails("verify bundle")


def test_a_gate_ends_with_status_1_and_the_run_is_finished(made: Made, tiny: Path, fails: Callable, tmp_path: Path,
                                                           monkeypatch: Any) -> None:  # fmt: skip
    monkeypatch.chdir(made.folder)
    line = f'{TEST.format(tiny=tiny)} --fail-if "p <= 1" "p < 0" "share > .5"'
    message = fails(line)
    assert re.match(r"failed: p is [\d.]+; the limit is `p <= 1`; the answer has no number share", message)
    newest = tracking.find_runs("fsd-contamination")[0]
    assert newest.tags["gate"].startswith("p is")


def test_numbers_beyond_rounding_and_verdicts_differ() -> None:
    recorded = {"t": [{"p": 0.5, "verdict": "member", "text": "a"}, {"p": None, "verdict": "member"}]}
    again = {"t": [{"p": 0.50001, "verdict": "not shown", "text": "b"}, {"p": 0.1, "verdict": "member"}]}
    found = list(differences(recorded, again))
    assert sorted(found) == [Difference("t[0].verdict", "member", "not shown"), Difference("t[1].p", "None", "0.1")]
    assert list(differences([1], [1, 2])) == [Difference(": rows", "1", "2")]
    names = [f"test {number}" for number in range(20)]
    assert [each.place for each in differences(dict.fromkeys(names, 1.0), dict.fromkeys(names, 2.0))] == names


def test_the_page_for_a_reader_has_no_terms_of_the_field(made: Made) -> None:
    page = (made.bundle() / "run/report.html").read_text()
    assert not re.search(r"\b(AUC|ROC|TPR|FPR|Holm)\b", page)
    for heading in ("The question", "The answer", "How often is such an answer wrong?", "What was compared"):
        assert f"<h2>{heading}</h2>" in page
    assert "SHA-256" in page
    # A null says what would have been found, and a page made under a protocol names it.
    assert "about so many would have been found" in page
    assert '<th scope="row">Protocol</th>' in page


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_bundles_of_every_command_verify_and_recompute(
    finished_run: Any, make_rows: Callable, tiny: Path, run_command: Callable, tmp_path: Path, monkeypatch: Any
) -> None:
    shutil.copytree(finished_run.folder, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    texts = [row["text"] for row in make_rows(20, 1)]
    owned = [{"text": text, "owner": "AB"[n % 2], "reserved": "2024-06-30"} for n, text in enumerate(texts)]
    write(tmp_path / "new.jsonl", owned)
    (tmp_path / "new.txt").write_text(" ".join(texts))
    write(tmp_path / "audit.jsonl", [*make_rows(60, 3), *({"text": row["text"]} for row in make_rows(5, 4))])
    write(tmp_path / "words.jsonl", [{"text": " ".join(f"{a}{b}" for a in "bdfgkl" for b in "aeiouy" * 2)}])
    run_command("canary make --data new.jsonl --kind digits --out canaries --variants 20 --alpha .05 --seed s")
    (adapter,) = tmp_path.glob("mlruns/*/*/artifacts/adapter")
    model = f"--model {tiny} --device cpu"
    lines = [
        "detect new.jsonl --adapter models:/fsd-arxiv/1 --fpr .1 --device cpu",
        f"extract new.txt {model} --prefix 10 --suffix 10",
        f"extract new.txt --control data.jsonl {model} --prompts opening --prefix 2 --max-tokens 8 --replies 2",
        f"canary test canaries {model}",
        f"adapter-audit --data audit.jsonl {model} --adapter {adapter.relative_to(tmp_path)} --detectors loss --fpr .1",
        f"run --data data.jsonl {model} --detectors loss --validation .4 --batch-size 4 --epochs 1 --placebo none "
        "--audit-repeats 1",
    ]
    for number, line in enumerate(lines):
        run = json.loads(run_command(f"{line} --json --report-for reader"))["run"]["id"]
        run_command(f"bundle {run} --out {number}.zip")
        assert "recomputed: every number is the same" in run_command(f"verify {number}.zip --recompute")
        run_command(f"bundle {run} --out hashed{number} --without-texts")
        assert run_command(f"verify hashed{number}").startswith("nothing was altered")
        for path in (tmp_path / f"hashed{number}").rglob("*"):
            if path.suffix in (".html", ".json", ".jsonl", ".csv"):
                assert not any(text[:45] in path.read_text() for text in texts), path
        page = zipfile.Path(f"{number}.zip") / "run" / "report.html"
        assert not re.search(r"\b(AUC|ROC|TPR|FPR)\b", page.read_text())


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("models", ["--model {tiny}", "--models {tiny} {other}"])
def test_bundles_of_contamination_verify_and_recompute(
    models: str, tiny: Path, other: Path, make_rows: Callable, run_command: Callable, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "new.jsonl", [{"text": row["text"]} for row in make_rows(20, 1)])
    write(tmp_path / "known.jsonl", [{"text": row["text"]} for row in make_rows(20, 2)])
    line = "contamination new.jsonl --known known.jsonl --orders 2 --sets 1 --level .5 --detectors loss --device cpu "
    line += models.format(tiny=tiny, other=other)
    printed = json.loads(run_command(f"{line} --json --report-for reader"))
    run_command(f"bundle {printed['run']['id']} --out evidence.zip")
    manifest = json.loads((zipfile.Path("evidence.zip") / "manifest.json").read_bytes())
    assert [weights["name"] for weights in manifest["weights"]] == re.findall(r"--models? (.*)", line)[0].split()
    verified = run_command("verify evidence.zip --recompute")
    assert "recomputed: every number is the same" in verified
    (table,) = printed["tables"].values()
    assert {"p", "p_holm"} <= table[0].keys()
