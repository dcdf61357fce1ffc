import csv
import io
import socket
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

Serve = Callable[[dict[str, dict[str, bytes]]], tuple[str, list[str]]]

CODE = """
import json, sys, time
from itertools import islice
from fsd.data import benchmarks
from fsd.data import hub_dataset
from fsd.errors import UsageError
begin = time.perf_counter()
for name, options in json.loads(sys.argv[1]):
    try:
        if "/" in name:
            found = hub_dataset.load(name, {}, **options).documents
        else:
            found = list(islice(benchmarks.load(name).documents, options.get('limit')))
        print(json.dumps([[d.text, d.member, d.group, d.source] for d in found]))
    except UsageError as error:
        print(json.dumps(str(error)))
print(time.perf_counter() - begin)
"""


Run = Callable[[str, str, Any], list[Any]]


def ask(run: Run, endpoint: str, jobs: Sequence[tuple[str, dict[str, Any]]]) -> tuple[list[Any], float]:
    """What each job gives, and all seconds."""
    *answers, seconds = run(CODE, endpoint, jobs)
    return answers, seconds


def parquet(rows: list[dict[str, Any]]) -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), out)
    return out.getvalue()


def wikimia() -> dict[str, bytes]:
    """WikiMIA's layout: one Parquet file a length, splits named in the card."""
    names = [f"WikiMIA_length{length}" for length in (32, 64, 128, 256)]
    files = {f"data/{name}-00000-of-00001.parquet": name for name in names}
    card = "".join(f"  - split: {name}\n    path: {path}\n" for path, name in files.items())
    content = {p: parquet([{"input": f"{n} {i}", "label": i} for i in (0, 1)]) for p, n in files.items()}
    head = "---\nconfigs:\n- config_name: default\n  data_files:\n"
    return {"README.md": f"{head}{card}---\n# WikiMIA\n".encode(), **content}


def arxivtection() -> dict[str, bytes]:
    """Columns of arXivTection: the paper, the passage, three paraphrases of it, the label."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(["ID", "Example_A", "Example_B", "Example_C", "Example_D", "Label"])
    writer.writerows([f"Paper {i // 2}", f"passage {i}", "b", "c", "d", i // 2] for i in range(4))
    return {"README.md": b"# arXivTection\n", "arXivTection.csv": out.getvalue().encode()}


def test_benchmarks_from_a_hub_then_from_the_cache(serve: Serve, in_fresh_process: Run) -> None:
    url, asked = serve({"swj0419/WikiMIA": wikimia(), "avduarte333/arXivTection": arxivtection()})
    bad = "swj0419/WikiMIA"
    jobs: list[tuple[str, dict[str, Any]]] = [
        ("wikimia", {}), ("arxivtection", {}), ("wikimia", {"limit": 3}), ("own/er", {}), (bad, {}),
        (bad, {"splits": ["train"]}),
    ]  # fmt: skip
    (wiki, arxiv, few, unknown, many, lacking), _ = ask(in_fresh_process, url, jobs)
    assert len(wiki) == 8
    assert wiki[3] == ["WikiMIA_length64 1", True, "", "swj0419/WikiMIA/WikiMIA_length64:2"]
    assert [row[:3] for row in arxiv] == [[f"passage {i}", i > 1, f"Paper {i // 2}"] for i in range(4)]
    assert few == wiki[:3]
    assert "own/er must be on the hub" in unknown
    assert "must have one split; it has WikiMIA_length32, " in many
    assert "must have split train; it has WikiMIA_length32, " in lacking

    gone = f"http://127.0.0.1:{free_port()}"
    sha = "f" * 40
    (again, other), _ = ask(in_fresh_process, gone, [("wikimia", {}), (bad, {"revision": sha})])
    assert again == wiki
    assert f"must be at commit {sha}; the cache holds 0123456789abcdef" in other
    assert asked


def test_no_network_is_said_at_once(in_fresh_process: Run) -> None:
    nobody = f"http://127.0.0.1:{free_port()}"
    (said,), seconds = ask(in_fresh_process, nobody, [("arxivtection", {})])
    assert "avduarte333/arXivTection must be on the hub" in said
    assert f"{nobody} does not answer, and from the local cache: nothing" in said
    assert "--data FILE" in said
    assert seconds < 10


def free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return int(server.getsockname()[1])
