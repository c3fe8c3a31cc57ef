"""The rules of the house that can be counted: sizes, names, and that the reference lists what is public.

An entry of `OFFENDERS` is let off for now. One that offends no longer fails the test too: take it out.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SRC = ROOT / "src" / "pseudocal"
LINES, FUNCTION_LINES, PARAMETERS = 300, 40, 8
FORBIDDEN = frozenset(
    {"first", "second", "beside", "ahead", "opened", "divided", "collected", "write", "target", "heads"}
    | {"utils", "helpers", "common"}
)
LISTED = [
    "pseudocal",
    *(f"pseudocal.{name}" for name in ("app", "calibrators", "distributed", "metrics")),
    *(f"pseudocal.lab.{name}" for name in ("adapt", "bench", "data", "segmentation")),
]

COMMANDS = ("app/cli/app.py", "app/cli/bench.py", "app/cli/lab.py", "app/cli/scoring.py")

OFFENDERS: dict[str, set[str]] = {
    "function": {
        "app/cli/app.py:calibrate",  # the signature of a command is its list of options
        "app/cli/bench.py:run",
    },
    "twice": {"calibrated: sklearn.py, torch.py"},  # one function for each kind of model
}

FILES = {path.relative_to(SRC).as_posix(): ast.parse(path.read_text(encoding="utf-8")) for path in SRC.rglob("*.py")}


def check(rule: str, found: set[str]) -> None:
    known = OFFENDERS.get(rule, set())
    assert sorted(found - known) == []
    assert sorted(known - found) == [], "no longer needed"


def functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def length(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines from `def` to the end, without the docstring."""
    lines = function.end_lineno - function.lineno + 1
    if ast.get_docstring(function) is not None:
        lines -= function.body[0].end_lineno - function.body[0].lineno + 1
    return lines


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    given = function.args
    each = [*given.posonlyargs, *given.args, *given.kwonlyargs, *filter(None, (given.vararg, given.kwarg))]
    return len([name for name in each if name.arg not in ("self", "cls")])


def is_command(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether typer makes a command of it: its parameters are the options that a user has."""
    return any("command" in ast.unparse(decorator) for decorator in function.decorator_list)


def definitions(tree: ast.Module) -> Iterator[str]:
    """Public names that a module defines at its top, rather than imports."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (target.id for target in targets if isinstance(target, ast.Name))


def test_what_is_counted_by_hand() -> None:
    tree = ast.parse('X = 1\ndef f(self, a, *b, c=1, **d):\n    """One\n    two."""\n    return a\n')
    (function,) = functions(tree)
    assert (length(function), parameters(function), list(definitions(tree))) == (2, 4, ["X", "f"])


def test_files_are_short() -> None:
    check("lines", {name for name in FILES if len((SRC / name).read_text(encoding="utf-8").splitlines()) > LINES})


def test_functions_fit_on_a_screen() -> None:
    check("function", {f"{n}:{f.name}" for n, t in FILES.items() for f in functions(t) if length(f) > FUNCTION_LINES})


def test_functions_take_few_parameters() -> None:
    found = {
        f"{name}:{function.name}"
        for name, tree in FILES.items()
        for function in functions(tree)
        if parameters(function) > PARAMETERS and not (name.startswith("app/cli/") and is_command(function))
    }
    check("parameters", found)


def test_files_are_named_after_what_they_hold() -> None:
    check("names", {name for name in FILES if Path(name).stem in FORBIDDEN})


def test_a_name_has_one_meaning() -> None:
    homes = defaultdict(list)
    for file, tree in FILES.items():
        for name in set(definitions(tree)):
            if not name.startswith("_") and file not in COMMANDS:  # commands are called as the functions that they call
                homes[name].append(file)
    check("twice", {f"{name}: {', '.join(sorted(files))}" for name, files in homes.items() if len(files) > 1})


def reference() -> list[str]:
    return re.findall(r"^::: (\S+)$", (ROOT / "docs" / "reference.md").read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize("module", LISTED)
def test_what_is_public_is_in_the_reference(module: str) -> None:
    if module != "pseudocal":
        pytest.importorskip("torch")  # the application and the lab need more than the library
    listed = {name.rpartition(".")[2] for name in reference()}  # under one address, of a name that is exported twice
    check(f"reference of {module}", set(import_module(module).__all__) - listed)


def test_what_is_in_the_reference_is_public() -> None:
    for package in ("torch", "typer", "sklearn"):
        pytest.importorskip(package)
    listed = reference()
    assert len(set(listed)) == len(listed)
    found = set()
    for name in listed:
        module, _, thing = name.rpartition(".")
        there = import_module(module)
        if thing not in getattr(there, "__all__", vars(there)):
            found.add(name)
    check("reference", found)
