"""Run the tutorial notebook, and check or renew the outputs stored in it.

    python .ci/run_notebook.py            # say which cells differ
    python .ci/run_notebook.py --write    # store what the cells print and show

It needs no Jupyter: the cells run in this process, and the value of a last line is stored as
Jupyter stores it, `text/plain` and, if the value has it, `text/html`.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NOTEBOOK = Path(__file__).parents[1] / "examples" / "tutorial.ipynb"


def outputs_of(source: str, session: dict[str, Any], number: int) -> list[dict[str, Any]]:
    r"""Run a cell and return what Jupyter would store.

    >>> outputs_of("x = 2\nx + 1", {}, 1)[0]["data"]
    {'text/plain': ['3']}
    """
    body = ast.parse(source)
    last = body.body[-1] if body.body else None
    value = None
    stream = io.StringIO()
    with contextlib.redirect_stdout(stream):
        if isinstance(last, ast.Expr):
            body.body.pop()
            exec(compile(body, "cell", "exec"), session)
            value = eval(compile(ast.Expression(last.value), "cell", "eval"), session)
        else:
            exec(compile(body, "cell", "exec"), session)
    outputs: list[dict[str, Any]] = []
    if stream.getvalue():
        text = stream.getvalue().splitlines(keepends=True)
        outputs.append({"name": "stdout", "output_type": "stream", "text": text})
    if value is not None:
        data = {"text/plain": repr(value).splitlines(keepends=True)}
        if hasattr(value, "_repr_html_"):
            data["text/html"] = value._repr_html_().splitlines(keepends=True)
        outputs.append(
            {
                "data": data,
                "execution_count": number,
                "metadata": {},
                "output_type": "execute_result",
            }
        )
    return outputs


def executed(notebook: dict[str, Any]) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Each cell of code, and the outputs that it has when the notebook runs in an empty folder."""
    session: dict[str, Any] = {"__name__": "__main__"}
    before = Path.cwd()
    number = 0
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            for cell in notebook["cells"]:
                if cell["cell_type"] == "code":
                    number += 1
                    yield cell, outputs_of("".join(cell["source"]), session, number)
        finally:
            os.chdir(before)


def comparable(outputs: list[dict[str, Any]]) -> list[Any]:
    """What must not change: the text, or the HTML where there is any (its numbers are rounded)."""
    found = []
    for output in outputs:
        data = output.get("data", {})
        found.append(output.get("text") or data.get("text/html") or data["text/plain"])
    return found


def main(write: bool) -> int:
    """Check or renew the notebook; return how many cells differ."""
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    differing = 0
    for number, (cell, outputs) in enumerate(executed(notebook), 1):
        if comparable(outputs) != comparable(cell["outputs"]):
            differing += 1
            print(f"cell {number} differs")
        cell["outputs"] = outputs
        cell["execution_count"] = number
    if write:
        NOTEBOOK.write_text(json.dumps(notebook, indent=1) + "\n", encoding="utf-8")
    return differing


if __name__ == "__main__":
    write = "--write" in sys.argv
    differing = main(write)
    sys.exit(differing > 0 and not write)
