"""Time and memory of a surrogate on a million inputs.

    python benchmarks/surrogates.py
    python benchmarks/surrogates.py --rows 20000 --features 256    a quick look

Features are drawn batch by batch, as an encoder would yield them: noise around a centre for each
class. The target is read as one block, or as fifty that are merged. Both must give the same counts.
Peak memory is that of the process.
"""

from __future__ import annotations

import argparse
import resource
import time

import numpy as np

from pseudocal.arrays import Labelled
from pseudocal.calibrators.surrogate import Surrogate, SurrogateBatch, SurrogateSample
from pseudocal.randomness import Streams, row_keys

BATCH = 1000
SUSPECTS = 5  # of 20 rows, one has a mixup sample that is predicted as a third class


class Target:
    """Batches of features of inputs and of suspected mistakes, drawn anew each time they are read."""

    def __init__(self, rows: int, features: int, classes: int) -> None:
        self.rows, self.features, self.classes = rows, features, classes
        self.centres = np.random.default_rng(0).normal(size=(classes, features)).astype(np.float32)
        self.surrogate = Surrogate(len)

    def batch_sample(self, start: int) -> SurrogateBatch:
        """One batch; a tenth of the inputs get a wrong class."""
        rng, numbers = (
            np.random.default_rng(start + 1),
            np.arange(start, min(start + BATCH, self.rows)),
        )
        true = rng.integers(self.classes, size=len(numbers))
        own = np.where(
            rng.random(len(numbers)) < 0.1, rng.integers(self.classes, size=len(numbers)), true
        )
        rows = self._features(true, rng)
        suspects = np.arange(0, len(numbers), 20 // SUSPECTS)
        keys = row_keys(Streams(0), numbers)
        parents = np.stack([keys[suspects], np.roll(keys, 1)[suspects]], axis=1)
        third = rng.integers(self.classes, size=len(suspects))
        mixup_samples = Labelled(self._features(third, rng), third, groups=parents)
        return SurrogateBatch(Labelled(rows, own, groups=keys), mixup_samples, self.surrogate)

    def _features(self, classes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        noise = rng.standard_normal((len(classes), self.features), dtype=np.float32)
        return self.centres[classes] + 3 * noise

    def read(self, blocks: int) -> SurrogateSample:
        """All batches, as blocks that are merged."""
        starts = np.array_split(np.arange(0, self.rows, BATCH), blocks)
        merged = None
        for block in starts:
            surrogate_samples = SurrogateSample.of(self.batch_sample(0))
            for start in block.tolist():
                surrogate_samples.add(self.batch_sample(start))
            if merged is None:
                merged = surrogate_samples
            else:
                merged.merge(surrogate_samples.pack())
        assert merged is not None
        return merged


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--features", type=int, default=1280)
    parser.add_argument("--classes", type=int, default=100)
    parser.add_argument("--blocks", type=int, default=50)
    args = parser.parse_args()
    target, said = Target(args.rows, args.features, args.classes), []
    for blocks in (1, args.blocks):
        started = time.perf_counter()
        surrogate_samples = target.read(blocks)
        read = time.perf_counter()
        opinion = surrogate_samples.opinion(args.classes)
        done = time.perf_counter()
        said.append([opinion.inputs, opinion.agreed, opinion.mistakes, opinion.shared])
        print(
            f"{blocks} blocks: {read - started:.0f} s to draw and keep, {done - read:.0f} s for the surrogates; "
            f"{opinion.inputs.sum():,.0f} of {args.rows:,} inputs kept, agreement "
            f"{opinion.agreed.sum() / opinion.inputs.sum():.4f}, {opinion.mistakes.sum():,.0f} mistakes; peak memory "
            f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GB",
            flush=True,
        )
        del surrogate_samples
    assert all(np.array_equal(one, other) for one, other in zip(*said, strict=True)), (
        "blocks differ"
    )
    print("the same counts")


if __name__ == "__main__":
    main()
