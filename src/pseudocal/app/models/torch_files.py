"""Torch files, `torch.export` (.pt2) and TorchScript.

Run them, and write them with the division by T inside.

Both can run code: torch evaluates expressions and guards in a .pt2 file, and the `forward` of
TorchScript can read and write files. Only `open_model` calls these functions, after checking that
the file is trusted.
"""

from __future__ import annotations

import warnings
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pseudocal.app.models.model import Chunked, Expects, OpenModel, check_exported, or_input_error
from pseudocal.arrays import Floats, InputError, Inputs, Predictor, as_numpy
from pseudocal.extras import require

if TYPE_CHECKING:
    from torch import Tensor


def open_exported(path: Path, *, device: str = "cpu", **_: Any) -> OpenModel:
    """Open a file that `torch.export.save` wrote."""
    torch = require("torch", "torch")
    with or_input_error(f"{path}, a torch.export file, cannot be read"):
        program = torch.export.load(path)
        entry = _only_input(program)
        shape = [d if isinstance(d, int) else None for d in entry.shape]
        predict = _predictor(program, device)

    def export(temperature: float, folder: Path, probe: Inputs) -> list[str]:
        expected = predict(probe) / temperature
        content = BytesIO()  # on a full disk torch would abort the process
        with or_input_error(f"{path}, a torch.export file, cannot be written"):
            program = torch.export.load(path)
            divide_output(program, temperature)
            torch.export.save(program, content)
        target = folder / "model.pt2"
        target.write_bytes(content.getvalue())
        check_exported(open_exported(target).predict(probe), expected, "program")
        return [target.name]

    return OpenModel(
        kind="pt2",
        predict=predict,
        expects=Expects(tuple(shape[1:]) or None, str(entry.dtype).removeprefix("torch.")),
        notes=("input (" + ", ".join(str(d or "?") for d in shape) + ")",),
        export=export,
    )


def _predictor(program: Any, device: str) -> Predictor:
    torch = require("torch", "torch")
    logits_of = require("pseudocal.predictors.torch_module", "torch").logits_of
    module = program.module().to(device)
    entry = _only_input(program)

    def predict(x: Inputs, /) -> Floats:
        with torch.inference_mode():
            output = logits_of(module(torch.as_tensor(x).to(device, entry.dtype)))
        return as_numpy(output.float())

    batch_size = entry.shape[0]
    return Chunked(predict, batch_size) if isinstance(batch_size, int) else predict


def _only_input(program: Any) -> Any:
    names = program.graph_signature.user_inputs
    if len(names) != 1:
        raise InputError(f"the program takes the inputs {list(names)}: export one with one input")
    return next(node.meta["val"] for node in program.graph.nodes if node.name == names[0])


def divide_output(program: Any, temperature: float) -> None:
    """Divide the first output of an exported program by T; its shapes do not change."""
    torch = require("torch", "torch")
    end = program.graph.output_node()
    spec = next(s for s in program.graph_signature.output_specs if s.kind.name == "USER_OUTPUT")
    logits = next(node for node in end.args[0] if getattr(node, "name", None) == spec.arg.name)
    with program.graph.inserting_before(end):
        scaled = program.graph.call_function(
            torch.ops.aten.div.Tensor, (logits, float(temperature))
        )
        scaled.meta = dict(logits.meta)
    end.args = (tuple(scaled if node is logits else node for node in end.args[0]),)
    spec.arg = type(spec.arg)(name=scaled.name)
    program.graph_module.recompile()
    program.validate()


def open_torchscript(path: Path, *, device: str = "cpu", **_: Any) -> OpenModel:
    """Open a file that `torch.jit.save` wrote."""
    torch_module = require("pseudocal.predictors.torch_module", "torch")
    predict = torch_module.TorchPredictor(_load_script(path, device))

    def export(temperature: float, folder: Path, probe: Inputs) -> list[str]:
        expected = predict(probe) / temperature
        target = folder / "model.pt"
        target.write_bytes(_divided_script(path, temperature, probe))
        check_exported(open_torchscript(target).predict(probe), expected, "module")
        return [target.name]

    return OpenModel(
        kind="torchscript",
        predict=predict,
        notes=("TorchScript does not describe its input",),
        export=export,
    )


def _load_script(path: Path, device: str) -> Any:
    torch = require("torch", "torch")
    with (
        or_input_error(f"{path}, a TorchScript file, cannot be read"),
        # TorchScript is deprecated but still in use
        warnings.catch_warnings(action="ignore", category=DeprecationWarning),
    ):
        return torch.jit.load(path, map_location=device)


def _divided_script(path: Path, temperature: float, probe: Inputs) -> bytes:
    """A module whose logits are divided by T."""
    import torch

    from pseudocal.predictors.torch_module import logits_of

    class Divided(torch.nn.Module):
        def __init__(self, model: Any) -> None:
            super().__init__()
            self.model = model
            self.register_buffer("temperature", torch.tensor(float(temperature)))

        def forward(self, x: Tensor) -> Tensor:
            return logits_of(self.model(x)) / self.get_buffer("temperature")

    with (
        or_input_error(f"{path}, a TorchScript file, cannot be written"),
        warnings.catch_warnings(action="ignore", category=DeprecationWarning),
    ):
        # traced, not scripted: scripting needs the source of this file, which may be missing
        divided = Divided(_load_script(path, "cpu")).eval()
        traced: Any = torch.jit.trace(divided, torch.as_tensor(probe))  # type: ignore[no-untyped-call]
        content: bytes = traced.save_to_buffer()
    return content
