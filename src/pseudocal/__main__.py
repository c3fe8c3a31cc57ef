"""Run the command as `python -m pseudocal`."""

import sys

from pseudocal.app.cli import command

if __name__ == "__main__":
    sys.exit(command())
