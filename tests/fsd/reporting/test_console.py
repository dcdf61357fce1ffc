import os
import pty
import re
import subprocess
import sys

import pytest

from fsd.evaluation.findings import AGAINST, FOR, Finding, as_findings
from fsd.reporting.report import Report, Section, plain, print_notes, print_report, print_table

ON_TERMINALS = """
import fcntl, struct, termios
from fsd.evaluation.findings import as_findings
from fsd.reporting.report import Report, Section, plain, print_report
headings = ["detector", "base AUC\\n[95 % CI]", "FSD AUC\\n[95 % CI]", "gain", "Holm p"]
headings += ["TPR@5%FPR\\nbase → FSD", "placebo"]
row = ["min_k_deviation", ".64 [.50, .77]", ".55 [.41, .68]", "-0.09", ".6422", "0.12 → 0.14", ".49"]
table = plain(headings, [row], title="64 test texts", kept=(0, 2, 3, 1, 4, 6))
for width in (40, 80, 120):
    fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
    print_report(Report(findings=as_findings(["first", "a conclusion " * 20]), sections=[Section("", tables=[table])]))
    print("= " + str(width))
"""


@pytest.mark.slow
def test_on_a_terminal_tables_and_notes_are_as_wide_as_it_is():
    ours, theirs = pty.openpty()
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    process = subprocess.Popen(
        [sys.executable, "-c", ON_TERMINALS],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**environment, "TERM": "xterm"},
    )
    os.close(theirs)
    output = b""
    try:
        while part := os.read(ours, 2**16):
            output += part
    except OSError:  # how Linux reports that the other side is closed
        pass
    os.close(ours)
    assert process.wait(30) == 0, output
    plain = re.sub(r"\x1b\[[0-9;]*m", "", output.decode())
    *pieces, _ = re.split(r"(?m)^= (?:\d+)\r?\n", plain)
    longest = [max(map(len, piece.splitlines())) for piece in pieces]
    assert all(longest[at] <= width for at, width in enumerate((40, 80, 120))), longest
    assert all("FSD AUC" in piece and ".55 [.41, .68]" in piece for piece in pieces)
    assert ["placebo" in piece.partition("•")[0] for piece in pieces] == [False, True, True]


def test_tables_fit_any_width_and_numbers_leave_before_they_would_break(monkeypatch, capsys):
    headings = ("tuned", "winner", "validation", "cross-val.", "test [95 % CI]", "gain", "p")
    numbers = ["0.812 → 0.900", "0.880", ".83 [.78, .87]\n→ .84 [.78, .88]", "+0.003\n[-0.021, +0.028]", "0.781"]
    rows = [["min_k_deviation.fsd", "k=0.35, a=0.5", *numbers], ["loss.fsd", "default", *numbers]]
    table = plain(headings, rows, title="Tuned for AUC", words=(1,), kept=(0, 5, 4, 6, 1, 2))
    for width in range(40, 161, 8):
        monkeypatch.setenv("COLUMNS", str(width))
        print_table(table)
        lines = capsys.readouterr().out.partition("•")[0].splitlines()
        assert max(map(len, lines)) <= width
        assert ("0.781" in "".join(lines)) == (width >= 72)
        assert any(".83 [.78, .87] → .84" in line for line in lines) == (width >= 136)


@pytest.mark.parametrize("width", [0, 1, 7])
def test_a_terminal_without_columns_gets_every_word(width, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", str(width))
    table = plain(["detector", "AUC"], [["min_k", ".55"]], title="one")
    findings = [Finding("The answer of many words."), Finding("a reason", FOR), Finding("a remark")]
    print_report(Report(findings=findings, sections=[Section("", tables=[table])]), facts=[("next", "fsd ui")])
    output = "".join(capsys.readouterr().out.split())
    assert all(words in output for words in ["Theanswerofmanywords.", "areason", "aremark", "fsdui"])


def test_words_are_wrapped_and_numbers_are_not(capsys):
    reason = "outside the calibrated domain: " + " ".join(f"word{at}" for at in range(40))
    table = plain(["from", "score", "verdict"], [["a.txt", "-.5", reason]], title="1 text", words=(2,))
    print_report(Report(headline="The answer.", findings=[Finding("a note")], printed=[table]))
    output = capsys.readouterr().out
    assert all(word in output for word in [*reason.split(), "-.5", "1 text", "• a note"])
    assert "…" not in output
    print_report(
        Report(findings=as_findings(["The answer.", "a note"]), sections=[Section("", tables=[plain(["text"], [])])])
    )
    assert capsys.readouterr().out == "The answer.\n• a note\n"


def test_control_characters_of_a_text_do_not_reach_the_terminal(capsys):
    print_table(plain(["text"], [["a\x1b[2Jb [red]bold[/red]"]]))
    print_notes(["c\u202ed [link]note[/link]"])
    output = capsys.readouterr().out
    assert "a\ufffd[2Jb [red]bold[/red]" in output
    assert "• c\ufffdd [link]note[/link]" in output
    assert "\x1b" not in output


def test_the_short_form_fits_one_screen(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    table = plain(["detector", "AUC"], [[f"d{at}", ".5"] for at in range(14)], title="14 detectors", marked=(0,))
    findings = as_findings(["The answer.", *["a remark " * 20] * 10])
    signs = [Finding("for", FOR), Finding("against", AGAINST)]
    report = Report(findings=findings, signs=signs, sections=[Section("", tables=[table, table])])
    facts = [("run", "a"), ("next", "fsd ui")]
    print_report(report, verbose=False, facts=facts)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "The answer."
    assert len(lines) <= 24
    assert "d5" in "".join(lines)
    assert "d6" not in "".join(lines)
    hidden = "hidden: 8 rows, 1 table, 10 remarks; --verbose shows them"
    end = ["✓ for   ! against", hidden, "", "run   a", "next  fsd ui"]
    assert lines[-5:] == end
    print_report(report)
    assert len(capsys.readouterr().out.splitlines()) > 40


def test_signs_of_findings_are_all_shown_and_rows_give_way_to_them(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "40")
    table = plain(["detector", "AUC"], [[f"d{at}", ".5"] for at in range(14)])
    doubts = as_findings([f"doubt {at} {'word ' * 9}" for at in range(9)], AGAINST)
    findings = [Finding("The answer."), *doubts, Finding("reason", FOR), Finding("remark")]
    print_report(Report(findings=findings, sections=[Section("", tables=[table])]), verbose=False)
    lines = capsys.readouterr().out.splitlines()
    assert [f"! doubt {at}" for at in range(9)] == [line[:9] for line in lines if line.startswith("!")]
    assert "✓ reason" in lines
    assert "d2" not in "".join(lines)
    assert lines[-1] == "hidden: 12 rows, 1 remark; --verbose shows them"
