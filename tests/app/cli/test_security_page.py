"""The table of docs/reference/security.md says what the commands do.

Their names, options, model formats and files.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer

from pseudocal.app.cli import app
from pseudocal.app.models.files import CAN_RUN_CODE, OPENERS
from pseudocal.app.monitor_folder import FILES, FOLDERS
from pseudocal.app.publishing import DECIDED, STAGED
from pseudocal.app.run import COLLECTED, LABEL_PAGE, LABEL_TABLE, PARTS, RENDERED

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "security.md"
CONSENT = re.compile(r"--trust-[a-z]+")


class Row(NamedTuple):
    what: str
    commands: set[str]
    consent: str

    @property
    def names(self) -> set[str]:
        return set(re.findall(r"`([^`]+)`", self.what))


def table() -> list[Row]:
    """The rows of the first table of the page."""
    lines = (
        PAGE.read_text(encoding="utf-8")
        .split("\n|---|---|---|---|\n")[1]
        .split("\n\n")[0]
        .splitlines()
    )
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [Row(cells[0], set(re.findall(r"`([^`]+)`", cells[1])), cells[2]) for cells in rows]


def options() -> dict[str, set[str]]:
    """The options of each command."""
    found: dict[str, set[str]] = {}

    def walk(group: Any, before: str) -> None:
        for name, command in group.commands.items():
            if hasattr(command, "commands"):
                walk(command, f"{before}{name} ")
            else:
                found[before + name] = {text for each in command.params for text in each.opts}

    walk(typer.main.get_command(app), "")
    return found


def test_every_command_is_in_the_table_and_no_other():
    assert set().union(*(row.commands for row in table())) == set(options())


@pytest.mark.parametrize("flag", ["--trust-model", "--trust-paths"])
def test_a_command_has_a_flag_of_consent_where_the_table_says_so(flag):
    listed = [row.commands for row in table() if flag in row.consent]
    assert set().union(*listed) == {name for name, known in options().items() if flag in known}


def test_there_are_no_other_flags_of_consent():
    there = {flag for known in options().values() for flag in known if CONSENT.fullmatch(flag)}
    assert there == {flag for row in table() for flag in CONSENT.findall(row.consent)}


def test_the_formats_that_can_run_code_are_those_that_need_trust():
    rows = {name: row for row in table() for name in re.findall(r"\(`(.+?)`\)", row.what)}
    rows |= {
        name: row
        for row in table()
        if "(`surrogate`" in row.what
        for name in ("surrogate", "zero-shot")
    }
    assert set(OPENERS) - set(rows) == set(), f"each needs a row with (`kind`) in {PAGE.name}"
    for kind in OPENERS:
        assert ("--trust-model" in rows[kind].consent) == (kind in CAN_RUN_CODE), kind


def test_every_file_of_a_result_folder_is_in_the_table():
    listed = {
        name.rstrip("/") for row in table() if row.what.startswith("OUT:") for name in row.names
    }
    written = {*COLLECTED, *RENDERED, LABEL_PAGE, LABEL_TABLE, PARTS, STAGED, DECIDED}
    further = {name for name in COLLECTED if re.fullmatch(r"second-\d\d?.npy", name)}
    assert listed == written - further | {"second-0.npy", "second-1.npy"}


def test_every_file_of_a_monitor_is_in_the_table():
    rows = [row for row in table() if row.what.startswith("MONITOR:")]
    listed = {name.rstrip("/") for row in rows for name in row.names}
    assert listed == {*FILES, *FOLDERS}
