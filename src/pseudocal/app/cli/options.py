"""What the commands have in common."""

from __future__ import annotations

from typing import Any

import typer

EPILOG = (
    "Exit codes: 0 done, 1 a bug, 2 usage, 3 model or data, 4 output, 5 a missing package, 130 interrupted. "
    "--debug shows the traceback of an error."
)


def option(*names: str, **settings: Any) -> Any:
    """An option whose default is shown only where that helps."""
    return typer.Option(*names, show_default=settings.pop("show_default", False), **settings)
