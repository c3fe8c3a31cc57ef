"""A target over the ranks of `torchrun`.

Each collects from its shard, and all return the same calibration.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pseudocal.arrays import InputError
from pseudocal.batches import DEFAULT_BATCH_SIZE, fitting
from pseudocal.calibrators import Calibration, PseudoCal
from pseudocal.calibrators.evidence import Packed
from pseudocal.calibrators.surrogate import PACKED as LESSONS
from pseudocal.calibrators.trust import warn_if_unreliable
from pseudocal.extras import MissingExtraError
from pseudocal.predictors import as_predictor

PACKED_NAMES = ("counts", "ceilings", "opinions", "mixup", "real", *LESSONS)


def fit_across_ranks(
    method: PseudoCal,
    model: Any,
    data: Any,
    *,
    second_opinion: Any = None,
    batch_size: int = DEFAULT_BATCH_SIZE,
) -> Calibration:
    """Calibrate on the data of all ranks of `torch.distributed`.

    Each rank mixes inputs of its shard. Then each rank in turn broadcasts its samples as plain
    bytes, with gloo, or with nccl through GPU memory. Every rank merges them in the same order and
    returns the same calibration. With a `tolerance`, each of R ranks stops at the square root of R
    times the tolerance, since the error of all ranks together is smaller by that factor.

    Args:
        method: The settings of the calibration.
        model: The model, as in `PseudoCal.fit`.
        data: The shard of this rank.
        second_opinion: Another model, as in `PseudoCal.fit`.
        batch_size: The number of inputs that are predicted together.

    """
    dist = _group()
    rank = dist.get_rank()
    world = dist.get_world_size()
    tolerance = None if method.tolerance is None else method.tolerance * math.sqrt(world)
    model = as_predictor(model)
    batch_size = fitting(model, data, batch_size, method.memory)
    evidence = replace(method, tolerance=tolerance).collect(
        model, data, second_opinion=second_opinion, batch_size=batch_size, part=rank
    )
    packed = evidence.pack()
    merged = method.empty_evidence()
    for sender in range(world):
        merged.merge(_broadcast_packed(packed, sender))
    calibration = method.conclude(merged, {"batch_size": batch_size, "ranks": world})
    if method.on_unreliable != "identity":
        warn_if_unreliable(calibration.trust)
    return calibration


def _broadcast_packed(packed: Packed, sender: int) -> Packed:
    """The packed evidence of `sender`, on every rank."""
    return {
        name: array
        for name in PACKED_NAMES
        if (array := _broadcast_array(packed.get(name), sender)) is not None
    }


def _broadcast_array(array: NDArray[Any] | None, sender: int) -> NDArray[Any] | None:
    """Broadcast a header with size and type, then the bytes."""
    header = _broadcast(_header(array), sender)
    rows, size, kind, classes, groups = header.view(np.int64).tolist()
    if rows < 0:
        return None
    content = (
        np.zeros(rows * size, dtype=np.uint8)
        if array is None
        else np.frombuffer(array.tobytes(), dtype=np.uint8)
    )
    if len(content) != rows * size:
        content = np.zeros(rows * size, dtype=np.uint8)
    return _broadcast(content, sender).view(_dtype(kind, classes, groups))


def _header(array: NDArray[Any] | None) -> NDArray[np.uint8]:
    """Rows, bytes per row, the kind of numbers, classes (0 for a plain column), groups of a row (-1 for none)."""
    numbers = [-1, 0, 0, 0, -1]
    if array is not None:
        names = array.dtype.names or ()
        inner = array.dtype["logits"] if names else array.dtype
        kind = -1 if inner.kind == "i" else inner.base.itemsize
        groups = sum(array.dtype["group"].shape) if "group" in names else -1
        numbers = [len(array), array.dtype.itemsize, kind, sum(inner.shape), groups]
    return np.array(numbers, dtype=np.int64).view(np.uint8)


def _dtype(kind: int, classes: int, groups: int) -> np.dtype[Any]:
    """The dtype that `_header` describes; rows are those of a `Reservoir`."""
    if classes == 0:
        return np.dtype(np.int64 if kind < 0 else f"<f{kind}")
    group = [] if groups < 0 else [("group", "<i8", (groups,) if groups else ())]
    return np.dtype(
        [
            ("logits", f"<f{kind}", (classes,)),
            ("label", "<i8"),
            ("weight", "<f8"),
            ("key", "<f8"),
            *group,
        ]
    )


def _broadcast(content: NDArray[np.uint8], sender: int) -> NDArray[np.uint8]:
    import torch
    import torch.distributed as dist

    device = (
        torch.device("cuda", torch.cuda.current_device())
        if dist.get_backend() == "nccl"
        else torch.device("cpu")
    )
    tensor = torch.from_numpy(np.array(content)).to(device)
    dist.broadcast(tensor, sender)
    received: NDArray[np.uint8] = tensor.cpu().numpy()
    return received


def _group() -> Any:
    try:
        import torch.distributed as dist
    except ImportError as error:
        raise MissingExtraError("torch", "torch") from error
    if not (dist.is_available() and dist.is_initialized()):
        raise InputError(
            "expected a process group, got none: call torch.distributed.init_process_group first"
        )
    return dist
