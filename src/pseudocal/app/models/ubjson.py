"""Read UBJSON, the binary variant of JSON that XGBoost writes."""

from __future__ import annotations

from typing import Any

import numpy as np

from pseudocal.arrays import InputError

# markers of numbers, as big-endian NumPy dtypes
NUMBERS = {
    b"i": ">i1",
    b"U": ">u1",
    b"I": ">i2",
    b"l": ">i4",
    b"L": ">i8",
    b"d": ">f4",
    b"D": ">f8",
}
CONSTANTS = {b"T": True, b"F": False, b"Z": None}


def decode_ubjson(content: bytes) -> Any:
    r"""Return the value that a UBJSON file holds.

    >>> decode_ubjson(b"{i\x01a[$i#i\x02\x05\x06i\x01bSi\x02hi}")
    {'a': [5, 6], 'b': 'hi'}
    """
    return _Reader(content).value()


class _Reader:
    """A position in the content of a file."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.position = 0

    def take(self, size: int) -> bytes:
        found = self.content[self.position : self.position + size]
        if size < 0 or len(found) != size:
            raise InputError("is cut off or damaged")
        self.position += size
        return found

    def is_next(self, marker: bytes) -> bool:
        """Whether a marker follows; if so, go past it."""
        if self.content[self.position : self.position + 1] != marker:
            return False
        self.position += 1
        return True

    def numbers(self, marker: bytes, count: int) -> list[Any]:
        if marker not in NUMBERS:
            raise InputError("is damaged")
        dtype = np.dtype(NUMBERS[marker])
        found: list[Any] = np.frombuffer(self.take(count * dtype.itemsize), dtype).tolist()
        return found

    def length(self) -> int:
        return int(self.numbers(self.take(1), 1)[0])

    def text(self) -> str:
        return self.take(self.length()).decode("utf-8")

    def value(self) -> Any:
        marker = self.take(1)
        if marker == b"{":
            return self.mapping()
        if marker == b"[":
            return self.array()
        if marker == b"S":
            return self.text()
        if marker in CONSTANTS:
            return CONSTANTS[marker]
        return self.numbers(marker, 1)[0]

    def mapping(self) -> dict[str, Any]:
        found = dict[str, Any]()
        while not self.is_next(b"}"):
            name = self.text()
            found[name] = self.value()
        return found

    def array(self) -> list[Any]:
        if self.is_next(b"$"):
            marker = self.take(1)
            if not self.is_next(b"#"):
                raise InputError("is damaged")
            return self.numbers(marker, self.length())
        if self.is_next(b"#"):
            return [self.value() for _ in range(self.length())]
        found = []
        while not self.is_next(b"]"):
            found.append(self.value())
        return found
