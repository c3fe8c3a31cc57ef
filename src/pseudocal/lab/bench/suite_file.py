"""A user's own suite, as a TOML file.

    calibrators = ["none", "tempscal", "pseudocal", "oracle"]   # all if absent
    seeds = 3
    repeats = 5                     # calibrations of each model, with new random numbers
    root = "/data/office_home"      # these five are of the machine; options of the command win
    lists = "/data/lists"
    prefix = ["/home/them/data", "/data"]
    device = "cuda"
    datasets = { my-birds = "birds" }   # own data: folders, relative to this file

    [[tasks]]                       # every source with every target and every method
    data = "office-home"
    source = ["Art", "Clipart"]
    target = "Product"
    method = ["mcc", "bnm"]
    backbone = "resnet50"
    weights = "path/to/weights"
    options = { weight = 0.5 }      # of the method

The other keys of a task are the fields of `Task`. Segmentation tasks (`data = "scenes"`) need a
suite of their own; their networks are those of `pseudocal.lab.segmentation`, their options those of
`pseudocal.lab.bench.segmentation_tasks`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from pseudocal.arrays import InputError
from pseudocal.calibrators import CALIBRATORS
from pseudocal.lab.adapt import BACKBONES
from pseudocal.lab.adapt.stages import check_options
from pseudocal.lab.adapt.training import find_preset
from pseudocal.lab.bench import segmentation_tasks
from pseudocal.lab.bench.calibrators import compared_names, with_settings
from pseudocal.lab.bench.suites import SEGMENTERS, TRAINED
from pseudocal.lab.bench.task import Suite, Task
from pseudocal.lab.data import DATASETS
from pseudocal.lab.plugins import load_plugins
from pseudocal.lab.segmentation.comparison import SEGMENTATION_CALIBRATORS
from pseudocal.lab.settings import preset_for

LOCAL_KEYS = ("root", "lists", "prefix", "device", "datasets")  # of the machine: no part of a task
KEYS = ("calibrators", "seeds", "repeats", "tasks", "about", *LOCAL_KEYS)
LISTED_KEYS = ("source", "target", "method")  # one name or several
TYPES: dict[str, tuple[type, ...]] = {
    "width": (int,),
    "iterations": (int,),
    "frozen": (bool,),
    "options": (dict,),
    "batch": (int,),
    "lr": (float, int),
    "augment": (bool,),
}
SEGMENTED = (
    "data",
    *LISTED_KEYS,
    "backbone",
    "weights",
    "width",
    "iterations",
    "batch",
    "lr",
    "precision",
    "options",
)
FIELDS = tuple(field.name for field in fields(Task) if field.name not in ("seed", "runner"))


def read_suite(
    path: Path,
    *,
    seeds: int | None = None,
    repeats: int | None = None,
    quick: bool = False,
    **changes: Any,
) -> Suite:
    """Read a suite, named after its file.

    Args:
        path: the TOML file.
        seeds: the number of seeds, in place of that in the file.
        repeats: the number of repetitions, in place of that in the file.
        quick: whether to take the first three tasks only.
        changes: settings to change in all tasks.

    """
    load_plugins()
    return parse_suite(
        _content(path), path.stem, seeds=seeds, repeats=repeats, quick=quick, **changes
    )


def read_local(path: Path) -> dict[str, Any]:
    """Read the settings of `Store` that a suite file gives: where the data is, and the device.

    Args:
        path: the TOML file.

    """
    given = {key: value for key, value in _content(path).items() if key in LOCAL_KEYS}
    for key, value in given.items():
        if key == "prefix":
            is_pair = isinstance(value, list) and [type(each) for each in value] == [str, str]
            if not is_pair:
                raise InputError(f"expected prefix as [old, new], got {value!r}")
        elif key == "datasets":
            _own_datasets(value)
        elif not isinstance(value, str):
            raise InputError(f"expected {key} as text, got {value!r}")
    as_stored: dict[str, Callable[[Any], Any]] = {
        "root": Path,
        "lists": Path,
        "prefix": tuple,
        "device": str,
        "datasets": partial(_dataset_folders, path.parent),
    }
    return {key: as_stored[key](value) for key, value in given.items()}


def _dataset_folders(base: Path, given: dict[str, str]) -> tuple[tuple[str, Path], ...]:
    """Return the folders of the user's data sets; relative ones start at the suite file."""
    return tuple((name, (base / folder).resolve()) for name, folder in given.items())


def _own_datasets(given: Any) -> dict[str, str]:
    """Check the table of a user's own data sets."""
    if not isinstance(given, dict) or not all(isinstance(each, str) for each in given.values()):
        raise InputError(f"expected datasets as a table of names and folders, got {given!r}")
    for name in given:
        if name in DATASETS or name in SEGMENTERS:
            raise InputError(f"expected a new name for a data set, got {name!r}, which is taken")
    return given


