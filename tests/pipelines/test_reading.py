"""What commands read of files, and say of it: columns, contexts, copies; and sides in files of their own."""

import json
from dataclasses import replace

import pytest

from extensions.adapter_audit.audit import texts_of
from extensions.adapter_audit.settings import AuditConfig
from extensions.contamination.dataset import read
from extensions.contamination.settings import ContaminationConfig
from fsd.config import CleaningConfig, DataConfig, FSDConfig, ModelConfig, ScoreConfig
from fsd.data.embedded import corpus
from fsd.errors import UsageError
from pipelines.experiment.inputs import load_texts
from pipelines.fsd import prepare
from pipelines.score import job

ABSTRACTS = [document.text for document in corpus()]
TEXTS = ABSTRACTS[:6]
OTHERS = ABSTRACTS[-6:]


def write(path, content):
    path.parent.mkdir(exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return str(path)


def folder_of_texts(folder, texts):
    for number, text in enumerate(texts):
        write(folder / f"{number}.txt", text)
    return str(folder)


def lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


SIDES = {
    "a list of strings": lambda folder, texts: write(folder / "list.json", list(texts)),
    "lines of strings": lambda folder, texts: write(folder / "lines.jsonl", lines(texts)),
    "rows": lambda folder, texts: write(folder / "rows.jsonl", lines({"text": text} for text in texts)),
    "a folder of .txt": lambda folder, texts: folder_of_texts(folder / "texts", texts),
    "one .txt": lambda folder, texts: write(folder / "one.txt", texts[0]),
    "a table": lambda folder, texts: write(folder / "a.json", {"text": dict(enumerate(texts))}),
    "data": lambda folder, texts: write(folder / "b.json", {"data": [{"text": text} for text in texts]}),
}


@pytest.mark.parametrize("layout", SIDES)
def test_members_and_nonmembers_lie_in_files_of_their_own(layout, tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    members = SIDES[layout](tmp_path / "in", TEXTS)
    nonmembers = SIDES[layout](tmp_path / "out", OTHERS)
    read = load_texts(DataConfig(members=(members,), nonmembers=(nonmembers,)), ModelConfig())
    count = 1 if layout == "one .txt" else 6
    assert {document.text for document in read.documents if document.member} == set(TEXTS[:count])
    assert {document.text for document in read.documents if document.member is False} == set(OTHERS[:count])
    assert set(read.sources) == {members, nonmembers}


def test_sides_that_say_something_else_are_refused(tmp_path):
    members = write(tmp_path / "a.jsonl", lines({"text": text, "label": 1} for text in TEXTS))
    others = write(tmp_path / "b.jsonl", lines({"text": text, "label": 1} for text in OTHERS))
    for settings, message in (
        (DataConfig(members=(members,), nonmembers=(others,)), r"nonmembers must hold no .* label 1; \S+b\.jsonl:1"),
        (DataConfig(members=(members,)), "members must come with --nonmembers, and both must be given; got no --nonm"),
        (DataConfig(nonmembers=(others,)), "got no --members"),
        (DataConfig(data=(members,), members=(members,), nonmembers=(others,)), "data must not come with --members"),
        (DataConfig(members=(members,), nonmembers=(members,), columns="label=-"), "must not share texts; 6 pairs"),
    ):
        with pytest.raises(UsageError, match=message):
            load_texts(settings, ModelConfig())
    own_labels = DataConfig(members=(members,), nonmembers=(others,), columns="label=-")
    assert len(load_texts(own_labels, ModelConfig()).documents) == 12


def test_an_audit_takes_sides_and_texts_to_judge(tmp_path):
    config = AuditConfig(
        members=(folder_of_texts(tmp_path / "in", ABSTRACTS[:20]),),
        nonmembers=(write(tmp_path / "out.json", ABSTRACTS[-60:]),),
        data=(write(tmp_path / "asked.json", ABSTRACTS[30:33]),),
        adapter="none",
        fpr=0.2,
    )
    parts, judged, _ = texts_of(config)
    assert len(parts.judged) == 80
    assert len(judged) == 3


def test_what_was_read_stands_in_the_dry_run_and_at_the_end(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rows = [{"text": text, "context": "Before.", "label": number % 2} for number, text in enumerate(TEXTS + TEXTS[:1])]
    file = write(tmp_path / "a.jsonl", lines(rows))
    read = "7 texts scored after their context (--columns context=- leaves it out); 1 of 7 rows repeat another one"
    config = ScoreConfig((file,), "s.csv", cleaning=CleaningConfig(near_duplicates="refuse"))
    config = replace(config, detection=replace(config.detection, detectors="loss"))
    planned = job.prepare(replace(config, columns="label=-"))
    assert dict(planned.plan().facts)["read"].startswith(read)
    planned.run()
    assert f"read    {read}" in capsys.readouterr().out
    # Nothing is said of the plain case.
    plain = job.prepare(replace(config, columns="label=-,context=-", data=(write(tmp_path / "b.json", TEXTS),)))
    assert "read" not in dict(plain.plan().facts)
    assert prepare(FSDConfig()).read == ""


def test_a_command_reads_the_columns_that_it_uses(tmp_path):
    foreign = {"label": "B", "date": "2019", "source": {"name": "x"}, "context": ["y"]}
    file = write(tmp_path / "a.jsonl", lines({"text": text, **foreign} for text in TEXTS + OTHERS))
    inputs = read(ContaminationConfig((file,)))
    assert [document.member for document in inputs.suspect] == [None] * 12
    with pytest.raises(UsageError, match="label must be 1"):
        read(ContaminationConfig((file,), columns="label=label"))
    config = ScoreConfig((file,), str(tmp_path / "s.csv"))
    with pytest.raises(UsageError, match=r"--columns context=-$"):
        job.prepare(config)
    assert job.prepare(replace(config, columns="label=-,context=-")).texts == TEXTS + OTHERS
