"""Segmentation of emoji scenes: train on one vendor's, calibrate on another's. 12 pairs of vendors, three seeds.

    python benchmarks/scenes.py runs/scenes

Takes some 20 minutes of one core. Models and cells are files below the folder, and what is there is not done again.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from pseudocal.segmentation.comparison import scenes_table, table_lines


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="for models and results")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    given = parser.parse_args()
    table = scenes_table(given.folder, seeds=given.seeds, say=lambda text: print(text, flush=True))
    print("\n" + "\n".join(table_lines(table)))


if __name__ == "__main__":
    main()
