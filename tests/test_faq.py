"""The messages of the FAQ are those that pseudocal prints."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SRC = ROOT / "src" / "pseudocal"
FAQ = (ROOT / "docs" / "faq.md").read_text(encoding="utf-8")
MESSAGES = re.findall(r"^### `(.+)`$", FAQ, re.MULTILINE)
VARIES = "…"


def text_of(node: ast.AST) -> str | None:
    """A string of the source; what is filled in when it is printed becomes `…`."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return re.sub(r"\{[^{}]*\}", VARIES, node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(text_of(part) or VARIES for part in node.values)
    return None


def strings_of_source() -> list[str]:
    found = []
    for path in SRC.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            text = text_of(node)
            if text is not None:
                found.append(text)
    return found


STRINGS = strings_of_source()


def test_there_are_messages() -> None:
    assert len(MESSAGES) >= 15


@pytest.mark.parametrize("message", MESSAGES)
def test_a_message_is_in_the_source(message: str) -> None:
    pattern = ".*".join(map(re.escape, message.split(VARIES)))
    assert any(re.search(pattern, text, re.DOTALL) for text in STRINGS)
