"""A `torch.export` file (.pt2): run it, and write it again with the division by T inside."""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from pseudocal.app.models.opened import Chunked, Expects, OpenModel
from pseudocal.arrays import Floats, InputError, Inputs, Predictor
from pseudocal.extras import MissingExtraError

# torch turns such strings into expressions with `eval`, so only arithmetic and classes of sympy, Symbol('n'), may pass:
# no attribute, nothing private, no call of a name in lower case, which is where the builtins are
EXPRESSION = re.compile(r"(?!.*__)(?!.*\. *[A-Za-z_])(?!.*\b[a-z_]\w* *\()[\w +\-*/%().,<>=!&|']*", re.ASCII)


def open_exported(path: Path, *, device: str = "cpu", **_: Any) -> OpenModel:
    """Open a file that `torch.export.save` wrote, once it is known to hold no pickle that could run code."""
    try:
        import torch
    except ImportError as error:
        raise MissingExtraError("torch", "torch") from error
    _refuse_code(path)
    try:
        program = torch.export.load(path)
    except Exception as error:
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(f"expected a torch.export file, got {path}, which cannot be read: {first}") from error
    entry = _only_input(program)
    shape = [d if isinstance(d, int) else None for d in entry.shape]
    predict = _predictor(program, device, entry.dtype, shape[0])
    return OpenModel(
        kind="pt2",
        predict=predict,
        expects=Expects(tuple(shape[1:]) or None, str(entry.dtype).removeprefix("torch.")),
        notes=("input (" + ", ".join(str(d or "?") for d in shape) + ")",),
        ship=lambda temperature, folder, probe: _ship(path, temperature, folder, predict(probe), probe),
    )


def _predictor(program: Any, device: str, dtype: Any, fixed: int | None) -> Predictor:
    import torch

    module = program.module().to(device)

    def predict(x: Inputs, /) -> Floats:
        from pseudocal.predictors.torch_module import logits_of

        with torch.inference_mode():
            return logits_of(module(torch.as_tensor(x).to(device, dtype))).float().cpu().numpy()

    return Chunked(predict, fixed) if fixed else predict


def _only_input(program: Any) -> Any:
    names = program.graph_signature.user_inputs
    if len(names) != 1:
        raise InputError(f"expected an exported program with one input, got {list(names)}")
    return next(node.meta["val"] for node in program.graph.nodes if node.name == names[0])


def _ship(path: Path, temperature: float, folder: Path, before: Floats, probe: Inputs) -> list[str]:
    """Write the calibrated program, load it again, run it on a few inputs."""
    import torch

    target = folder / "model.pt2"
    program = torch.export.load(path)
    divide_output(program, temperature)
    torch.export.save(program, target)
    entry = _only_input(program)
    fixed = entry.shape[0] if isinstance(entry.shape[0], int) else None
    after = _predictor(torch.export.load(target), "cpu", entry.dtype, fixed)(probe)
    if not np.allclose(after, before / temperature, rtol=1e-3, atol=1e-4):
        raise InputError(f"expected the calibrated program to say {before[0] / temperature}, got {after[0]}")
    return [target.name]


def divide_output(program: Any, temperature: float) -> None:
    """Divide the first output of an exported program by T; every shape it was exported for stays as it was."""
    import torch

    end = program.graph.output_node()
    spec = next(s for s in program.graph_signature.output_specs if s.kind.name == "USER_OUTPUT")
    logits = next(node for node in end.args[0] if getattr(node, "name", None) == spec.arg.name)
    with program.graph.inserting_before(end):
        scaled = program.graph.call_function(torch.ops.aten.div.Tensor, (logits, float(temperature)))
        scaled.meta = dict(logits.meta)
    end.args = (tuple(scaled if node is logits else node for node in end.args[0]),)
    spec.arg = type(spec.arg)(name=scaled.name)
    program.graph_module.recompile()
    program.validate()


def _refuse_code(path: Path) -> None:
    """Refuse an archive that would run code when torch opens it: a pickle, a compiled library, a crafted expression."""
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            if name.endswith((".so", ".cpp", ".cubin")) or "/aotinductor/" in name:
                raise InputError(f"expected a program without compiled code, got {path} with {name}")
        for name in _pickled(archive):
            _refuse_pickle(path, name, archive.read(name))
        for name in archive.namelist():
            if name.endswith(".json"):
                _refuse_expressions(path, name, json.loads(archive.read(name)))


def _pickled(archive: zipfile.ZipFile) -> Iterator[str]:
    """The members of an archive that torch would unpickle."""
    for name in archive.namelist():
        if name.endswith((".pt", ".pkl", ".pth")) or "custom_obj" in name or "opaque_obj" in name:
            yield name
        elif name.endswith("_config.json"):
            for payload in json.loads(archive.read(name)).get("config", {}).values():
                if payload.get("use_pickle"):
                    yield name.rpartition("/")[0] + "/" + payload["path_name"]


def _refuse_pickle(path: Path, name: str, content: bytes) -> None:
    import torch

    try:
        if content:
            torch.load(io.BytesIO(content), weights_only=True)
    except Exception as error:
        raise InputError(
            f"expected tensors only, got {path} with {name}, a pickle that is more than that: "
            "pickles run code when they are loaded and are never opened here"
        ) from error


def _refuse_expressions(path: Path, name: str, value: Any) -> None:
    if isinstance(value, dict):
        text = value.get("expr_str", "")
        if not (isinstance(text, str) and EXPRESSION.fullmatch(text)):
            raise InputError(f"expected sizes that are arithmetic, got {path} with {text!r} in {name}")
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for part in parts:
        _refuse_expressions(path, name, part)
