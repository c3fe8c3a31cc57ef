"""A zero-shot encoder as a second opinion.

A CLIP or SigLIP that is told what the classes are called.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pseudocal.app.models.hugging_face import (
    open_headless,
    open_tokenizer,
    preprocessing_of,
    read_preprocessor,
)
from pseudocal.app.models.model import Expects, OpenModel
from pseudocal.arrays import InputError, Inputs, Logits
from pseudocal.extras import require
from pseudocal.skipped import one_line

ZERO_SHOT_MODELS = ("clip", "siglip")  # by the `model_type` of their config.json
ENCODER = "a CLIP or SigLIP"
NUMBERED = re.compile(r"LABEL_\d+")  # what Hugging Face calls a class without a name
TEXTS_AT_ONCE = 64


def open_zero_shot(name: str, classes: tuple[str, ...], *, device: str = "cpu") -> OpenModel:
    """Open the encoder that `zero-shot:FOLDER` names.

    Nothing is downloaded, weights are read from safetensors only.

    Its logits are the cosines between an input and "a photo of a NAME" for each class, times the
    scale that the encoder was trained with.

    Args:
        name: "zero-shot:" and the folder.
        classes: the class names.
        device: where the encoder runs.

    """
    folder = Path(name.partition(":")[2])
    if not (folder / "config.json").is_file():
        raise InputError(
            f"expected zero-shot:FOLDER with {ENCODER} in a folder of this machine, got {name}"
        )
    if not classes or all(NUMBERED.fullmatch(each) for each in classes):
        got = f"{classes[0]!r} and the like" if classes else "none"
        raise InputError(
            f"expected class names for a zero-shot encoder, got {got}: give classes=(name, ...)"
        )
    model = _open_encoder(folder, device)
    vision = model.config.vision_config
    return OpenModel(
        kind="zero-shot",
        predict=ZeroShotPredictor(
            model, _text_rows(folder, model, [prompt_of(each) for each in classes])
        ),
        expects=Expects(
            (vision.num_channels, vision.image_size, vision.image_size),
            "float32",
            preprocessing=preprocessing_of(read_preprocessor(folder)),
        ),
        notes=(
            f"{type(model).__name__} with {len(classes)} class names, zero-shot; how well this works is untested",
        ),
    )


def prompt_of(name: str) -> str:
    """What the encoder reads for a class; SigLIP 2 knows lower case only.

    >>> prompt_of("Golden_retriever")
    'a photo of a golden retriever'
    """
    return f"a photo of a {name.replace('_', ' ').lower()}"


@dataclass(frozen=True)
class ZeroShotPredictor:
    """An encoder of images, and the classes that they are compared with.

    Attributes:
        model: the encoder.
        texts: a row for each class, of unit length times the encoder's scale.

    """

    model: Any
    texts: Any

    def __call__(self, x: Inputs, /) -> Logits:
        """Predict one batch of images."""
        torch = require("torch", "hf")
        with torch.inference_mode():
            pixels = torch.as_tensor(x, dtype=torch.float32).to(self.texts.device)
            images = _unit_rows(self.model.get_image_features(pixel_values=pixels))
            logits: Logits = (images @ self.texts.T).cpu().numpy()
        return logits


def _open_encoder(folder: Path, device: str) -> Any:
    model, missing = open_headless(folder, ENCODER)
    if model.config.model_type not in ZERO_SHOT_MODELS:
        raise InputError(
            f"expected {ENCODER} as a zero-shot encoder, got {folder}, a {model.config.model_type}"
        )
    if missing:
        raise InputError(
            f"expected {ENCODER} with all of its weights, got {folder} without {missing[0]}"
        )
    return model.to(device)


def _text_rows(folder: Path, model: Any, texts: list[str]) -> Any:
    """The rows of the texts; a SigLIP was trained on texts of full length without a mask."""
    torch = require("torch", "hf")
    tokenizer = open_tokenizer(folder, ENCODER)
    siglip = model.config.model_type == "siglip"
    longest = model.config.text_config.max_position_embeddings
    read: dict[str, Any] = {
        "padding": "max_length" if siglip else True,
        "truncation": True,
        "max_length": longest,
    }
    rows = []
    try:
        with torch.inference_mode():
            for i in range(0, len(texts), TEXTS_AT_ONCE):
                tokens = tokenizer(texts[i : i + TEXTS_AT_ONCE], return_tensors="pt", **read).to(
                    model.device
                )
                given = {
                    key: tokens[key]
                    for key in ("input_ids", *(() if siglip else ("attention_mask",)))
                }
                rows.append(_unit_rows(model.get_text_features(**given)))
            return torch.cat(rows) * model.logit_scale.exp()
    except Exception as error:  # of a tokenizer that belongs to another model
        raise InputError(
            f"expected {ENCODER} with its own tokenizer, got {folder}: {one_line(error)}"
        ) from error


def _unit_rows(output: Any) -> Any:
    """Features at unit length; newer versions of transformers return them as part of an object."""
    rows = getattr(output, "pooler_output", output)
    return rows / rows.norm(dim=-1, keepdim=True)
