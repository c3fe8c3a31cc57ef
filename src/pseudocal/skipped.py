"""Inputs or blocks that were skipped, with the reason for each; too many of them are an error."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pseudocal.arrays import InputError


@dataclass
class Skipped:
    """What a run has skipped so far.

    >>> unreadable = Skipped(total=100, most=0.01)
    >>> unreadable.add("a.png", "truncated")
    >>> unreadable.add("b.png", "no image")
    Traceback (most recent call last):
    pseudocal.arrays.InputError: expected at most 1% of 100 inputs to be unreadable, got at least 2:
    a.png: truncated; \
set max_bad=FRACTION

    Attributes:
        total: The number of inputs or blocks in the run.
        most: The fraction of them that may be skipped.
        what: The words for them in the error message.
        why: The reason for each skipped input or block, by name.

    """

    total: int
    most: float = 0.01
    what: str = "inputs to be unreadable"
    why: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, reason: str) -> None:
        """Count one, and raise if there are now too many."""
        self.why[name] = reason
        if len(self.why) > self.most * self.total:
            first, why = next(iter(self.why.items()))
            raise InputError(
                f"expected at most {self.most * 100:g}% of {self.total} {self.what}, "
                f"got at least {len(self.why)}: {first}: {why}",
                setting="max_bad",
                value="FRACTION",
            )

    def update(self, why: Mapping[str, str]) -> None:
        """Count several."""
        for name, reason in why.items():
            self.add(name, reason)


def one_line(error: BaseException) -> str:
    r"""The first line of an error's message, or its type if it has none.

    >>> one_line(OSError("truncated\nat byte 7"))
    'truncated'
    """
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
