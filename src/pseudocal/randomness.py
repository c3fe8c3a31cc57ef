"""Named random streams: every consumer has its own stream, so no two of them draw the same numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

STREAM_NAMES = ("order", "pairs", "past", "synthesis", "real", "kept_mixes", "kept_real", "images", "blocks", "asked")


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
        part: The number of the block of the target that draws the numbers; None if the target is not split.

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

    def synthesis(self, batch: int, epoch: int = 0) -> np.random.Generator:
        """The random choices of a synthesis, such as the pixels of a mix."""
        return self._stream("synthesis", epoch, batch)

    def real(self, batch: int) -> np.random.Generator:
        """The pixels of real images."""
        return self._stream("real", batch)

    def kept_mixes(self) -> np.random.Generator:
        """The mixes that the reservoir keeps."""
        return self._stream("kept_mixes")

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

    def _stream(self, name: str, *index: int) -> np.random.Generator:
        part = 0 if self.part is None else self.part + 1
        return np.random.default_rng(
            np.random.SeedSequence(self.seed, spawn_key=(STREAM_NAMES.index(name), part, *index))
        )
