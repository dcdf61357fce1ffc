"""The sdist builds the wheel, which in a clean environment has all that a job needs, and the pages that it names."""

import os
import re
import shutil
import site
import subprocess
import sys
import tarfile
import venv
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow


LEFT_OUT = (".git", ".venv", ".*_cache", ".hypothesis", "__pycache__", "build", "*.egg-info", "mlruns", "services")
"""What a checkout has beside its own files."""
BUILD = "import sys; from setuptools import build_meta; build_meta.build_sdist(sys.argv[1])"


@pytest.fixture(scope="module")
def sdist(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source distribution, unpacked."""
    folder = tmp_path_factory.mktemp("sdist")
    source = folder / "source"  # setuptools would leave files in the checkout
    shutil.copytree(root, source, ignore=shutil.ignore_patterns(*LEFT_OUT))
    subprocess.run([sys.executable, "-c", BUILD, str(folder)], cwd=source, capture_output=True, check=True)
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        # Python before 3.11.4 has no filter; later ones warn without it.
        if hasattr(tarfile, "data_filter"):
            packed.extraction_filter = tarfile.data_filter
        packed.extractall(folder / "unpacked")
    (unpacked,) = (folder / "unpacked").iterdir()
    return unpacked


@pytest.fixture(scope="module")
def command(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command `fsd` of an environment that has the wheel, its dependencies, and nothing of the checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    build = ["wheel", "-q", "--no-deps", "--no-index", "--no-build-isolation", "-w", str(folder), str(sdist)]
    subprocess.run([sys.executable, "-m", "pip", *build], check=True)
    venv.create(folder / "clean", with_pip=False)
    python = folder / "clean" / "bin" / "python"
    (wheel,) = folder.glob("*.whl")
    install = ["--python", str(python), "install", "-q", "--no-deps", "--no-index", str(wheel)]
    subprocess.run([sys.executable, "-m", "pip", *install], check=True)
    (library,) = (folder / "clean" / "lib").glob("python*/site-packages")
    (library / "dependencies.pth").write_text("\n".join(site.getsitepackages()))
    return python.parent / "fsd"


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A working folder whose own files have the names of our packages."""
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "__init__.py").write_text("raise ImportError('not ours')")
    (tmp_path / "detectors.py").write_text("raise ImportError('not ours')")
    return tmp_path


def run(command: Path, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [str(command), *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**kept, "FSD_CACHE": str(cwd / "cache"), "OMP_NUM_THREADS": "2"},
        timeout=280,
        check=False,
    )


def test_a_short_job_runs(command: Path, hostile: Path) -> None:
    answer = run(command, *["run", "--detectors", "loss", "--epochs", "1", "--audit-repeats", "1"], cwd=hostile)
    assert answer.returncode == 0, answer.stderr
    assert "control model" in answer.stdout
    assert list(hostile.glob("mlruns/*/*/artifacts/report.html"))


def test_a_wrong_command_and_a_wrong_flag_are_one_line_each(command: Path, hostile: Path) -> None:
    for arguments, message in ((["fly"], "command must be one of run,"), (["run", "--nonsense", "3"], "--nonsense")):
        answer = run(command, *arguments, cwd=hostile)
        assert answer.returncode == 2
        assert message in answer.stderr
        assert len(answer.stderr.strip().splitlines()) == 1


def test_help_lists_the_commands(command: Path, hostile: Path) -> None:
    answer = run(command, "--help", cwd=hostile)
    assert answer.returncode == 0
    assert all(name in answer.stdout for name in ("run", "detect", "score", "tune", "study", "collect"))


def test_the_studies_are_in_the_wheel(command: Path, hostile: Path) -> None:
    answer = run(command, "study", "fsd-t6", "--dry-run", cwd=hostile)
    assert answer.returncode == 0, answer.stderr
    assert "cell LoRA" in answer.stdout


def test_type_checkers_find_the_package_after_an_editable_install(sdist: Path, tmp_path: Path) -> None:
    build = f"from setuptools import build_meta; build_meta.build_editable({str(tmp_path)!r})"
    subprocess.run([sys.executable, "-c", build], check=True, cwd=sdist, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    venv.create(tmp_path / "clean", with_pip=False)
    python = tmp_path / "clean" / "bin" / "python"
    install = ["--python", str(python), "install", "-q", "--no-deps", "--no-index", str(wheel)]
    subprocess.run([sys.executable, "-m", "pip", *install], check=True)
    lines = ["import fsd", 'scores = fsd.score("embedded", ["a text"])', "fsd.score()"]
    (tmp_path / "mine.py").write_text("\n".join(lines))
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "MYPYPATH")}
    check = [sys.executable, "-m", "mypy", "--strict", "--python-executable", str(python), "mine.py"]
    answer = subprocess.run(check, cwd=tmp_path, env=kept, capture_output=True, text=True, check=False)
    # The mistake is seen, so that the types are read; nothing else is reported.
    assert "Found 1 error in 1 file" in answer.stdout, answer.stdout
    assert 'mine.py:3: error: Missing positional arguments "model", "texts"' in answer.stdout


def test_the_sdist_has_what_tests_and_pages_need(root: Path, sdist: Path) -> None:
    for part in ("tests", "docs", "benchmarks", "scripts", "fsd", "detectors", "pipelines", "extensions"):
        here, there = (sorted(files_below(folder / part)) for folder in (root, sdist))
        assert there == here
    for name in ("NOTICE", "LICENSE", "CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md", "Makefile", "constraints.txt"):
        assert (sdist / name).read_bytes() == (root / name).read_bytes()


def files_below(folder: Path) -> list[str]:
    paths = [path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    return [path.relative_to(folder).as_posix() for path in paths]


def test_licence_and_notice_are_in_the_wheel(root: Path, command: Path) -> None:
    library = command.parents[1] / "lib"
    for name in ("LICENSE", "NOTICE"):
        (placed,) = library.glob(f"python*/site-packages/fsd-*.dist-info/licenses/{name}")
        assert placed.read_bytes() == (root / name).read_bytes()


def test_help_names_a_page_that_is_there_and_so_are_those_of_messages(root: Path, command: Path, hostile: Path) -> None:
    answer = run(command, "--help", cwd=hostile)
    named = Path(answer.stdout.split()[-1])
    assert named.is_relative_to(command.parents[1])
    assert named.read_bytes() == (root / "docs" / "questions.md").read_bytes()
    sources = [path.read_text() for package in ("fsd", "pipelines") for path in (root / package).rglob("*.py")]
    pages = {page for source in sources for page in re.findall(r"docs/(\w+\.md)", source)}
    assert len(pages) >= 4
    assert [page for page in pages if not (named.parent / page).is_file()] == []
