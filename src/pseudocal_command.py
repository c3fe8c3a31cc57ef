"""The script `pseudocal`, outside the package.

Ctrl-C while the package is imported, and a missing package, end in one line too.
"""

from __future__ import annotations

import sys


def command() -> int:
    """Import the command and run it."""
    try:
        try:
            from pseudocal.app.cli import command as run
        except ModuleNotFoundError as error:
            from pseudocal.extras import MissingExtraError

            missing = MissingExtraError(error.name or "typer", "cli")
            sys.stderr.write(f"pseudocal: {missing}\n")
            return 5
        return run()
    except KeyboardInterrupt:
        sys.stderr.write("pseudocal: interrupted\n")
        return 130
