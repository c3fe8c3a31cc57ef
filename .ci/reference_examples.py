"""Examples of docstrings as code in the reference.

Markdown takes the lines that begin with `>>>` for nested quotes.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"^>>> ")


def fenced(text: str) -> str:
    """Put fences around the examples of a docstring.

    From a line with `>>>` to the next empty line.
    """
    lines: list[str] = []
    inside = False
    for line in text.split("\n"):
        if not inside and EXAMPLE.match(line):
            lines.append("```pycon")
            inside = True
        if inside and not line.strip():
            lines.append("```")
            inside = False
        lines.append(line)
    return "\n".join([*lines, *(["```"] if inside else [])])


class ReferenceExamples(griffe.Extension):
    """Fence the examples of every docstring before it is parsed."""

    def on_instance(self, *, obj: Any, **_: Any) -> None:
        """Change the docstring of one object."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)
