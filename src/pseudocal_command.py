"""The script `pseudocal`, outside the package.

Ctrl-C while the package is imported, and a missing package, end in one line too.
"""

from __future__ import annotations

import sys


def command() -> int:
    """Import the command and run it."""
    try:
        from pseudocal.extras import MissingExtraError

        try:
            from pseudocal.app.cli import command as run
        except ModuleNotFoundError as error:
            missing = MissingExtraError(error.name or "typer", "cli")
        except MissingExtraError as error:
            missing = error
        else:
            return run()
        sys.stderr.write(f"pseudocal: {missing}\n")
        return 5
    except KeyboardInterrupt:
        sys.stderr.write("pseudocal: interrupted\n")
        return 130
