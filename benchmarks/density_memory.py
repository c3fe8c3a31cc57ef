"""Memory and time of CPCS and TransCal at VisDA's size, from random features in float32.

    OMP_NUM_THREADS=1 python benchmarks/density_memory.py --features 1024

Prints the peak memory of the process, which includes the features themselves.
"""

from __future__ import annotations

import argparse
import resource
import time

import numpy as np

from pseudocal.arrays import Labelled
from pseudocal.calibrators import cpcs, density_ratio, transcal

SOURCE = 152_397
TARGET = 55_388
CLASSES = 12


def main() -> None:
    """Measure one number of features."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--features", type=int, default=256)
    parser.add_argument("--reference", action="store_true", help="as the released code")
    args = parser.parse_args()
    rng = np.random.default_rng(0)
    held_out = SOURCE // 5
    source = rng.standard_normal((SOURCE - held_out, args.features), dtype=np.float32)
    validation = rng.standard_normal((held_out, args.features), dtype=np.float32)
    target = rng.standard_normal((TARGET, args.features), dtype=np.float32)
    target[:, :16] += 0.3
    rows = Labelled(rng.normal(size=(held_out, CLASSES)), rng.integers(0, CLASSES, held_out))
    target_logits = rng.normal(size=(TARGET, CLASSES))
    given = sum(each.nbytes for each in (source, validation, target))
    print(f"features {given / 2**30:.2f} GiB, process before {peak():.2f} GiB")
    started = time.perf_counter()
    ratio = density_ratio(source, target, reference=args.reference)(validation)
    print(f"density ratio: peak {peak():.2f} GiB, {time.perf_counter() - started:.0f} s")
    cpcs(rows, ratio, reference=args.reference)
    transcal(rows, ratio, target_logits, reference=args.reference)
    print(f"and CPCS, TransCal: peak {peak():.2f} GiB, {time.perf_counter() - started:.0f} s")


def peak() -> float:
    """The most memory that this process has had, in GiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


if __name__ == "__main__":
    main()
