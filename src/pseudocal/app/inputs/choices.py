"""Log-probabilities of the options of multiple-choice questions, in a JSONL file.

There is one JSON object per line, in one of two forms:

- `logprobs`: a list with a number for each option, or an object with a number for each class. The
  other keys are `id`, `question` and `options` (a list of texts), none of which is needed.
- a sample of lm-evaluation-harness (`--log_samples`): `filtered_resps` has the log-likelihood of
  each option, `arguments` the prompts, `doc` the question.

Lines of the same question are different prompts. They are one opinion: their probabilities are
averaged. Ground truth in the file (`target`, `label`, other keys of `doc`) is never read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from string import ascii_uppercase
from typing import Any

import numpy as np

from pseudocal.app.inputs.tables import check_regular
from pseudocal.arrays import Floats, InputError, Logits, looks_like_probabilities
from pseudocal.files import brief

JSONL = ".jsonl"
QUESTION = "question"
# where documents of lm-evaluation-harness have the question; the prompt is the last resort
QUESTION_KEYS = ("question", "query", "ctx", "goal", "sentence", "premise", "text", "prompt")
MISSING_OPTION = -30.0  # below the least likely option, where a question has fewer than others
MOST_OPTIONS = len(ascii_uppercase)


@dataclass(frozen=True)
class Choices:
    """Questions with their options.

    Attributes:
        names: The name of each question.
        logits: The log-probabilities of the options, `(questions, options)`.
        classes: What the options are called: class names, or letters.
        columns: What a person is shown: the question, and the text of each option.

    """

    names: tuple[str, ...]
    logits: Logits
    classes: tuple[str, ...]
    columns: dict[str, list[str]]


@dataclass(frozen=True)
class _Line:
    key: str  # equal for prompts of one question
    name: Any  # None without one
    logprobs: list[float]
    classes: tuple[str, ...]  # empty if the options differ from question to question
    question: str
    options: list[str]


def read_choices(path: Path) -> Choices:
    """Read a JSONL file of log-probabilities; prompts of one question are averaged."""
    lines = list(_lines(path))
    if not lines:
        raise InputError(f"expected one JSON object per line, got {path}, which is empty")
    if all(looks_like_probabilities(np.array([line.logprobs])) for line in lines):
        raise InputError(
            f"expected log-probabilities, got probabilities in {path}: {brief(lines[0].logprobs)} "
            "sum to 1; write their logarithms, math.log(p)"
        )
    classes = lines[0].classes
    questions: dict[str, list[_Line]] = {}
    for number, line in enumerate(lines, start=1):
        if line.classes != classes:
            raise InputError(f"{path} has other classes in line {number} than in line 1")
        questions.setdefault(line.key, []).append(line)
    width = max(len(line.logprobs) for line in lines)
    rows = []
    for prompts in questions.values():
        if len({len(prompt.logprobs) for prompt in prompts}) > 1:
            raise InputError(
                f"{path} has prompts of one question with different numbers of options: "
                f"{brief(prompts[0].question or prompts[0].key)}"
            )
        row = _averaged([prompt.logprobs for prompt in prompts])
        # options that only other questions have are all but impossible
        missing = row.min() + MISSING_OPTION
        rows.append(np.pad(row, (0, width - len(row)), constant_values=missing))
    firsts = [prompts[0] for prompts in questions.values()]
    names = [str(i) if one.name is None else str(one.name) for i, one in enumerate(firsts)]
    letters = tuple(ascii_uppercase[:width])
    columns = {}
    if any(one.question for one in firsts):
        columns[QUESTION] = [one.question for one in firsts]
    if any(one.options for one in firsts):
        padded = [[*one.options, *[""] * width][:width] for one in firsts]
        columns |= {letter: [each[i] for each in padded] for i, letter in enumerate(letters)}
    return Choices(tuple(names), np.stack(rows), classes or letters, columns)


def _averaged(prompts: list[list[float]]) -> Floats:
    """The logarithm of the mean probabilities of several prompts.

    >>> np.exp(_averaged([[0.0, 0.0], [np.log(0.9), np.log(0.1)]])).round(3)
    array([0.7, 0.3])
    """
    values = np.array(prompts, dtype=np.float64)
    of_options = values - np.logaddexp.reduce(values, axis=1, keepdims=True)
    mean: Floats = np.logaddexp.reduce(of_options, axis=0) - np.log(len(prompts))
    return mean


def _lines(path: Path) -> Iterator[_Line]:
    check_regular(path, "a JSONL file")
    with path.open(encoding="utf-8-sig", errors="strict") as file:
        try:
            for number, text in enumerate(file, start=1):
                if text.strip():
                    yield _line(text, f"line {number} of {path}", number)
        except UnicodeDecodeError as error:
            raise InputError(f"{path} is not text in UTF-8") from error


def _line(text: str, where: str, number: int) -> _Line:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"expected a JSON object, got {where}: {error}") from error
    if isinstance(content, dict) and "logprobs" in content:
        return _plain(content, where, number)
    if isinstance(content, dict) and "filtered_resps" in content:
        return _sample(content, where)
    raise InputError(
        f"expected a JSON object with logprobs, or a sample of lm-evaluation-harness, got {where}"
    )


def _plain(content: Mapping[str, Any], where: str, number: int) -> _Line:
    values = content["logprobs"]
    classes: tuple[str, ...] = ()
    if isinstance(values, dict):
        classes = tuple(sorted(values))
        values = [values[name] for name in classes]
    question = _text(content.get("question"))
    options = _texts(content.get("options"))
    name = content.get("id")
    key = json.dumps([name])
    if name is None:
        key = json.dumps([question, options]) if question else str(number)
    return _Line(key, name, _numbers(values, where), classes, question, options)


def _sample(content: Mapping[str, Any], where: str) -> _Line:
    responses = content["filtered_resps"]
    if not isinstance(responses, list):
        raise InputError(f"expected filtered_resps as a list, got {where}")
    values = [each[0] if isinstance(each, list) and each else each for each in responses]
    document = content.get("doc")
    if not isinstance(document, dict):
        document = {}
    prompts = _prompts(content.get("arguments"))
    texts = [document.get(key) for key in QUESTION_KEYS] + [prompt for prompt, _ in prompts]
    question = next((text for text in texts if isinstance(text, str)), "")
    options = _options(document, prompts, len(values))
    key = json.dumps(document or [content.get("doc_id"), question], sort_keys=True, default=str)
    return _Line(key, content.get("doc_id"), _numbers(values, where), (), question, options)


def _prompts(arguments: Any) -> list[tuple[str, str]]:
    """Prompt and continuation of each option: newer versions write objects, older ones lists."""
    pairs = [_items(each) for each in _items(arguments)]
    return [(_text(pair[0]), _text(pair[1])) for pair in pairs if len(pair) >= 2]


def _options(document: Mapping[str, Any], prompts: list[tuple[str, str]], count: int) -> list[str]:
    """The texts of the options, from the document or else from the prompts."""
    choices = document.get("choices", document.get("options"))
    if isinstance(choices, dict):
        choices = choices.get("text")
    texts = _texts(choices)
    if len(texts) == count:
        return texts
    continuations = [continuation.strip() for _, continuation in prompts]
    if len(set(continuations)) > 1:
        return continuations
    return [prompt for prompt, _ in prompts]


def _numbers(values: Any, where: str) -> list[float]:
    if not isinstance(values, list) or not 2 <= len(values) <= MOST_OPTIONS:
        raise InputError(
            f"expected log-probabilities of 2 to {MOST_OPTIONS} options, got {brief(values)} in "
            f"{where}"
        )
    try:
        numbers = [float(value) for value in values]
    except (TypeError, ValueError) as error:
        raise InputError(
            f"expected log-probabilities, got {brief(values)} in {where}: run a task with options, "
            "not one that generates text"
        ) from error
    if not np.isfinite(numbers).all():
        raise InputError(f"expected finite log-probabilities, got {brief(values)} in {where}")
    return numbers


def _items(value: Any) -> list[Any]:
    """The items of a list, or the values of an object."""
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _texts(values: Any) -> list[str]:
    return [str(value) for value in values] if isinstance(values, list) else []
