"""A `torch.export` file (.pt2): run it, and write it again with the division by T inside.

To load one is to run what it says: torch evaluates expressions and guards from the file. Only `open_model`, which asks
whether the file is trusted, calls this.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from pseudocal.app.models.opened import Chunked, Expects, OpenModel
from pseudocal.arrays import Floats, InputError, Inputs, Predictor
from pseudocal.extras import MissingExtraError


def open_exported(path: Path, *, device: str = "cpu", **_: Any) -> OpenModel:
    """Open a file that `torch.export.save` wrote."""
    try:
        import torch
    except ImportError as error:
        raise MissingExtraError("torch", "torch") from error
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
