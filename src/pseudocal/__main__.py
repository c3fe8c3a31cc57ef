"""Run the command as `python -m pseudocal`."""

import sys

from pseudocal.cli import main

if __name__ == "__main__":
    sys.exit(main())
