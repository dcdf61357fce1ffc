"""The accuracy of a task on the items that are judged seen, and on the others."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from extensions.contamination.accuracy import accuracy, interval, of_side
from fsd.data.corpus import Corpus
from fsd.data.documents import Document
from fsd.plugs import Question
from fsd.token_stats import Prompt
from fsd.tracking import fetch_artifact
from fsd.verdicts.dataset_inference import dataset_verdict


def judged(marks: list[float], family_p: list[float]) -> dict[str, float]:
    """The accuracy of a data set with a question of two answers for each text, which are marked as given."""
    texts = Corpus(Document(f"text {number}", origin_url=f"t:{number}") for number in range(len(family_p)))
    questions = [
        Question(f"t:{number}", (Prompt("a", "q"), Prompt("b", "q")), lambda answers, mark=mark: mark)
        for number, mark in enumerate(marks)
    ]

    def scorer(prompts):
        assert len(prompts) == 2 * len(marks)
        return [None] * len(prompts)

    return accuracy(texts, questions, family_p, 0.05, scorer)


def test_items_are_judged_by_the_rank_of_their_family() -> None:
    found = judged([1, 1, 0, 1, 0, 0], [0.01, 0.05, 0.05, 0.5, 0.9, 1.0])
    assert (found["seen_items"], found["others_items"]) == (3, 3)
    assert (found["seen"], found["others"]) == (pytest.approx(2 / 3), pytest.approx(1 / 3))
    assert interval(found, "seen") == ".67 [.09, .99]"


def test_items_without_a_mark_are_on_neither_side() -> None:
    found = judged([np.nan, 1], [0.01, 0.9, 0.01])
    assert found == {
        "seen_items": 0, "others_items": 1, "others": 1.0, "others_low": pytest.approx(0.025), "others_high": 1.0
    }  # fmt: skip
    assert [of_side(found, side) for side in ("seen", "others", "elsewhere")] == ["– (0)", "1.00 [.03, 1.00] (1)", "–"]
    assert judged([np.nan], [0.01] * 3) == {}


def test_a_family_of_unread_texts_is_judged_seen_as_often_as_the_level_says() -> None:
    rng = np.random.default_rng(0)
    shares = []
    raised = []
    for seed in range(40):
        known = {"loss": rng.standard_normal(60)}
        shares += dataset_verdict({"loss": rng.standard_normal(30)}, known, permutations=19, seed=seed).group_p
        raised += dataset_verdict({"loss": rng.standard_normal(30) + 2}, known, permutations=19, seed=seed).group_p
    assert 0.03 <= np.mean(np.array(shares) <= 0.05) <= 0.07
    assert np.mean(np.array(raised) <= 0.05) > 0.5


@pytest.mark.filterwarnings("ignore")
@pytest.mark.slow
def test_a_table_of_models_and_tasks_has_accuracy_beside_it(
    tiny: Path, make_rows: Callable, run_command: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("lm_eval", reason="the extra lm-eval is not installed")
    import yaml

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    rows = [
        {"q": row["text"], "options": ["one", "two", "three"], "right": n % 3}
        for n, row in enumerate(make_rows(120, 5))
    ]
    tasks = []
    for name, place in (("first", 0), ("second", 60)):
        for split, part in (("test", rows[place:][:20]), ("train", rows[place + 20 :][:40])):
            Path(f"{name}-{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in part))
        declared = {
            "task": name,
            "dataset_path": "json",
            "dataset_kwargs": {
                "data_files": {split: str(tmp_path / f"{name}-{split}.jsonl") for split in ("test", "train")}
            },
            "test_split": "test",
            "training_split": "train",
            "output_type": "multiple_choice",
            "doc_to_text": "q",
            "doc_to_choice": "options",
            "doc_to_target": "right",
        }
        Path(f"{name}.yaml").write_text(yaml.safe_dump(declared))
        tasks.append(f"lm-eval:{name}.yaml")
    line = f"contamination {' '.join(tasks)} --model {tiny} --known {tasks[0]}:train {tasks[1]}:train "
    line += "--orders 1 --sets 1 --detectors loss --device cpu --cache none --batch-size 20 --level .3 --json"
    printed = json.loads(run_command(line))
    cells = printed["tables"]["results"]
    assert len(cells) == 2
    for cell in cells:
        assert cell["accuracy_seen_items"] + cell["accuracy_others_items"] == 20
        whole = [cell[f"accuracy_{side}_items"] * (cell.get(f"accuracy_{side}") or 0) for side in ("seen", "others")]
        assert sum(whole) == pytest.approx(round(sum(whole)))
    page = fetch_artifact(printed["run"]["id"], "report.html").read_text()
    assert "accuracy, items judged seen" in page
