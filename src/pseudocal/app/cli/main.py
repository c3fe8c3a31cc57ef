"""Run the command, and turn any error into one line and an exit code."""

from __future__ import annotations

import gc
import signal
import sys
import threading
import warnings
from collections.abc import Sequence
from types import FrameType

from pseudocal.app.cli.errors import INTERRUPTED, USAGE, explain
from pseudocal.app.cli.options import with_address
from pseudocal.extras import MissingExtraError

EXPECTED = (
    "Image size .* exceeds limit",  # from Pillow; our own limit counts the file as unreadable
    "X does not have valid feature names",  # from scikit-learn; columns were selected by name
)


def command() -> int:
    """Run `pseudocal` as a process of its own."""
    code = main()
    # saves a tenth of a second: the garbage collector need not visit all objects at exit
    gc.freeze()
    return code


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `pseudocal` and return its exit code.

    Args:
        arguments: the command line without the name of the program; None for that of this process.

    """
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in arguments
    for message in EXPECTED:
        warnings.filterwarnings("ignore", message=message)
    _end_like_ctrl_c()
    try:
        return _run(with_address([a for a in arguments if a != "--debug"]) or ["--help"])
    except BaseException as error:
        if debug or isinstance(error, SystemExit):
            raise
        code, line = explain(error)
        sys.stderr.write(f"pseudocal: {line}\n")
        return code


def _run(arguments: list[str]) -> int:
    try:
        import typer

        from pseudocal.app.cli.app import app
    except ModuleNotFoundError as error:
        raise MissingExtraError(error.name or "typer", "cli") from error
    try:
        code = app(arguments, prog_name="pseudocal", standalone_mode=False)
    except typer.Abort:
        code = INTERRUPTED
    except Exception as error:
        if not hasattr(
            error, "format_message"
        ):  # usage errors have it, whichever copy of click they come from
            raise
        sys.stderr.write(f"pseudocal: {' '.join(error.format_message().split())}\n")
        return USAGE
    if code == INTERRUPTED:
        raise KeyboardInterrupt
    return int(code or 0)


def _end_like_ctrl_c() -> None:
    """Make SIGTERM clean up as Ctrl-C does."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, interrupt)
