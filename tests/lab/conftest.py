"""A device that records: "cuda" on a machine without a GPU; registries that forget plugins."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

CUDA = torch.device("cuda", 0)
DEVICE_OF = Tensor.device.__get__
COPIES = {
    "_to_copy",
    "copy_",
    "clone",
    "detach",
    "set_",
    "set_data",
}  # what may cross, or knows no device
HEAVY = {
    "convolution",
    "addmm",
    "mm",
    "bmm",
    "native_batch_norm",
    "cudnn_batch_norm",
}  # the work that belongs on a GPU


class Places:
    """Which storages are on the pretended GPU.

    A storage is kept, so that its address is not used again.
    """

    def __init__(self) -> None:
        self.gpu: dict[int, Any] = {}
        self.cpu: dict[
            int, Any
        ] = {}  # made by Python on the CPU; what torch makes for itself is on neither side
        self.heavy: list[tuple[str, bool]] = []  # operations, and whether they ran on the GPU
        self.waits = 0  # numbers that were read from the GPU one by one: it stops for each

    def on_gpu(self, tensor: Tensor) -> bool:
        return tensor.untyped_storage()._cdata in self.gpu

    def on_cpu(self, tensor: Tensor) -> bool:
        return tensor.untyped_storage()._cdata in self.cpu

    def put(self, tensor: Tensor, *, gpu: bool) -> Tensor:
        with torch._C.DisableTorchFunction():
            storage = tensor.untyped_storage()
        (self.cpu if gpu else self.gpu).pop(storage._cdata, None)
        (self.gpu if gpu else self.cpu)[storage._cdata] = storage
        return tensor


class Operations(TorchDispatchMode):
    """Refuse operations of tensors on both sides, in the forward and in the backward pass."""

    def __init__(self, places: Places) -> None:
        super().__init__()
        self.places = places

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        given = [x for x in tree_flatten((args, kwargs))[0] if isinstance(x, Tensor)]
        gpu = any(self.places.on_gpu(x) for x in given)
        left = [tuple(x.shape) for x in given if self.places.on_cpu(x) and x.ndim]
        if gpu and left and name not in COPIES:
            raise AssertionError(
                f"{name}: a tensor on the GPU meets one of shape {left[0]} on the CPU"
            )
        if name == "_local_scalar_dense" and gpu:
            self.places.waits += 1
        if name in HEAVY:
            self.places.heavy.append((name, gpu))
        result = func(*args, **(kwargs or {}))
        made = [x for x in tree_flatten(result)[0] if isinstance(x, Tensor)]
        for x in made:
            if gpu and not self.places.on_cpu(x):
                self.places.put(x, gpu=True)
            elif left and not self.places.on_gpu(x):
                self.places.put(x, gpu=False)
        return result


class Calls(TorchFunctionMode):
    """Let Python see "cuda": transfers, factories and `.device`."""

    def __init__(self, places: Places) -> None:
        super().__init__()
        self.places = places

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        name = getattr(func, "__name__", "")
        if func == DEVICE_OF:
            return CUDA if self.places.on_gpu(args[0]) else torch.device("cpu")
        if name in ("numpy", "__array__") and self.places.on_gpu(args[0]):
            raise AssertionError("a tensor on the GPU is read as an array")
        if name in ("to", "cpu", "cuda"):
            return self._moved(name, *args, **kwargs)
        wanted = kwargs.get("device")
        if wanted is not None:
            kwargs["device"] = "cpu"
        waits = self.places.waits
        result = func(*args, **kwargs)
        if name == "one_hot":  # checks its numbers on a CPU only
            self.places.waits = waits
        given = [x for x in tree_flatten((args, kwargs))[0] if isinstance(x, Tensor)]
        if isinstance(result, Tensor) and (wanted is not None or not given):  # a factory
            self.places.put(result, gpu=wanted is not None and torch.device(wanted).type == "cuda")
        return result

    def _moved(self, name: str, tensor: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        asked = {"cpu": "cpu", "cuda": "cuda"}.get(name) or kwargs.get("device")
        for value in args:
            if isinstance(value, str | torch.device):
                asked = value
            if isinstance(value, Tensor):
                asked = CUDA if self.places.on_gpu(value) else "cpu"
        plain = tree_map(
            lambda v: "cpu" if isinstance(v, str | torch.device) else v, (args, kwargs)
        )
        result = tensor.to(*plain[0], **plain[1]) if name == "to" else tensor
        now = self.places.on_gpu(tensor)
        wanted = now if asked is None else torch.device(asked).type == "cuda"
        if wanted == now:
            return result if result is tensor else self.places.put(result, gpu=now)
        return self.places.put(tensor.clone() if result is tensor else result.clone(), gpu=wanted)


@contextmanager
def recorded() -> Iterator[Places]:
    """Everything inside runs on this machine, and "cuda" is a side of it that the CPU must not meet."""
    places, from_numpy, fork_rng = Places(), torch.from_numpy, torch.random.fork_rng
    with pytest.MonkeyPatch.context() as patch, Operations(places), Calls(places):
        patch.setattr(torch, "from_numpy", lambda array: places.put(from_numpy(array), gpu=False))
        patch.setattr(
            torch.random, "fork_rng", lambda devices: fork_rng(devices=[])
        )  # the GPU draws on the CPU
        yield places


@pytest.fixture
def recording() -> Any:
    return recorded


@pytest.fixture
def registries() -> Iterator[None]:
    """Forget what a test registers."""
    from pseudocal.calibrators import CALIBRATORS
    from pseudocal.lab import plugins
    from pseudocal.lab.adapt import METHODS
    from pseudocal.lab.data import DATASETS

    registries: tuple[dict[str, Any], ...] = (CALIBRATORS, METHODS, DATASETS)
    before = [dict(each) for each in registries]
    plugins._import_file.cache_clear()
    yield
    for registry, content in zip(registries, before, strict=True):
        registry.clear()
        registry.update(content)
