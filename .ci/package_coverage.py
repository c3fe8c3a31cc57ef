"""The fraction of lines that the tests ran, by package and in all, from the `.coverage` that pytest has written."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from pathlib import Path, PurePath

from coverage import Coverage


def lines_by_package() -> tuple[Counter[str], Counter[str]]:
    """How many lines of each package there are, and how many ran."""
    there, ran = Counter[str](), Counter[str]()
    with tempfile.TemporaryDirectory() as folder:
        measured = Coverage(messages=False)
        measured.load()
        measured.json_report(outfile=f"{folder}/coverage.json")
        files = json.loads(Path(folder, "coverage.json").read_text(encoding="utf-8"))["files"]
    for name, file in files.items():
        package = ".".join(PurePath(name).parts[2:-1]) or "pseudocal"
        there[package] += file["summary"]["num_statements"]
        ran[package] += file["summary"]["covered_lines"]
    return there, ran


def main() -> None:
    """Print one line."""
    there, ran = lines_by_package()
    each = ", ".join(
        f"{package} {ran[package] / there[package]:.0%}"
        for package in sorted(there)
        if there[package]
    )
    print(f"coverage: {ran.total() / there.total():.1%} of {there.total():,} lines ({each})")


if __name__ == "__main__":
    main()
