"""The papers' numbers in papers.csv against the transcript of the papers, and the page made of the catalogue."""

import csv
import re
from pathlib import Path

import pytest

from detectors import load, names
from extensions.study import catalogue
from extensions.study.catalogue import BEST
from fsd.data import benchmarks
from scripts import papers_page as page

ROOT = Path(__file__).parents[3]
PLACES = {"FSD, Table ": "fsd-t", "FSD, Figure ": "fsd-fig", "SURP, Table ": "surp-t", "SURP, Figure ": "surp-fig"}
PLACES |= {"DC-PDD, Table ": "dcpdd-t"}
SETTINGS = {
    "fsd-t4": {"All": "all", "Mem": "members", "Non": "non-members"},
    "fsd-t5": {"original": "kept", "deletion": "deleted", "replacement": "replaced by 2023"},
    "fsd-t15": {"Mix": "both domains", "Wiki": "other domain"},
    "surp-fig4": {"entropy=2.5 k=100": "surp entropy 2.5 k 100.0", "entropy=10 k=10": "surp entropy 10.0 k 10.0"},
}
SETTINGS["fsd-t13"] = SETTINGS["fsd-t5"]
# Numbers of the papers' prose, which the transcript leaves out or has no row for.
PROSE = {"surp-temporal": 4, "surp-fig3": 4}


@pytest.fixture(scope="module")
def transcript():
    folder = ROOT.parent / "shared" / "papers"
    if not folder.is_dir():
        pytest.skip("the transcript of the papers' numbers is not beside this checkout")
    rows = []
    for file in sorted(folder.glob("*.csv")):
        with file.open(encoding="utf-8", newline="") as lines:
            rows += csv.DictReader(lines)
    return rows


def ours():
    with catalogue.PAPERS.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def translated(row):
    """A row of the transcript as papers.csv has it."""
    place = next(new + row["place"].removeprefix(old) for old, new in PLACES.items() if row["place"].startswith(old))
    setting, data, detector = row["setting"], row["data"], row["detector"]
    setting = SETTINGS.get(place, {}).get(setting, setting)
    if row["state"] == "base" and place in ("fsd-t15", "fsd-t16"):
        setting = ""  # the base score does not depend on the training
    elif place in ("fsd-fig4", "fsd-fig6"):
        setting = setting.removeprefix("unseen texts ")
    elif place in ("surp-t1", "surp-t3"):
        if place == "surp-t3":
            data = f"{data}/{setting}"
        setting = BEST if detector in ("surp", "min_k") else ""
    elif place in ("dcpdd-t2", "dcpdd-t3") and (data, detector) == ("bookmia", "dc_pdd"):
        setting = "a = 10"
    elif place == "dcpdd-t5":
        setting = setting.replace("=", " = ")
    return (place, row["model"], data, detector, setting, row["state"], row["metric"], float(row["value"]))


def test_papers_csv_has_every_number_of_the_transcript_and_no_other(transcript):
    expected = {translated(row) for row in transcript}
    rows = [(*list(row.values())[:-1], float(row["value"])) for row in ours()]
    assert expected - set(rows) == set()
    further = [row[0] for row in rows if row not in expected]
    assert {place: further.count(place) for place in further} == PROSE


def test_page_and_table_are_what_the_script_makes():
    for name, made in (("papers.md", page.page()), ("papers.tsv", page.table())):
        assert (ROOT / "docs" / name).read_text(encoding="utf-8") == made, "run `python -m scripts.papers_page`"


def test_the_table_has_all_of_every_study():
    rows = list(csv.DictReader(page.table().splitlines(), delimiter="\t"))
    assert [row["study"].split()[2] for row in rows] == catalogue.in_order()
    for row in rows:
        study = catalogue.studies()[row["study"].split()[2]]
        assert None not in row.values()
        assert (row["in the paper"], int(row["prints"])) == (study.place, len(study.paper))
        assert re.search(r"\.\d\d", row["small scale here, AUC"])


def test_the_page_can_be_read():
    assert len(page.page().split()) <= 1200


def test_every_table_and_figure_of_the_papers_is_on_the_page():
    text = page.page()
    for name, study in catalogue.studies().items():
        scale = "" if study.place.startswith(catalogue.OWN) else " --scale full"
        assert f"fsd study {name}{scale}" in text
        if study.source:
            assert study.agrees, name
            assert f"| {study.place} |" in text
    places = " ".join([text, *(study.place for study in catalogue.studies().values())])
    for paper, tables, figures in (("FSD", 16, 6), ("SURP", 3, 4), ("DC-PDD", 5, 3)):
        places_of_paper = " ".join(re.findall(rf"{paper}, [^|:]*", places))
        for kind, count in (("Table", tables), ("Figure", figures)):
            for number in range(1, count + 1):
                assert re.search(rf"{kind}s? (?:\d+(?:, | and | to ))*{number}\b", places_of_paper), (
                    paper,
                    kind,
                    number,
                )


def test_every_study_has_a_result_at_the_small_scale():
    assert {line.study for line in page.results()} == set(catalogue.studies())


ARXIV = re.compile(r"(?<![\d.])\d{4}\.\d{4,5}(?![\d.]*\d)")


def rows_of(section):
    text = (ROOT / "docs" / "references.md").read_text(encoding="utf-8")
    part = text.partition(f"## {section}\n")[2].partition("\n## ")[0]
    rows = [line.split("|")[1:3] for line in part.splitlines() if line.startswith("| ")][1:]
    return {name: set(ARXIV.findall(source)) for names, source in rows for name in re.findall(r"`(\w+)`", names)}


def test_the_references_have_every_detector_and_benchmark_with_its_paper():
    listed = rows_of("Detectors")
    assert set(listed) == set(names())
    for name, papers in listed.items():
        source = " ".join(load(name).function.__doc__.split()).partition("Source: ")[2]
        named = set(ARXIV.findall(source)) - {"2410.10880", "2409.14781"}
        assert named <= papers | {"2410.10880"}, name
        assert papers, name
    listed = rows_of("Benchmarks")
    assert set(listed) == set(benchmarks.sources())
    assert all(listed.values())


def test_the_references_have_every_paper_that_a_module_names():
    page = (ROOT / "docs" / "references.md").read_text(encoding="utf-8")
    for folder in ("fsd", "detectors", "pipelines", "extensions"):
        for file in (ROOT / folder).rglob("*.py"):
            text = file.read_text(encoding="utf-8")
            for paper in re.findall(r"(?i:arxiv)(?:\.org/abs/|:|[ \n]+)(\d{4}\.\d{4,5})", text):
                assert paper in page, (file, paper)
