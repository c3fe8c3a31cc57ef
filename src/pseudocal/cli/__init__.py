"""The command `pseudocal`."""

from pseudocal.cli.main import main

__all__ = ["main"]
