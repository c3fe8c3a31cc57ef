"""Start the command, and turn whatever goes wrong into one line and an exit code."""

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
    "Image size .* exceeds limit",  # Pillow's; a limit of our own counts the file as unreadable
    "X does not have valid feature names",  # scikit-learn's; columns were picked by name
)


def command() -> int:
    """Run `pseudocal` as a process of its own."""
    code = main()
    gc.freeze()  # an interpreter that ends searches all it holds for rubbish; this leaves it a tenth of a second less
    return code


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `pseudocal` with the given arguments and return its exit code."""
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
        if not hasattr(error, "format_message"):  # typer's own errors have it, whichever copy of click they are from
            raise
        sys.stderr.write(f"pseudocal: {' '.join(error.format_message().split())}\n")
        return USAGE
    if code == INTERRUPTED:
        raise KeyboardInterrupt
    return int(code or 0)


def _end_like_ctrl_c() -> None:
    """Let `kill` clean up as Ctrl-C does."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, interrupt)
