"""The words of the field: those we gave up are gone from names, messages and docs."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
SRC = ROOT / "src" / "pseudocal"
GIVEN_UP = {
    r"students?(?!'s\b| t\b)": "surrogate",
    r"rivals?": "baseline",
    r"forecasts?": "estimated accuracy",
    r"syntheses|synthesis|synthesise": "mixup variant",
    r"pictures?": "image",
    r"answers?(?=\b|_)": "labels",
    r"distrust": "unreliable",
    r"mixes": "mixup samples",
    r"consensus_of|no_evidence|surely_mistaken|settled|Attending|PlaceToRun": "",
    r"labels[_-]are|drawn_by": "sampling",
    r"sure(?=\b)|unsure": "confident",
}
NAMES = re.compile("|".join(rf"(?:^|_){word}(?:$|_)" for word in GIVEN_UP), re.IGNORECASE)
PROSE = re.compile("|".join(rf"\b{word}\b" for word in GIVEN_UP), re.IGNORECASE)
# Student's t, a verb, and what others call so
ALLOWED = re.compile(
    r"Student's|_?student_t|mixes (pairs|two|inputs|them|it|a|the|its|image|images|whole|pixels)\b"
)


def names_and_texts(path: Path) -> Iterator[tuple[str, bool]]:
    """The identifiers and the string literals of a module; docstrings are literals too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            yield node.name, True
        elif isinstance(node, ast.arg):
            yield node.arg, True
        elif isinstance(node, ast.Name):
            yield node.id, True
        elif isinstance(node, ast.Attribute):
            yield node.attr, True
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value, False


def test_names_and_messages() -> None:
    found = []
    for path in sorted(SRC.rglob("*.py")):
        for text, is_name in names_and_texts(path):
            pattern = NAMES if is_name else PROSE
            match = pattern.search(ALLOWED.sub("", text))
            if match:
                found.append(
                    f"{path.relative_to(SRC)}: {match.group().strip('_')} in {text[:60]!r}"
                )
    assert sorted(set(found)) == []


def test_templates_and_docs() -> None:
    found = []
    pages = [
        *SRC.rglob("*.html"),
        *SRC.rglob("*.js"),
        ROOT / "README.md",
        *(ROOT / "docs").rglob("*.md"),
    ]
    for path in sorted(pages):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            match = PROSE.search(ALLOWED.sub("", line))
            if match:
                found.append(f"{path.relative_to(ROOT)}:{number}: {match.group()}")
    assert found == []
