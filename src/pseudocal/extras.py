"""Optional packages: loaded where they are needed; where one is missing, the error names the extra that installs it."""

from __future__ import annotations

from importlib import import_module
from typing import Any

DISTRIBUTIONS = {"PIL": "pillow", "resvg_py": "resvg-py", "sklearn": "scikit-learn"}  # where the two names differ


class MissingExtraError(ImportError):
    """An optional package is needed.

    >>> str(MissingExtraError("matplotlib", "report"))
    "expected the package matplotlib, got none: pip install 'pseudocal[report]'"
    """

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"expected the package {package}, got none: pip install 'pseudocal[{extra}]'")


def require(module: str, extra: str) -> Any:
    """Import an optional module, or say which extra installs it.

    >>> require("json", "cli").dumps([1])
    '[1]'
    >>> require("no_such_package.part", "cli")
    Traceback (most recent call last):
    pseudocal.extras.MissingExtraError: expected the package no_such_package, got none: pip install 'pseudocal[cli]'

    Args:
        module: its full name, such as "PIL.Image".
        extra: the extra of this package that installs it, such as "cli".

    """
    try:
        return import_module(module)
    except ImportError as error:
        package = (error.name or module).partition(".")[0]
        raise MissingExtraError(DISTRIBUTIONS.get(package, package), extra) from error
