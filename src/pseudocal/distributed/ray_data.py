"""The blocks of a Ray dataset, for inputs that are read and prepared with one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray


@dataclass(frozen=True)
class Held:
    """A block in Ray's object store.

    Attributes:
        number: The number of the block in the dataset.
        ref: The reference to its rows.

    """

    number: int
    ref: Any

    @property
    def name(self) -> str:
        """The name of the block in a report."""
        return f"block {self.number} of a dataset"

    def read(self, source: Any = None) -> NDArray[Any]:
        """The rows of the block."""
        import ray

        rows: NDArray[Any] = ray.get(self.ref)
        return rows


def dataset_blocks(dataset: Any, column: str) -> list[Held]:
    """The blocks of a `ray.data.Dataset`, in order.

    `PseudoCal().fit(model, dataset_blocks(ray.data.read_images("s3://bucket").map(prepare),
    "image"), executor=...)`

    The whole dataset is read and prepared before the first mix: stopping early saves forward
    passes, not reading. The blocks, and so the last digits of the temperature, depend on how Ray
    splits the dataset; `override_num_blocks` fixes them.

    Args:
        dataset: The dataset.
        column: The name of the column with the model's inputs.

    """
    options = dataset.context.execution_options
    before, options.preserve_order = options.preserve_order, True
    try:
        return [Held(i, ref) for i, ref in enumerate(dataset.to_numpy_refs(column=column))]
    finally:
        options.preserve_order = before