def _content(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"expected a suite file, got {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"expected TOML, got {path}: {error}") from error


def parse_suite(
    content: dict[str, Any],
    name: str,
    *,
    seeds: int | None = None,
    repeats: int | None = None,
    quick: bool = False,
    **changes: Any,
) -> Suite:
    """Make a suite from the content of a file.

    >>> task = {"data": "emoji", "method": "mcc"}
    >>> task |= {"source": ["noto", "fluent"], "target": ["fluent", "openmoji"]}
    >>> [task.pair for task in parse_suite({"tasks": [task]}, "mine").tasks]
    ['noto->fluent', 'noto->openmoji', 'fluent->openmoji']
    """
    _check_among("a key of a suite", content, KEYS)
    given = content.get("tasks")
    if not isinstance(given, list) or not given or any(type(each) is not dict for each in given):
        raise InputError(f"expected tasks, one or more tables [[tasks]], got {given!r}")
    kinds = {each.get("data") in SEGMENTERS for each in given}
    if len(kinds) > 1:
        raise InputError(
            f"expected scenes in a suite of their own, got {[each.get('data') for each in given]}"
        )
    known = SEGMENTATION_CALIBRATORS if True in kinds else compared_names()
    calibrators = _calibrators(
        content.get("calibrators", [name for name in CALIBRATORS if name in known]), known
    )
    count = content.get("seeds", 1) if seeds is None else seeds
    if not isinstance(count, int) or count < 1:
        raise InputError(f"expected seeds as an integer of at least 1, got {count!r}")
    times = content.get("repeats", 1) if repeats is None else repeats
    if not isinstance(times, int) or times < 1:
        raise InputError(f"expected repeats as an integer of at least 1, got {times!r}")
    own = tuple(_own_datasets(content.get("datasets", {})))
    cells = [cell for each in given for cell in _cells({**each, **changes}, own)]
    cells = cells[:3] if quick else cells
    tasks = [
        Task(**cell, seed=seed)
        for seed in range(1 if quick and seeds is None else count)
        for cell in cells
    ]
    about = str(content.get("about", ""))
    name = f"{name}-quick" if quick else name
    return Suite(name, tuple(dict.fromkeys(tasks)), tuple(calibrators), about, times)


def _calibrators(given: Any, known: tuple[str, ...]) -> list[str]:
    """Return the names of calibrators.

    One with settings of its own is a table with its name among them.
    """
    if not isinstance(given, list):
        raise InputError(f"expected a list of names, got {given!r}")
    tables = [dict(each) if isinstance(each, dict) else {"name": each} for each in given]
    _check_among("a calibrator", [table.get("name") for table in tables], known)
    return [
        with_settings(table.pop("name"), table) if len(table) > 1 else table["name"]
        for table in tables
    ]


def _cells(table: dict[str, Any], own_datasets: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Return the settings of each task that a table stands for."""
    _check_among("a key of a task", table, FIELDS)
    missing = [key for key in ("data", "source", "target", "method") if key not in table]
    if missing:
        raise InputError(
            f"expected data, source, target and method in each task, got no {missing[0]}"
        )
    for key, value in table.items():
        _check_type(key, value)
    options = table.get("options", {})
    if table["data"] == "digits":  # too small for the usual backbone
        table = {**dict(TRAINED), **table}
    settings = table | {"options": tuple(options.items())}
    segmented = table["data"] in SEGMENTERS
    if segmented:
        _check_among("a key of a task of segmentation", table, SEGMENTED)
        defaults = dict(SEGMENTERS[table["data"]])
        settings = (
            defaults | table | {"options": tuple({**dict(defaults["options"]), **options}.items())}
        )
    else:
        _check_among("a data set", [table["data"]], (*DATASETS, *own_datasets, *SEGMENTERS))
        _check_among("a backbone", [table.get("backbone", "efficientnet-lite0")], BACKBONES)
        for method in _listed(table["method"]):
            preset = table.get("preset", preset_for(method, table["data"]))
            check_options(find_preset(method, preset), options)
    several = [_listed(table[key]) for key in LISTED_KEYS]
    cells = [settings | dict(zip(LISTED_KEYS, names, strict=True)) for names in product(*several)]
    cells = [cell for cell in cells if cell["source"] != cell["target"] or len(cells) == 1]
    if not segmented:
        cells = [{"preset": preset_for(cell["method"], cell["data"])} | cell for cell in cells]
    for cell in cells if segmented else ():
        segmentation_tasks.check_settings(Task(**cell))
    return cells


def _check_type(key: str, value: Any) -> None:
    wanted = (str, list) if key in LISTED_KEYS else TYPES.get(key, (str,))
    right = isinstance(value, wanted)
    if isinstance(value, bool) and bool not in wanted:  # a bool is an int in Python
        right = False
    if isinstance(value, list) and not all(isinstance(each, str) for each in value):
        right = False
    if not right:
        kinds = " or ".join(each.__name__ for each in wanted)
        raise InputError(f"expected {key} to be {kinds}, got {value!r}")


def _check_among(what: str, names: Any, known: Any) -> None:
    if not isinstance(names, list | dict):
        raise InputError(f"expected a list of names, got {names!r}")
    for name in names:
        if name not in known:
            raise InputError(f"expected {what} among {', '.join(known)}, got {name!r}")


def _listed(names: str | list[str]) -> list[str]:
    return [names] if isinstance(names, str) else names
