"""Optional packages, imported where they are needed.

If one is missing, the error names the extra that installs it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

DISTRIBUTIONS = {
    "PIL": "pillow",
    "resvg_py": "resvg-py",
    "sklearn": "scikit-learn",
}  # import name: name on the index, where they differ


class MissingExtraError(ImportError):
    """An optional package is not installed.

    >>> str(MissingExtraError("jinja2", "report"))
    "expected the package jinja2, got none: pip install 'pseudocal[report]'"
    """

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(
            f"expected the package {package}, got none: pip install 'pseudocal[{extra}]'"
        )


def require(module: str, extra: str) -> Any:
    """Import an optional module, or raise an error that names the extra that installs it.

    >>> require("json", "cli").dumps([1])
    '[1]'
    >>> require("no_such_package.part", "cli")
    Traceback (most recent call last):
    pseudocal.extras.MissingExtraError: expected the package no_such_package, got none: pip install
    'pseudocal[cli]'

    Args:
        module: The full name of the module, such as "PIL.Image".
        extra: The extra of pseudocal that installs it, such as "cli".

    """
    try:
        return import_module(module)
    except ImportError as error:
        package = (error.name or module).partition(".")[0]
        raise MissingExtraError(DISTRIBUTIONS.get(package, package), extra) from error


def on_demand(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """Make the `__getattr__` of a package that imports what it offers when it is first asked for.

    >>> get = on_demand("json", {"JSONDecoder": "decoder"})
    >>> get("JSONDecoder").__name__
    'JSONDecoder'
    >>> get("nothing")
    Traceback (most recent call last):
    AttributeError: module 'json' has no attribute 'nothing'

    Args:
        package: The name of the package.
        modules: The module of the package that defines each name. No module may have one of these
            names.

    """

    def get(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{modules[name]}"), name)

    return get
