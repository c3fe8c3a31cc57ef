"""Write docs/reference/cli.md from the command itself: `python .ci/cli_reference.py`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import typer

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "cli.md"
INTRODUCTION = """# Command line

This page is generated from the command (`pseudocal COMMAND --help` prints the same). Every command ends with
one of the [exit codes](files.md#exit-codes), and `--debug` shows the traceback of an error.
"""


def page() -> str:
    """The whole page."""
    from pseudocal.app.cli import app

    parts = [INTRODUCTION]
    for name, command in commands(typer.main.get_command(app), "pseudocal"):
        parts.append("\n".join(section(name, command)))
    return "\n".join(parts)


def commands(group: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    """All commands below a group, with their full names."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{prefix} {name}")
        else:
            yield f"{prefix} {name}", command


def section(name: str, command: Any) -> Iterator[str]:
    """The lines about one command: what it does, how to call it, and its parameters by group."""
    yield f"## {name}\n"
    yield f"{' '.join(command.help.split())}\n"
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option" and not p.hidden]
    words = [f"[{value_of(p)}]" if not p.required else value_of(p) for p in arguments]
    yield "```text"
    yield " ".join([name, *words, "[OPTIONS]"])
    yield "```\n"
    if arguments:
        yield from table("argument", [(code_of(p), p.help or "") for p in arguments])
    panels: dict[str, list[Any]] = {}
    for option in options:
        if option.name != "help":
            panels.setdefault(option.rich_help_panel or "Options", []).append(option)
    for panel, members in panels.items():
        yield from table(panel, [(flags_of(p), meaning_of(p)) for p in members])


def table(head: str, rows: list[tuple[str, str]]) -> Iterator[str]:
    """A table of two columns."""
    yield f"| {head} | |"
    yield "|---|---|"
    for left, right in rows:
        yield f"| {left} | {right.replace('|', chr(92) + '|')} |"
    yield ""


def flags_of(option: Any) -> str:
    """The names of an option, and what it takes."""
    names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    return names if option.is_flag else f"{names} {code_of(option)}"


def code_of(parameter: Any) -> str:
    """What a parameter takes, as code. A bar within code would end the cell of a table."""
    return " or ".join(f"`{value}`" for value in value_of(parameter).split("|"))


def value_of(parameter: Any) -> str:
    """What a parameter takes: its metavar, its choices, or its name."""
    if parameter.metavar:
        return str(parameter.metavar)
    if parameter.param_type_name == "argument":
        return str(parameter.name).upper()
    kind = parameter.type_descriptor.annotation
    if get_origin(kind) is Literal:
        return "|".join(get_args(kind))
    return {int: "N", float: "NUMBER", Path: "PATH"}.get(kind, "TEXT")


def meaning_of(option: Any) -> str:
    """What an option does, and its default."""
    text = " ".join((option.help or "").split())
    if option.show_default and option.default is not None and not option.is_flag:
        return f"{text} (default: `{option.default}`)"
    return text


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
