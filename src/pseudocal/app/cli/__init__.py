"""The command `pseudocal`."""

from pseudocal.app.cli.main import command, main

__all__ = ["command", "main"]
