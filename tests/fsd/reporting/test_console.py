from fsd.reporting.console import table


def test_words_are_wrapped_and_numbers_are_not(capsys):
    reason = "outside the calibrated domain: " + " ".join(f"word{at}" for at in range(40))
    table(["from", "score", "verdict"], [["a.txt", "-.5", reason]], ["a note"], title="1 text", left=(0, 2))
    output = capsys.readouterr().out

    assert all(word in output for word in [*reason.split(), "-.5", "1 text", "• a note"])
    assert "…" not in output


def test_cells_and_notes_are_plain_text(capsys):
    table(["text"], [["[red]bold[/red]"]], ["[link]note[/link]"])
    output = capsys.readouterr().out

    assert "[red]bold[/red]" in output
    assert "• [link]note[/link]" in output


def test_control_characters_of_a_text_do_not_reach_the_terminal(capsys):
    table(["text"], [["a\x1b[2Jb"]], ["c\u202ed"])
    output = capsys.readouterr().out

    assert "a\ufffd[2Jb" in output
    assert "• c\ufffdd" in output
    assert "\x1b" not in output


def test_without_rows_there_are_only_notes(capsys):
    table(["text"], [], ["a note"])

    assert capsys.readouterr().out == "• a note\n"
