"""What docs/security.md promises: that its tests exist, and that no source runs code from data."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = sorted(
    path for folder in ("fsd", "detectors", "pipelines", "extensions") for path in (ROOT / folder).rglob("*.py")
)
RUNS_CODE = {"eval", "exec", "os.system", "os.popen", "pickle.load", "pickle.loads", "marshal.loads"}
AUTO = re.compile(r"Auto\w+\.from_pretrained")


def test_every_test_that_the_page_names_exists() -> None:
    named = set(re.findall(r"`(test_\w+)`", (ROOT / "docs" / "security.md").read_text(encoding="utf-8")))
    there = {
        name for file in (ROOT / "tests").rglob("*.py") for name in re.findall(r"def (test_\w+)", file.read_text())
    }
    assert named
    assert named <= there, named - there


def calls(source: str) -> Iterator[tuple[str, dict[str, str]]]:
    """The calls of a source: dotted name of the function, and its named arguments."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), {k.arg: ast.unparse(k.value) for k in node.keywords if k.arg}


def complaints(source: str) -> list[str]:
    found = []
    for name, arguments in calls(source):
        loads_model = AUTO.fullmatch(name) and arguments.get("trust_remote_code") != "False"
        loads_array = name == "np.load" and arguments.get("allow_pickle") != "False"
        loads_tensors = name == "torch.load" and arguments.get("weights_only") != "True"
        if name in RUNS_CODE or loads_tensors or loads_model or loads_array or arguments.get("shell") == "True":
            found.append(name)
    return found


def test_nothing_in_the_package_runs_code_from_data() -> None:
    wrong = ["eval(x)", "pickle.loads(x)", "torch.load(x)", "AutoConfig.from_pretrained(x)", "np.load(x)"]
    wrong += ["AutoTokenizer.from_pretrained(x, trust_remote_code=True)", "subprocess.run(x, shell=True)"]
    assert all(map(complaints, wrong))
    found = {str(path.relative_to(ROOT)): complaints(path.read_text(encoding="utf-8")) for path in SOURCES}
    assert not {path: names for path, names in found.items() if names}
