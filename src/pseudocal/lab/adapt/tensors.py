"""Data as tensors: drawn in batches, predicted by a network, written to files."""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pseudocal.arrays import check_no_objects
from pseudocal.extras import require
from pseudocal.files import replacing
from pseudocal.lab.adapt.devices import staged
from pseudocal.lab.adapt.networks import Network
from pseudocal.lab.data import Crops, Indexable

# Each domain has its own stream of random numbers.
SOURCE = 0
TARGET = 1
AHEAD = 3  # batches that are read while the network trains on one
PREDICTED = 256  # inputs that are predicted together
# Numbers that are predicted together on a CPU, where large batches take twice as long.
CPU_NUMBERS = 2**21

Prepared = TypeVar("Prepared")


class Tensors:
    """Images or cached features, handed out as tensors.

    >>> Tensors(np.array([[1.0], [2.0]]))[np.array([1])]
    tensor([[2.]], dtype=torch.float64)
    """

    def __init__(self, inputs: Indexable, device: str | torch.device = "cpu") -> None:
        self.inputs = inputs
        self.device = device

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, chosen: NDArray[np.intp]) -> Tensor:
        return self.placed(self.staged(self.inputs[chosen]))

    def staged(self, array: NDArray[Any]) -> Tensor:
        """Return an array as a tensor in main memory, ready to be placed."""
        return staged(array, self.device)

    def placed(self, tensor: Tensor) -> Tensor:
        """Return a staged tensor on the device; the copy runs beside the computation."""
        return tensor.to(self.device, non_blocking=True)


def batch_numbers(n: int, batch: int, seed: int, stream: int, step: int) -> NDArray[np.intp]:
    """The numbers of the inputs of one step, steps counted from 1.

    Shuffled epochs, the incomplete last batch dropped.

    A function of its arguments alone, so a training that was killed draws the same batches when it
    resumes.

    >>> [batch_numbers(5, 2, 0, SOURCE, step).size for step in (1, 2, 3)]
    [2, 2, 2]
    >>> first, second = batch_numbers(4, 2, 0, SOURCE, 1), batch_numbers(4, 2, 0, SOURCE, 2)
    >>> sorted([*first.tolist(), *second.tolist()])
    [0, 1, 2, 3]
    """
    batch = min(batch, n)
    epoch, place = divmod(step - 1, n // batch)
    order = np.random.default_rng([seed, stream, epoch]).permutation(n)
    return order[place * batch : (place + 1) * batch]


def random_crops(
    crops: Crops, numbers: NDArray[np.intp], seed: int, stream: int, step: int
) -> NDArray[np.uint8]:
    """Crop and mirror the images of one step.

    A function of its arguments alone, like `batch_numbers`.
    """
    rng = np.random.default_rng([seed, stream, step, 1])  # batches are drawn from three numbers
    return crops.random(numbers, rng)


def read_ahead(prepare: Callable[[int], Prepared], first: int) -> Generator[Prepared, None, None]:
    """Yield what is prepared for each step, while a thread prepares the next ones.

    >>> steps = read_ahead(lambda step: 10 * step, 4)
    >>> next(steps), next(steps)
    (40, 50)
    >>> steps.close()
    """
    with ThreadPoolExecutor(1, "ahead") as pool:
        waiting = deque(pool.submit(prepare, first + i) for i in range(AHEAD))
        try:
            for step in count(first + AHEAD):
                prepared = waiting.popleft().result()
                waiting.append(pool.submit(prepare, step))
                yield prepared
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def predict_tensors(network: Network, inputs: Tensors) -> tuple[Tensor, Tensor]:
    """Features and logits of all inputs in evaluation mode.

    The network returns to its own mode afterwards.
    """
    parts = list(predict_batches(network, inputs))
    return torch.cat([f for f, _ in parts]), torch.cat([z for _, z in parts])


def predict_arrays(network: Network, inputs: Tensors) -> dict[str, NDArray[Any]]:
    """Compute features and logits as arrays, by the names they are saved under.

    A GPU holds one batch of them.
    """
    parts = [(f.cpu(), z.cpu()) for f, z in predict_batches(network, inputs)]
    return {
        "logits": torch.cat([z for _, z in parts]).numpy(),
        "features": torch.cat([f for f, _ in parts]).numpy(),
    }


def predict_batches(network: Network, inputs: Tensors) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield features and logits batch by batch, in evaluation mode.

    Read to its end, it restores the mode.
    """
    was_training = network.training
    network.eval()
    fits = CPU_NUMBERS // max(1, math.prod(inputs.inputs.shape[1:]))
    batch = PREDICTED if torch.device(inputs.device).type != "cpu" else max(1, min(PREDICTED, fits))
    for start in range(0, len(inputs), batch):
        with torch.inference_mode(False), torch.no_grad():
            both = network.both(inputs[np.arange(start, min(start + batch, len(inputs)))])
        yield both
    network.train(was_training)


def save_arrays(path: Path, **arrays: np.ndarray[Any, Any]) -> None:
    """Write arrays to an .npz file."""
    check_no_objects(arrays)
    with replacing(path) as aside:
        np.savez(aside, **arrays)  # type: ignore[arg-type]


def save_tensors(path: Path, tensors: Mapping[str, Tensor], note: Any = None) -> None:
    """Write tensors to a safetensors file, with `note` as JSON in its header."""
    save = require("safetensors.torch", "adapt").save
    plain = {name: tensor.detach().cpu().clone().contiguous() for name, tensor in tensors.items()}
    with replacing(path) as aside:
        aside.write_bytes(save(plain, metadata={"note": json.dumps(note)}))


def load_tensors(path: Path) -> tuple[dict[str, Tensor], Any]:
    """Read what `save_tensors` wrote: the tensors and the note."""
    with require("safetensors", "adapt").safe_open(path, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  it is no dict
        return tensors, json.loads(file.metadata()["note"])
