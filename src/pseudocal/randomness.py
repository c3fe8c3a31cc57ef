"""Named random streams.

Every consumer has its own stream, so no two of them draw the same numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

STREAM_NAMES = (
    "order",
    "pairs",
    "past",
    "mixup_variant",
    "real",
    "kept_mixup",
    "kept_real",
    "images",
    "blocks",
    "asked",
    "keys",
)


@dataclass(frozen=True)
class Streams:
    """The random streams of one seed. Each call returns a new generator at the start of its stream.

    >>> streams = Streams(seed=0)
    >>> streams.order().random() == streams.order().random()
    True
    >>> streams.pairs(batch=0).random() == streams.pairs(batch=1).random()
    False

    Attributes:
        seed: The seed of the run.
        part: The number of the block of the target that draws the numbers; None if the target is
            not split.

    """

    seed: int
    part: int | None = None

    def order(self, epoch: int = 0) -> np.random.Generator:
        """The order in which an array is shuffled."""
        return self._stream("order", epoch)

    def pairs(self, batch: int, epoch: int = 0) -> np.random.Generator:
        """The partners within a batch."""
        return self._stream("pairs", epoch, batch)

    def past(self, epoch: int = 0) -> np.random.Generator:
        """The partners from earlier batches of a stream, and which rows are kept as partners."""
        return self._stream("past", epoch)

    def mixup_variant(self, batch: int, epoch: int = 0) -> np.random.Generator:
        """The random choices of a mixup variant, such as the pixels of a mixup sample."""
        return self._stream("mixup_variant", epoch, batch)

    def real(self, batch: int) -> np.random.Generator:
        """The pixels of real images."""
        return self._stream("real", batch)

    def kept_mixup(self) -> np.random.Generator:
        """The mixup samples that the reservoir keeps."""
        return self._stream("kept_mixup")

    def kept_real(self) -> np.random.Generator:
        """The real rows that the reservoir keeps."""
        return self._stream("kept_real")

    def images(self) -> np.random.Generator:
        """The first number used for images."""
        return self._stream("images")

    def blocks(self) -> np.random.Generator:
        """The order of the blocks of a target."""
        return self._stream("blocks")

    def asked(self, image: int) -> np.random.Generator:
        """The pixels of an image that a person may be asked about."""
        return self._stream("asked", image)

    def keys(self) -> np.random.Generator:
        """The keys of rows, see `row_keys`."""
        return self._stream("keys")

    def _stream(self, name: str, *index: int) -> np.random.Generator:
        part = 0 if self.part is None else self.part + 1
        return np.random.default_rng(
            np.random.SeedSequence(self.seed, spawn_key=(STREAM_NAMES.index(name), part, *index))
        )


def row_keys(streams: Streams, rows: ArrayLike) -> NDArray[np.int64]:
    """A random number from 0 to 2^63 for each row.

    A function of its number, whatever else is drawn.

    >>> bool(np.all(row_keys(Streams(0), [3, 5]) == row_keys(Streams(0), [5, 3])[::-1]))
    True

    Args:
        streams: The random streams of the target, or of the block that numbers its rows for itself.
        rows: The numbers of the rows.

    """
    key = np.asarray(rows, dtype=np.uint64) + streams.keys().integers(2**63, dtype=np.uint64)
    for multiplier, shift in (
        (0x9E3779B97F4A7C15, 30),
        (0xBF58476D1CE4E5B9, 27),
        (0x94D049BB133111EB, 31),
    ):
        key = key * np.uint64(multiplier)  # SplitMix64, modulo 2^64
        key ^= key >> np.uint64(shift)
    return (key >> np.uint64(1)).astype(np.int64)
