"""The script `pseudocal`, outside the package.

Ctrl-C while that is imported ends in one line too.
"""

from __future__ import annotations

import sys


def command() -> int:
    """Import the command and run it."""
    try:
        from pseudocal.app.cli import command as run

        return run()
    except KeyboardInterrupt:
        sys.stderr.write("pseudocal: interrupted\n")
        return 130
