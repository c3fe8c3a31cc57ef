"""Run the command as `python -m pseudocal`.

Python imports the package, with NumPy and SciPy, before this file. Ctrl-C in that moment is
Python's to report.
"""

import sys

from pseudocal_command import command

if __name__ == "__main__":
    sys.exit(command())
