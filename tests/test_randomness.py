"""No two consumers draw the same numbers."""

from __future__ import annotations

from itertools import product

import numpy as np

from pseudocal.randomness import STREAM_NAMES, Streams


def test_no_two_consumers_share_a_stream():
    first: dict[float, tuple[object, ...]] = {}
    for seed, part, name in product((0, 1), (None, 0, 1), STREAM_NAMES):
        streams = Streams(seed, part)
        named = getattr(streams, name)
        several: dict[str, list[tuple[int, ...]]] = {
            "order": [(0,), (1,)],
            "past": [(0,), (1,)],
            "pairs": list(product((0, 1, 2), (0, 1))),
            "mixup_variant": list(product((0, 1, 2), (0, 1))),
            "real": [(0,), (1,)],
            "asked": [(0,), (1,)],
        }
        for index in several.get(name, [()]):
            number = float(named(*index).random())
            assert number not in first, (seed, part, name, index, first[number])
            first[number] = (seed, part, name, index)
    assert len(first) == 2 * 3 * (2 + 2 + 6 + 6 + 2 + 2 + 5)


def test_a_stream_starts_anew_each_time():
    assert np.array_equal(Streams(7).pairs(3).permutation(50), Streams(7).pairs(3).permutation(50))


def test_every_public_method_is_a_named_stream():
    methods = {name for name in vars(Streams) if not name.startswith("_")} - {"seed", "part"}
    assert methods == set(STREAM_NAMES)
