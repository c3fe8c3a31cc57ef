"""How much disk an extra takes: the packages it needs, with their installed sizes.

    python benchmarks/packages.py cli,onnx

The packages must be installed in the environment that runs this. Requirements are read from
`pyproject.toml`. Prints the largest packages, the sum, and the CPU time of `import pseudocal` in a
new process, the best of five.
"""

from __future__ import annotations

import argparse
import re
import resource
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

PROJECT = Path(__file__).parents[1] / "pyproject.toml"
NAME = re.compile(r"[A-Za-z0-9._-]+")
SHOWN = 12


def own_requirements(extras: Iterable[str]) -> list[str]:
    """What pseudocal itself requires with some extras, which may name each other."""
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
    lines, waiting = list(project["dependencies"]), list(extras)
    while waiting:
        for line in project["optional-dependencies"][waiting.pop()]:
            if line.startswith("pseudocal["):
                waiting += line[len("pseudocal[") : line.index("]")].split(",")
            else:
                lines.append(line)
    return lines


def add(requirement: str, found: dict[str, int]) -> None:
    """Add a package and, in turn, all that it requires, with the bytes of their files."""
    name = NAME.match(requirement.strip()).group().lower().replace("_", "-")
    if name in found:
        return
    try:
        package = distribution(name)
    except PackageNotFoundError:  # one for another system or another Python
        return
    files = [file.locate() for file in package.files or ()]
    found[name] = sum(Path(str(file)).stat().st_size for file in files if Path(str(file)).is_file())
    for line in package.requires or ():
        if "extra" not in line.partition(";")[2]:
            add(line, found)


def seconds_to_import() -> float:
    best = float("inf")
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", "import pseudocal"], check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        best = min(best, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("extras", help="names of extras, with commas between them")
    found: dict[str, int] = {}
    for requirement in own_requirements(parser.parse_args().extras.split(",")):
        add(requirement, found)
    for name, size in sorted(found.items(), key=lambda item: -item[1])[:SHOWN]:
        print(f"{name:24}{size / 1e6:8.1f} MB")
    print(f"{'all':24}{sum(found.values()) / 1e6:8.1f} MB in {len(found)} packages")
    print(f"import pseudocal: {seconds_to_import():.2f} s of CPU time")


if __name__ == "__main__":
    main()
