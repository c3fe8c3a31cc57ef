"""Rows of a data set as tensors: drawn in batches that depend on the seed and the step alone, or all predicted."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pseudocal.lab.adapt.networks import Network
from pseudocal.lab.data import Indexable

SOURCE, TARGET = 0, 1  # each domain has its own stream of random numbers


class Rows:
    """Images or cached features, handed out as tensors.

    >>> Rows(np.array([[1.0], [2.0]]))[np.array([1])]
    tensor([[2.]], dtype=torch.float64)
    """

    def __init__(self, inputs: Indexable, device: str = "cpu") -> None:
        self.inputs, self.device = inputs, device

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, rows: NDArray[np.intp]) -> Tensor:
        # A new array in C order: torch chooses its kernels, and so the last digits, by the strides, and
        # np.ascontiguousarray keeps odd strides where an axis has length one (a single channel).
        return torch.from_numpy(np.array(self.inputs[rows], order="C")).to(self.device)


def batch_rows(n: int, batch: int, seed: int, stream: int, step: int) -> NDArray[np.intp]:
    """The rows of one step, steps counted from 1: shuffled epochs, the incomplete last batch dropped.

    A function of its arguments alone, so a training that was killed draws the same batches when it goes on.

    >>> [batch_rows(5, 2, 0, SOURCE, step).size for step in (1, 2, 3)]
    [2, 2, 2]
    >>> first, second = batch_rows(4, 2, 0, SOURCE, 1), batch_rows(4, 2, 0, SOURCE, 2)
    >>> sorted([*first.tolist(), *second.tolist()])
    [0, 1, 2, 3]
    """
    batch = min(batch, n)
    epoch, place = divmod(step - 1, n // batch)
    order = np.random.default_rng([seed, stream, epoch]).permutation(n)
    return order[place * batch : (place + 1) * batch]


def predict(network: Network, rows: Rows, *, batch: int = 256) -> tuple[Tensor, Tensor]:
    """Features and logits of all rows in evaluation mode; the network is left as it was found."""
    was_training = network.training
    network.eval()
    with torch.inference_mode(False), torch.no_grad():
        parts = [network.both(rows[np.arange(i, min(i + batch, len(rows)))]) for i in range(0, len(rows), batch)]
    network.train(was_training)
    return torch.cat([f for f, _ in parts]), torch.cat([z for _, z in parts])


def predict_arrays(network: Network, rows: Rows) -> dict[str, NDArray[Any]]:
    """The same as arrays, by the names they are saved under."""
    features, logits = predict(network, rows)
    return {"logits": logits.cpu().numpy(), "features": features.cpu().numpy()}
