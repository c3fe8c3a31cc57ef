"""Log-probabilities of options: the page docs/howto/language_models.md, and what lm-eval writes."""

from __future__ import annotations

import csv
import json
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pseudocal import Calibration, InputError, rows_to_label, softmax
from pseudocal.app.inputs.choices import read_choices

PAGE = Path(__file__).parents[3] / "docs" / "howto" / "language_models.md"
N = 300
SECRET = "the right answer"


@pytest.fixture
def logprobs() -> np.ndarray:
    logits = 3 * np.random.default_rng(0).normal(size=(N, 4))
    return np.log(softmax(logits))


@pytest.fixture
def truth(logprobs: np.ndarray) -> np.ndarray:
    return (logprobs / 2 + np.random.default_rng(1).gumbel(size=logprobs.shape)).argmax(axis=1)


def write_lines(path: Path, lines: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def plain(logprobs: np.ndarray) -> list[dict[str, Any]]:
    return [
        {
            "id": f"q{i}",
            "question": f"What is {i}?",
            "options": [f"option {i} {j}" for j in range(4)],
            "logprobs": row,
            "answer": SECRET,
        }
        for i, row in enumerate(logprobs.tolist())
    ]


def sample(i: int, row: list[float], *, new: bool = True, prompt: str = "Q: ") -> dict[str, Any]:
    """A line as lm-evaluation-harness writes it: numbers are texts in newer versions."""
    pairs = [[f"{prompt}{i}", f" {letter}"] for letter in "ABCD"]
    arguments: Any = pairs
    answers: list[Any] = [[value, False] for value in row]
    if new:
        arguments = {
            f"gen_args_{j}": {"arg_0": context, "arg_1": continuation}
            for j, (context, continuation) in enumerate(pairs)
        }
        answers = [[str(value), "False"] for value in row]
    document = {"question": f"What is {i}?", "choices": list("wxyz"), "answer": SECRET}
    return {
        "doc_id": i,
        "doc": document,
        "target": SECRET,
        "arguments": arguments,
        "resps": [[answer] for answer in answers],
        "filtered_resps": answers,
        "acc": 1.0,
    }


def test_the_four_commands_of_the_page(pseudocal, logprobs, truth, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_lines(tmp_path / "choices.jsonl", plain(logprobs))
    answers = [["file", "label"], *([f"q{i}", "ABCD"[label]] for i, label in enumerate(truth))]
    with open("truth.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(answers)
    commands = re.search(r"```console\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert commands is not None
    outputs = {}
    for line in commands[1].splitlines():
        if not line.startswith("$ pseudocal "):
            continue
        words = shlex.split(line.removeprefix("$ "))
        if words[1] == "refine":
            label_as_a_person(Path("choices"), dict(answers[1:]))
        done = pseudocal(*words[1:])
        assert done.code == 0, done.err
        outputs[words[1]] = done.out
    assert list(outputs) == ["label", "refine", "apply", "evaluate"]
    page = Path("choices/label.html").read_text(encoding="utf-8")
    first = rows_to_label(logprobs, 1)[0]
    assert f"What is {first}?" in page
    assert f"option {first} 2" in page
    assert SECRET not in page
    calibration = Calibration.load("choices/calibration.json")
    assert calibration.measured.labels == 50
    with open("calibrated-choices.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["file", "A", "B", "C", "D"]
    assert [row["file"] for row in rows] == [f"q{i}" for i in range(N)]
    found = np.array([[float(row[letter]) for letter in "ABCD"] for row in rows])
    np.testing.assert_allclose(found, calibration.probabilities(logprobs), atol=1e-5)
    assert "accuracy" in outputs["evaluate"]


def label_as_a_person(out: Path, answers: dict[str, str]) -> None:
    with (out / "to-label.csv").open(newline="", encoding="utf-8") as file:
        names = [row["file"] for row in csv.DictReader(file)]
    lines = ["file,label", *(f"{name},{answers[name]}" for name in names)]
    Path("labels.csv").write_text("\n".join(lines), encoding="utf-8")


@pytest.mark.parametrize("new", [True, False])
def test_samples_of_lm_evaluation_harness(new, logprobs, tmp_path):
    rows = logprobs.tolist()
    lines = [sample(i, row, new=new) for i, row in enumerate(rows)]
    choices = read_choices(write_lines(tmp_path / "samples_mmlu.jsonl", lines))
    np.testing.assert_allclose(choices.logits, logprobs)
    assert choices.names == tuple(map(str, range(N)))
    assert choices.classes == ("A", "B", "C", "D")
    assert choices.columns["question"][7] == "What is 7?"
    assert [choices.columns[letter][7] for letter in "ABCD"] == list("wxyz")
    assert SECRET not in str(choices.columns)


def test_prompts_of_one_question_are_averaged(logprobs, tmp_path):
    other = np.roll(logprobs, 1, axis=1)
    mean = np.log((np.exp(logprobs) + np.exp(other)) / 2)
    of_harness = [sample(i, row) for i, row in enumerate(logprobs.tolist())]
    of_harness += [sample(i, row, prompt="Question ") for i, row in enumerate(other.tolist())]
    without_id = plain(logprobs) + plain(other)
    for line in without_id:
        del line["id"]
    for lines in (plain(logprobs) + plain(other), without_id, of_harness):
        choices = read_choices(write_lines(tmp_path / "both.jsonl", lines))
        np.testing.assert_allclose(choices.logits, mean, atol=1e-9)


def test_classes_by_name_and_questions_with_fewer_options(tmp_path):
    lines: list[dict[str, Any]] = [{"logprobs": {"positive": -0.1, "negative": -2.4}}] * 3
    choices = read_choices(write_lines(tmp_path / "a.jsonl", lines))
    assert choices.classes == ("negative", "positive")
    assert choices.logits.argmax(axis=1).tolist() == [1, 1, 1]
    lines = [{"logprobs": [-1.0, -2.0, -3.0]}, {"logprobs": [-2.0, -1.0]}]
    choices = read_choices(write_lines(tmp_path / "b.jsonl", lines))
    assert softmax(choices.logits)[1].round(3).tolist() == [0.269, 0.731, 0.0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "which is empty"),
        ("[1, 2]\n", "a JSON object with logprobs"),
        ("{\n", "line 1 of"),
        ('{"logprobs": [-1.0]}\n', "2 to 26 options"),
        ('{"logprobs": [-1.0, NaN]}\n', "finite log-probabilities"),
        ('{"filtered_resps": ["Paris", "London"]}\n', "not one that generates text"),
        ('{"logprobs": {"a": 0, "b": 2}}\n{"logprobs": {"a": 0, "c": 1}}\n', "other classes"),
        ('{"logprobs": [0.2, 0.8]}\n{"logprobs": [0.5, 0.3, 0.2]}\n', "got probabilities"),
        ('{"id": 1, "logprobs": [0, 2]}\n{"id": 1, "logprobs": [0, 1, 2]}\n', "different numbers"),
    ],
)
def test_what_is_wrong_is_named(text, message, tmp_path):
    (tmp_path / "a.jsonl").write_text(text)
    with pytest.raises(InputError, match=message):
        read_choices(tmp_path / "a.jsonl")


def test_log_probabilities_alone_are_labelled_by_name(pseudocal, logprobs, tmp_path):
    lines = [{"id": f"q{i}", "logprobs": row} for i, row in enumerate(logprobs.tolist())]
    path = write_lines(tmp_path / "a.jsonl", lines)
    done = pseudocal("label", path, "-n", 5)
    assert done.code == 0, done.err
    page = (tmp_path / "a" / "label.html").read_text()
    row = rows_to_label(read_choices(path).logits, 5)[0]
    assert f'"q{row}"' in page
    with_options = [line | {"options": list("wxyz")} for line in lines]
    done = pseudocal("label", write_lines(tmp_path / "b.jsonl", with_options), "-n", 5)
    assert done.code == 0, done.err
    assert '["D", "z"]' in (tmp_path / "b" / "label.html").read_text()
