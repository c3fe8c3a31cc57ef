"""A Hugging Face classifier with its temperature inside, as a folder that `from_pretrained` opens as it is.

Logits are a linear layer, so dividing them by T is dividing its weights by T: the folder holds an
ordinary model.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from pseudocal.app.models.model import check_shipped
from pseudocal.arrays import Floats, Inputs, Predictor
from pseudocal.extras import require

# the folder in OUT, and the file that says that it is ours
MODEL_FOLDER = "model"
MODEL_RECORD = "pseudocal.json"


Running = Callable[[Any], Predictor]  # from a network to a predictor


def ship_folder(
    network: Any, running: Running, temperature: float, folder: Path, probe: Inputs, beside: Any
) -> list[str]:
    """Write the model with T inside its last layer, and what prepares its inputs.

    Check it on a few inputs.

    Args:
        network: the network of transformers.
        running: makes a predictor of it.
        temperature: the number that logits are divided by.
        folder: where to write the folder `model`.
        probe: a few inputs.
        beside: the tokenizer, or files of settings by name.

    Returns:
        The name of the folder; nothing if no layer of the model gives the logits.

    """
    model = copy.deepcopy(network).cpu()
    predict = running(model)
    before = np.asarray(predict(probe))
    layer = _layer_of_logits(model, predict, before, probe)
    if layer is None:
        return []
    _divide(layer, temperature)
    check_shipped(predict(probe), before / temperature, "model")
    target = folder / MODEL_FOLDER
    model.config.pseudocal_temperature = temperature
    model.save_pretrained(target)
    if isinstance(beside, dict):
        for name, settings in beside.items():
            if settings:
                (target / name).write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
    else:
        beside.save_pretrained(target)
    record = {"format": "pseudocal-model", "format_version": 1, "temperature": temperature}
    (target / MODEL_RECORD).write_text(json.dumps(record) + "\n", encoding="utf-8")
    return [MODEL_FOLDER]


def _layer_of_logits(model: Any, predict: Predictor, before: Floats, probe: Inputs) -> Any:
    """Find the layer whose weights give the logits.

    The last one that halves them when it is halved.
    """
    nn = require("torch.nn", "hf")
    layers = [one for one in model.modules() if isinstance(one, nn.Linear | nn.Conv2d)]
    for layer in reversed(layers):
        _divide(layer, 2.0)
        said = predict(probe)
        _divide(layer, 0.5)
        if np.allclose(
            said, before / 2, rtol=1e-4, atol=1e-4 * max(1.0, float(np.abs(before).max()))
        ):
            return layer
        if (
            layer.weight.shape[0] != before.shape[1]
        ):  # no layer of logits, and those before it are not either
            break
    return None


def _divide(layer: Any, number: float) -> None:
    torch = require("torch", "hf")
    with torch.no_grad():
        layer.weight.div_(number)
        if layer.bias is not None:
            layer.bias.div_(number)
