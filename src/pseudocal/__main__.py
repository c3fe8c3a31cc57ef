"""Run the command as `python -m pseudocal`.

Python imports the package, with NumPy and SciPy, before this file. Ctrl-C in that moment is
Python's to report.
"""

import os
import sys

from pseudocal_command import command

if __name__ == "__main__":
    if not sys.flags.safe_path and sys.path[0] in ("", os.getcwd()):
        del sys.path[0]  # the current folder may come from somebody else
    sys.exit(command())
