"""How training uses a device: precision, memory layout, transfers and deterministic algorithms.

Everything that only a GPU does is here. It never ran on one (docs/paper/gpu.md).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from pseudocal.lab.settings import Precision

AUTOCAST: dict[
    Precision, torch.dtype | None
] = {  # what a network computes in where torch allows it
    "single": None,
    "mixed": torch.bfloat16,
    "float16": torch.float16,  # with scaled gradients: small ones would be zero
}
AnyModule = TypeVar("AnyModule", bound=nn.Module)


def autocast(
    device: torch.device, precision: Precision, *, enabled: bool = True
) -> AbstractContextManager[Any]:
    """Compute in a lower precision inside the block, where torch does so safely.

    Args:
        device: the device of the tensors.
        precision: a name in `AUTOCAST`.
        enabled: whether to do so at all.

    """
    dtype = AUTOCAST[precision]
    if not enabled or dtype is None:
        return nullcontext()
    return torch.autocast(device.type, dtype)


def on_device(module: AnyModule, device: str | torch.device) -> AnyModule:
    """Move a module; on a GPU its convolutions get the layout that is fastest there.

    >>> weight = on_device(nn.Conv2d(2, 2, 3), "meta").weight
    >>> weight.is_contiguous(memory_format=torch.channels_last)
    True

    Args:
        module: the module.
        device: the device.

    """
    if torch.device(device).type == "cpu":
        return module.to(device)
    return module.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]


def staged(array: NDArray[Any], device: str | torch.device) -> Tensor:
    """Return an array as a tensor in main memory, pinned if a GPU will read it.

    The array is copied in C order: torch chooses its kernels, and so the last digits, by the
    strides, and `np.ascontiguousarray` keeps odd strides where an axis has length one.

    Args:
        array: the array.
        device: where the tensor will go.

    """
    tensor = torch.from_numpy(np.array(array, order="C"))
    if torch.device(device).type == "cuda" and torch.cuda.is_available():
        return tensor.pin_memory()
    return tensor


@contextmanager
def deterministic(device: str | torch.device) -> Iterator[None]:
    """Use deterministic algorithms on a GPU inside the block.

    Operations without one warn. A CPU needs nothing.

    Args:
        device: the device.

    """
    if torch.device(device).type == "cpu":
        yield
        return
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when cuBLAS starts
    before = torch.are_deterministic_algorithms_enabled()
    warned = torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before, warn_only=warned)
