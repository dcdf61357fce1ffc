"""The page on paper: printed by a browser on A4."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from fsd.reporting import figures
from fsd.reporting.report import Picture, Report, Section, page, plain


@pytest.mark.slow
def test_figures_follow_a_table_on_its_page_and_two_of_them_share_one(tmp_path: Path) -> None:
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("Chromium is not installed")
    rows = [
        [f"detector {number}", ".83 [.78, .87]", ".53 [.46, .60]", ".30 [.22, .38]", "< .001"] for number in range(18)
    ]
    table = plain(["Detector", "AUC", "Control", "Difference", "p"], rows, caption="What is compared. " * 20)
    pictures = []
    # In inches: as high as the figures of the main report.
    for width, height in ((9.0, 5.4), (9.0, 6.6), (5.0, 5.0)):
        pictures.append(Picture(figures.png(Figure((width, height))), "What is drawn."))
    sections = [Section("Further", pictures=[]), Section("Results", tables=[table], pictures=pictures)]
    (tmp_path / "report.html").write_text(page(Report(title="On paper", sections=sections)), encoding="utf-8")
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}"]
    subprocess.run(
        [program, *options, f"--print-to-pdf={tmp_path / 'report.pdf'}", str(tmp_path / "report.html")],
        check=True,
        capture_output=True,
    )
    assert len(re.findall(rb"/Type /Page\b", (tmp_path / "report.pdf").read_bytes())) == 2
