"""Store the Markdown tables that a script printed, one CSV file for each.

    python benchmarks/evaluation.py ... > printed.md
    python benchmarks/store_tables.py printed.md docs/evaluation/results/held_out

writes held_out-the-estimate.csv and so on: each file is named after the heading above its table.
A second table under one heading gets a number as well. A single table without a heading is written
to held_out.csv, several to held_out-1.csv and so on.
`tests/test_numbers.py` compares the pages of the docs with these files.
"""

from __future__ import annotations

import argparse
import csv
import re
from pathlib import Path


def cells_of(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def distinct(names: list[str]) -> list[str]:
    """Column names, a repeated one with a number.

    >>> distinct(["ECE", "fell", "fell"])
    ['ECE', 'fell', 'fell 2']
    """
    found = []
    for i, name in enumerate(names):
        before = names[:i].count(name)
        found.append(f"{name} {before + 1}" if before else name)
    return found


def tables_of(text: str) -> list[tuple[str, list[list[str]]]]:
    """Each table of a text: the heading above it, and its rows of cells without the ruler."""
    found: list[tuple[str, list[list[str]]]] = []
    heading = ""
    within = False
    for line in text.splitlines():
        if not line.startswith("|"):
            within = False
            if line.startswith("#"):
                heading = line.strip("# ")
            continue
        if not within:
            found.append((heading, [distinct(cells_of(line))]))
        elif not re.fullmatch(r"[|\s:-]+", line):
            found[-1][1].append(cells_of(line))
        within = True
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("printed", type=Path, help="what a script printed")
    parser.add_argument("out", type=Path, help="the beginning of the names of the CSV files")
    args = parser.parse_args()
    args.out.parent.mkdir(parents=True, exist_ok=True)
    tables = tables_of(args.printed.read_text(encoding="utf-8"))
    for number, (heading, rows) in enumerate(tables, 1):
        name = re.sub(r"\W+", "-", heading.lower()).strip("-") or str(number)
        path = args.out.with_name(f"{args.out.name}-{name}.csv")
        if len(tables) == 1 and not heading:
            path = args.out.with_name(f"{args.out.name}.csv")
        if heading and heading in [before for before, _ in tables[: number - 1]]:
            path = path.with_stem(f"{path.stem}-{number}")
        with path.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(rows)
        print(path)


if __name__ == "__main__":
    main()
