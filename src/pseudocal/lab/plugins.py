"""Calibrators, adaptation methods and data sets from outside the package.

Each is registered with one line above it:

    from pseudocal.lab.plugins import calibrator, dataset, method

    @calibrator("confident-half")
    def confident_half(target_logits) -> Calibration: ...

    @method("entropy")
    class Entropy(nn.Module): ...

    @dataset("stripes")
    def stripes(*domains: str) -> dict[str, Domain]: ...

`load_plugins` imports files and modules that do so, and installed packages with entry points in the
groups `pseudocal.calibrators`, `pseudocal.methods` and `pseudocal.datasets`. Every worker of the
benchmark calls it too, so it must find the same files and packages.

The code of each is hashed when it is registered. A store keeps the hash beside its results and
computes them again when it has changed.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import re
import sys
from collections.abc import Callable, Iterable
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, TypeVar

from pseudocal.arrays import InputError
from pseudocal.calibrators import CALIBRATORS, PARTS, Part
from pseudocal.calibrators.table import Entry
from pseudocal.lab.data.registry import DATASETS
from pseudocal.lab.sources import hash_source

__all__ = ["calibrator", "dataset", "load_plugins", "method"]

Registered = TypeVar("Registered", bound=Callable[..., Any])
NAME = re.compile(r"[A-Za-z0-9][\w.+-]*")  # names are parts of file names and of lists
HASHES: dict[Any, str] = {}  # of the code of what is registered


def calibrator(
    name: str,
    *,
    title: str = "",
    corrects: Part | None = "target_logits",
    keeps_argmax: bool = True,
) -> Callable[[Registered], Registered]:
    """Register a calibrator: a function that returns a `Calibration`, or logits.

    Its positional parameters name the parts of `pseudocal.calibrators.Material` that it is given;
    keyword arguments are its settings, and `seed` is the seed of the task.

    Args:
        name: its name in suites.
        title: its name in tables; `name` by default.
        corrects: the logits that its result is applied to; None if it returns logits.
        keeps_argmax: whether the predicted classes stay the same.

    """

    def register(function: Registered) -> Registered:
        entry = Entry(title or name, function, _parts(function), corrects, keeps_argmax)
        known = CALIBRATORS.get(name)
        _admit(name, None if known is None else known.function, function)
        CALIBRATORS[name] = entry
        return function

    return register


def method(name: str, **settings: Any) -> Callable[[Registered], Registered]:
    """Register an adaptation method: a module with `steps`, see `pseudocal.lab.adapt.method`.

    Args:
        name: its name in suites.
        **settings: fields of `pseudocal.lab.adapt.Preset` that differ from their defaults.

    """
    from pseudocal.lab.adapt.method import Preset  # which loads torch
    from pseudocal.lab.adapt.methods import METHODS

    def register(module: Registered) -> Registered:
        known = METHODS.get(name)
        _admit(name, None if known is None else known["paper"].method, module)
        METHODS[name] = {"paper": Preset(module, **settings)}  # the preset that tasks name
        return module

    return register


def dataset(name: str) -> Callable[[Registered], Registered]:
    """Register a data set: a function from names of domains to these domains by name.

    It is called with `root=` if the command has `--root`.

    Args:
        name: its name in suites.

    """

    def register(function: Registered) -> Registered:
        _admit(name, DATASETS.get(name), function)
        DATASETS[name] = function
        return function

    return register


GROUPS: dict[str, Callable[[str], Callable[[Any], Any]]] = {
    "pseudocal.calibrators": calibrator,
    "pseudocal.methods": method,
    "pseudocal.datasets": dataset,
}


def load_plugins(names: Iterable[str] = ()) -> tuple[str, ...]:
    """Load installed plugins and the named ones, each once in a process.

    Args:
        names: Python files, or names of modules.

    Returns:
        The names, files with their absolute paths: for workers, which may run elsewhere.

    """
    _load_installed()
    found = []
    for name in names:
        if name.endswith(".py"):
            path = Path(name).resolve()
            _import_file(path)
            found.append(str(path))
        else:
            _import_module(name)
            found.append(name)
    return tuple(found)


@cache
def _load_installed() -> None:
    for group, register in GROUPS.items():
        for point in entry_points(group=group):
            try:
                loaded = point.load()
            except Exception as error:
                raise InputError(
                    f"expected the plugin {point.value} of {group} to be importable, got "
                    f"{type(error).__name__}: {error}; repair or uninstall its package"
                ) from error
            if not _is_registered(loaded):  # by a decorator, when its module was imported
                register(point.name)(loaded)


@cache
def _import_file(path: Path) -> None:
    if not path.is_file():
        raise InputError(f"expected a plugin, a Python file or a module, got no file {path}")
    digest = hashlib.sha256(str(path).encode()).hexdigest()[:8]
    name = f"pseudocal_plugin_{path.stem}_{digest}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    try:
        spec.loader.exec_module(module)
    except InputError:
        raise
    except Exception as error:
        raise InputError(
            f"expected the plugin {path} to be importable, got {type(error).__name__}: {error}"
        ) from error


def _import_module(name: str) -> None:
    try:
        importlib.import_module(name)
    except ImportError as error:
        raise InputError(
            f"expected a plugin, a Python file or a module, got {name!r}: {error}"
        ) from error


def _is_registered(loaded: Any) -> bool:
    from pseudocal.lab.adapt.methods import METHODS

    functions = [entry.function for entry in CALIBRATORS.values()]
    modules = [preset.method for presets in METHODS.values() for preset in presets.values()]
    return any(loaded is each for each in [*functions, *modules, *DATASETS.values()])


def _parts(function: Callable[..., Any]) -> tuple[Part, ...]:
    """The parts that a calibrator is given: the names of its positional parameters."""
    parameters = inspect.signature(function).parameters.values()
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = [each.name for each in parameters if each.kind in positional]
    for name in names:
        if name not in PARTS:
            raise InputError(
                f"expected positional parameters of a calibrator among {', '.join(PARTS)}, got "
                f"{name!r}: make a setting a keyword-only argument"
            )
    return tuple(names)  # type: ignore[arg-type]


def calibrator_hash(name: str) -> str | None:
    """Return the hash of the code of a plugin's calibrator; None for any other.

    Args:
        name: its name, without settings.

    """
    entry = CALIBRATORS.get(name)
    return None if entry is None else HASHES.get(entry.function)


def model_hashes(method: str, data: str) -> dict[str, str]:
    """Return the hashes of the code that a model depends on: of plugins only.

    Args:
        method: the name of the adaptation method.
        data: the name of the data set.

    """
    from pseudocal.lab.adapt.methods import METHODS

    modules = [preset.method for preset in METHODS.get(method, {}).values()]
    found = {"data": DATASETS.get(data), "method": modules[0] if modules else None}
    return {key: HASHES[each] for key, each in found.items() if each in HASHES}


def _admit(name: str, known: Any, new: Any) -> None:
    """Refuse a name that cannot be part of a file's name, or that something else has."""
    if not NAME.fullmatch(name):
        raise InputError(f"expected a name of letters, digits, '.', '+' and '-', got {name!r}")
    if known is not None and known is not new:
        raise InputError(f"expected a new name for {new.__name__}, got {name!r}, which is taken")
    HASHES[new] = hash_source(new)
