"""The command `pseudocal`."""

from pseudocal.cli.main import command, main

__all__ = ["command", "main"]
