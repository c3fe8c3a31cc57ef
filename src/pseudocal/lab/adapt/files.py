"""Files that are whole or absent: written aside, then renamed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from pseudocal.extras import MissingExtraError
from pseudocal.files import replacing


def save_arrays(path: Path, **arrays: np.ndarray[Any, Any]) -> None:
    """Write an .npz."""
    with replacing(path) as aside:
        np.savez(aside, allow_pickle=False, **arrays)


def save_tensors(path: Path, tensors: Mapping[str, Tensor], note: Any = None) -> None:
    """Write safetensors; `note` is JSON that travels in the same file, so the two can never be out of step."""
    save_file = _safetensors("save_file")
    with replacing(path) as aside:
        plain = {name: tensor.detach().cpu().clone().contiguous() for name, tensor in tensors.items()}
        save_file(plain, aside, metadata={"note": json.dumps(note)})


def load_tensors(path: Path) -> tuple[dict[str, Tensor], Any]:
    """Read what `save_tensors` wrote: the tensors and the note."""
    with _safetensors("safe_open")(path, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  it is no dict
        return tensors, json.loads(file.metadata()["note"])


def _safetensors(name: str) -> Any:
    try:
        import safetensors.torch
    except ImportError as error:
        raise MissingExtraError("safetensors", "adapt") from error
    return getattr(safetensors.torch, name)
