"""The blocks of a Ray dataset, for those who read and prepare their inputs with one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray


@dataclass(frozen=True)
class Held:
    """A block that lies in Ray's object store."""

    number: int
    ref: Any

    @property
    def name(self) -> str:
        """Which block of the dataset it is."""
        return f"block {self.number} of a dataset"

    def read(self, source: Any = None) -> NDArray[Any]:
        """Its rows."""
        import ray

        rows: NDArray[Any] = ray.get(self.ref)
        return rows


def dataset_blocks(dataset: Any, column: str) -> list[Held]:
    """The blocks of a `ray.data.Dataset` in order; `column` holds the inputs.

    `PseudoCal().fit(model, dataset_blocks(ray.data.read_images("s3://bucket").map(prepare), "image"), executor=...)`

    The dataset is read and prepared as a whole before the first mix: an early stop saves forward passes, not reading.
    Its blocks, and so the last digits of the temperature, depend on how Ray cuts it; `override_num_blocks` settles it.

    Args:
        dataset: a `ray.data.Dataset`.
        column: the column that holds the inputs.

    """
    options = dataset.context.execution_options
    before, options.preserve_order = options.preserve_order, True
    try:
        return [Held(i, ref) for i, ref in enumerate(dataset.to_numpy_refs(column=column))]
    finally:
        options.preserve_order = before
