"""Run the pages whose blocks run as pasted, and check or renew the output that they show.

    python .ci/run_pages.py            # say which outputs differ
    python .ci/run_pages.py --write    # put what was printed into the pages

All blocks of a page run in one empty folder and share one Python session, from top to bottom.
A `python` block shows its output in the `text` block right after it. In a `console` block, the
output of a command follows its line. Times, dates and the folder are not compared. `pip` and `make`
are not run. A line `...` stands for omitted lines.

How-to pages show the results of commands, not what they say about the model and the data on
standard error, and some outputs not at all. Python that shows no output is not run there, but for
the page on tables. Give names of pages to run only these: `run_pages.py label watch`.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import runpy
import shlex
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
README = (
    ROOT / "README.md"
)  # its commands need files: tests/app/cli/test_commands_of_docs.py runs them
HOWTO = ROOT / "docs" / "howto"
TABLES = HOWTO / "tables.md"
HOWTO_NAMES = (
    "images",
    "tables",
    "text",
    "language_models",
    "segmentation",
    "label",
    "thresholds",
    "deploy",
    "watch",
)
PAGES = [
    README,
    ROOT / "docs" / "quickstart.md",
    ROOT / "docs" / "comparison.md",
    *(HOWTO / f"{name}.md" for name in HOWTO_NAMES),
]
NOT_RUN = ("pip ", "make ", "python -m venv")
# need models that a page does not make; tests/app/cli/test_commands_of_docs.py says where they run
NOT_RUN += ("pseudocal demo", "pseudocal calibrate sentiment/", "pseudocal calibrate segformer/")
LEFT_OUT = "..."
BLOCK = re.compile(
    r"^```(?P<language>\w+)\n(?P<body>.*?)^```\n(?:\n```text\n(?P<output>.*?)^```\n)?",
    re.MULTILINE | re.DOTALL,
)
NUMBER = re.compile(r"[+-]?\d[\d,.]*")
# what differs from run to run: seconds, dates
VARIES = re.compile(r"\d+(?:\.\d+)? m?s\b|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")


@dataclass(frozen=True)
class Output:
    """The output of one piece of code: what the page shows, and what was printed."""

    code: str
    shown: str
    printed: str

    @property
    def agrees(self) -> bool:
        r"""Whether the page shows what was printed, but for what varies and what is left out.

        >>> Output("", "in 3.1 s\n...\nend\n", "in 2.7 s\na\nb\nend\n").agrees
        True
        >>> Output("", "in 3.1 s\n", "in 2.7 s\nb\n").agrees
        False
        """
        pattern = ""
        for line in VARIES.sub("#", self.shown).splitlines():
            pattern += "(?:.*\n)*" if line == LEFT_OUT else re.escape(line) + "\n"
        return re.fullmatch(pattern, VARIES.sub("#", self.printed)) is not None

    @property
    def renewed(self) -> str:
        r"""What the page should show: the same lines, with the numbers that were printed.

        >>> Output("", "a 1\n...\n", "a 2\nb\n").renewed
        'a 2\n...\n'
        >>> Output("", "a 1\n...\n", "c\nb\n").renewed
        'c\nb\n'
        """
        rest = self.printed.splitlines()
        lines = []
        gap = False
        for line in self.shown.splitlines():
            if line == LEFT_OUT:
                gap = True
                lines.append(line)
                continue
            while gap and rest and NUMBER.sub("#", rest[0]) != NUMBER.sub("#", line):
                rest.pop(0)
            if not rest or NUMBER.sub("#", rest[0]) != NUMBER.sub("#", line):
                return self.printed
            lines.append(rest.pop(0))
            gap = False
        if rest and not gap:
            return self.printed
        return "".join(f"{line}\n" for line in lines)


@contextlib.contextmanager
def empty_folder() -> Iterator[None]:
    """Work in an empty folder."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)


def printed_by(run: Any, *arguments: Any, errors: bool = True) -> str:
    """What a function prints, without spaces at the end of lines; on either stream, or without errors."""
    stream = io.StringIO()
    other = stream if errors else io.StringIO()
    with contextlib.redirect_stdout(stream), contextlib.redirect_stderr(other):
        run(*arguments)
    return re.sub(r"[ \t]+$", "", stream.getvalue(), flags=re.MULTILINE)


def run_command(line: str) -> None:
    """Run a command of ours; the exit codes from 10 to 12 are verdicts and alarms."""
    from pseudocal.app.cli import main

    words = shlex.split(line.partition(" && ")[0], comments=True)
    if words[:2] == ["python", "howto_files.py"]:
        runpy.run_path(str(HOWTO / "howto_files.py"))["main"](words[2:])
        return
    if words.pop(0) != "pseudocal":
        raise ValueError(f"expected a command of pseudocal, got {line}")
    code = main(words)
    if code not in (0, 10, 11, 12):
        raise RuntimeError(f"{line} ended with {code}")


def console_outputs(body: str, howto: bool) -> Iterator[Output]:
    """Run the commands of a console block."""
    for part in re.split(r"^(?=\$ )", body, flags=re.MULTILINE):
        line, _, shown = part.partition("\n")
        command = line.removeprefix("$ ")
        if command and not command.startswith(NOT_RUN):
            printed = printed_by(run_command, command, errors=not howto)
            if shown or not howto:
                yield Output(command, shown, printed)


def outputs_of(page: Path) -> Iterator[Output]:
    """Run the blocks of a page in the current folder."""
    text = page.read_text(encoding="utf-8")
    session: dict[str, Any] = {"__name__": "__main__"}
    howto = page.parent == HOWTO
    for block in BLOCK.finditer(text):
        body = block["body"]
        if block["language"] == "console" and page != README:
            yield from console_outputs(body, howto)
        elif block["language"] == "python":
            if howto and page != TABLES and block["output"] is None:
                continue
            code = compile(body, "page", "exec")
            yield Output(body, block["output"] or "", printed_by(exec, code, session))


def renewed(text: str, outputs: list[Output]) -> str:
    """The page with what was printed where it differs.

    Lines that it left out stay so, if the others differ in numbers only; otherwise they come back.
    """
    for output in outputs:
        if output.agrees:
            continue
        if output.code.endswith("\n"):  # Python
            fence = "```\n\n```text\n"
            text = text.replace(
                output.code + fence + output.shown, output.code + fence + output.renewed, 1
            )
        else:
            line = f"$ {output.code}\n"
            text = text.replace(line + output.shown, line + output.renewed, 1)
    return text


def main(write: bool, names: list[str]) -> int:
    """Check or renew the pages of these names, or all; return how many outputs differ."""
    differing = 0
    for page in [page for page in PAGES if not names or page.stem in names]:
        with empty_folder():
            outputs = list(outputs_of(page))
        wrong = [output for output in outputs if not output.agrees]
        differing += len(wrong)
        for output in wrong:
            print(f"{page.name}: {output.code.splitlines()[-1]}\n{output.printed}")
        if write:
            text = page.read_text(encoding="utf-8")
            page.write_text(renewed(text, outputs), encoding="utf-8")
    return differing


if __name__ == "__main__":
    write = "--write" in sys.argv
    differing = main(write, [word for word in sys.argv[1:] if word != "--write"])
    sys.exit(differing > 0 and not write)
