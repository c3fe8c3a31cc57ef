"""A Hugging Face classifier of images or texts, or a semantic segmenter, from a folder or from the hub."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pseudocal.app.models.hugging_face_folder import ship_folder
from pseudocal.app.models.hugging_face_source import checked_source, read_json
from pseudocal.app.models.model import Expects, OpenModel
from pseudocal.arrays import InputError, Inputs, Logits
from pseudocal.extras import require
from pseudocal.skipped import one_line

TEXT_MODEL = "AutoModelForSequenceClassification"
TOKENIZERS = ("*token*", "vocab*", "*.model")  # the names of files that one of them has
LONGEST_TEXT = 512  # tokens, if neither the tokenizer nor the model says


def open_hugging_face(name: str | Path, *, device: str = "cpu", **_: Any) -> OpenModel:
    """Open an image model and its preprocessor settings; weights are read from safetensors only.

    Args:
        name: the folder, or `hf:owner/name` for a model on the hub.
        device: where the model runs.

    """
    torch_module = require("pseudocal.predictors.torch_module", "hf")
    require("safetensors", "hf")
    transformers = require("transformers", "hf")
    require("transformers.utils.logging", "hf").disable_progress_bar()
    name = checked_source(name)
    try:
        here = {
            "trust_remote_code": False,
            "local_files_only": isinstance(name, Path),
        }  # a folder needs no hub
        config = transformers.AutoConfig.from_pretrained(name, **here)
        kind = _kind_of(getattr(config, "architectures", None) or ())
        opener = getattr(transformers, kind)
        model = opener.from_pretrained(name, config=config, use_safetensors=True, **here)
        classes = tuple(str(config.id2label[i]) for i in range(config.num_labels))
    except Exception as error:  # a damaged config may raise anything
        why = one_line(error)
        raise InputError(
            f"expected a Hugging Face classifier with safetensors, got {name}: {why}"
        ) from error
    if kind == TEXT_MODEL:
        return _text_model(name, model.to(device).eval(), classes)
    settings = read_preprocessor(name)
    preprocessing = preprocessing_of(settings)
    shape = (config.num_channels, None, None) if hasattr(config, "num_channels") else None
    return OpenModel(
        kind="huggingface",
        predict=torch_module.TorchPredictor(model.to(device)),
        expects=Expects(shape, "float32", preprocessing=preprocessing),
        classes=classes,
        notes=(type(model).__name__, f"preprocessor: {preprocessing or 'none'}"),
        ship=lambda temperature, folder, probe: ship_folder(
            model,
            torch_module.TorchPredictor,
            temperature,
            folder,
            probe,
            {"preprocessor_config.json": settings},
        ),
    )


def open_headless(name: str | Path, what: str) -> tuple[Any, list[str]]:
    """Open a model without its head, in single precision.

    The second result names the weights that its files lack, which are then random.

    Args:
        name: the folder, or `hf:owner/name`.
        what: what the model is, for messages.

    """
    require("safetensors", "hf")
    opener = require("transformers", "hf").AutoModel
    require("transformers.utils.logging", "hf").disable_progress_bar()
    safe: dict[str, Any] = {
        "trust_remote_code": False,
        "use_safetensors": True,
        "output_loading_info": True,
    }
    name = checked_source(name)
    try:
        model, found = opener.from_pretrained(name, local_files_only=isinstance(name, Path), **safe)
    except Exception as error:  # a damaged config may raise anything
        raise InputError(
            f"expected {what} with safetensors, got {name}: {one_line(error)}"
        ) from error
    return model.float().eval(), sorted(found["missing_keys"])


def _kind_of(architectures: Sequence[Any]) -> str:
    """Return the class of transformers that opens a model.

    >>> _kind_of(["BertForSequenceClassification"]), _kind_of([])
    ('AutoModelForSequenceClassification', 'AutoModelForImageClassification')
    """
    for part, kind in (
        ("Segmentation", "AutoModelForSemanticSegmentation"),
        ("SequenceClassification", TEXT_MODEL),
    ):
        if any(part in str(each) for each in architectures):
            return kind
    return "AutoModelForImageClassification"


def _text_model(name: str | Path, model: Any, classes: tuple[str, ...]) -> OpenModel:
    """Open the tokenizer of a text classifier."""
    tokenizer = open_tokenizer(name, "a text classifier")
    if tokenizer.pad_token is None:
        if tokenizer.eos_token is None:
            raise InputError(
                f"expected a tokenizer with a token for padding, got {name} without one"
            )
        tokenizer.pad_token = tokenizer.eos_token
    if model.config.pad_token_id is None:
        model.config.pad_token_id = tokenizer.pad_token_id
    longest = _longest_text(tokenizer, model.config)
    running = partial(TextPredictor, tokenizer=tokenizer, longest=longest)
    return OpenModel(
        kind="huggingface",
        predict=running(model),
        expects=Expects(text=True),
        classes=classes,
        notes=(type(model).__name__, f"texts of up to {longest} tokens; longer ones are cut"),
        ship=lambda temperature, folder, probe: ship_folder(
            model, running, temperature, folder, probe, tokenizer
        ),
    )


def _longest_text(tokenizer: Any, config: Any) -> int:
    """The most tokens that the tokenizer and the model take."""
    limits = {
        "model_max_length": tokenizer.model_max_length,
        "max_position_embeddings": getattr(config, "max_position_embeddings", None) or LONGEST_TEXT,
    }
    for key, limit in limits.items():
        if isinstance(limit, bool) or not isinstance(limit, int | float) or not limit >= 1:
            raise InputError(f"expected a number of tokens as {key} of the model, got {limit!r}")
    return int(min(limits.values()))


def open_tokenizer(name: str | Path, of: str) -> Any:
    """Open the tokenizer of a model.

    Args:
        name: the folder, or the name on the hub.
        of: what the model is, for messages.

    """
    if isinstance(name, Path) and not any(any(name.glob(pattern)) for pattern in TOKENIZERS):
        raise InputError(f"expected {of} with its tokenizer, got {name} without one")
    try:
        here = {"trust_remote_code": False, "local_files_only": isinstance(name, Path)}
        return require("transformers", "hf").AutoTokenizer.from_pretrained(name, **here)
    except Exception as error:  # a damaged or missing file may raise anything
        raise InputError(
            f"expected {of} with its tokenizer, got {name}: {one_line(error)}"
        ) from error


@dataclass(frozen=True)
class TextPredictor:
    """A text classifier with its tokenizer.

    Attributes:
        model: the network.
        tokenizer: what turns texts into token ids.
        longest: the most tokens of a text that are read.

    """

    model: Any
    tokenizer: Any
    longest: int

    def __call__(self, x: Inputs, /) -> Logits:
        """Predict one batch of texts, padded to the longest of them."""
        torch = require("torch", "hf")
        texts = [str(text) for text in x]
        tokens = self.tokenizer(
            texts, padding=True, truncation=True, max_length=self.longest, return_tensors="pt"
        )
        with torch.inference_mode():
            logits: Logits = self.model(**tokens.to(self.model.device)).logits.float().cpu().numpy()
        return logits


def preprocessing_of(settings: dict[str, Any]) -> dict[str, Any]:
    """Translate the settings of a preprocessor into those of `inputs.Preprocessing`.

    >>> preprocessing_of({"size": {"shortest_edge": 256}, "do_center_crop": True, "crop_size": 224})
    {'centre': 'down', 'size': (224, 224), 'resize': 'crop', 'edge': 256}

    ConvNeXt and ResNet give the fraction to crop instead:

    >>> preprocessing_of({"size": {"shortest_edge": 224}, "crop_pct": 0.875})
    {'centre': 'down', 'size': (224, 224), 'resize': 'crop', 'edge': 256}
    """
    try:
        return _settings_of(settings)
    except InputError:
        raise
    except (
        AttributeError,
        IndexError,
        KeyError,
        OverflowError,
        TypeError,
        ValueError,
        ZeroDivisionError,
    ) as error:
        raise InputError(
            f"expected sizes and numbers in preprocessor_config.json, got {str(settings)[:200]}"
        ) from error


def _settings_of(settings: dict[str, Any]) -> dict[str, Any]:
    preprocessing = {"centre": "down"} | size if (size := _size_of(settings)) else {}
    for key, ours in (("image_mean", "mean"), ("image_std", "std")):
        if settings.get("do_normalize", True) and settings.get(key):
            preprocessing[ours] = tuple(float(v) for v in settings[key])
    if not settings.get("do_rescale", True):
        preprocessing["scale"] = 1.0
    elif settings.get("rescale_factor"):
        preprocessing["scale"] = float(settings["rescale_factor"])
    if "resample" in settings:
        preprocessing["resample"] = int(settings["resample"])
    return preprocessing


def _size_of(settings: dict[str, Any]) -> dict[str, Any]:
    size = _sides(settings.get("size"))
    crop = _sides(settings.get("crop_size"))
    if not size or not settings.get("do_resize", True):
        return {}
    if settings.get("do_center_crop") and crop:
        edge = size if len(size) == 1 else None
        if edge is None and size != crop * (len(size) // len(crop)):
            raise InputError(
                f"expected a resize by the shorter side before a crop, got {settings['size']}"
            )
        return {"size": _square(crop), "resize": "crop"} | ({"edge": edge[0]} if edge else {})
    if len(size) == 2:
        return {"size": size, "resize": "stretch"}
    fraction = settings.get("crop_pct") if size[0] < 384 else None
    if (
        "crop_pct" in settings and fraction is None
    ):  # ConvNeXt's preprocessor stretches large images
        return {"size": _square(size), "resize": "stretch"}
    return {"size": _square(size), "resize": "crop"} | (
        {"edge": int(size[0] / fraction)} if fraction else {}
    )


def _sides(size: Any) -> tuple[int, ...]:
    """Return (edge,) for the shorter side, (height, width) for both sides, () for none.

    >>> _sides(224), _sides({"shortest_edge": 256}), _sides({"height": 32, "width": 48}), _sides(None)
    ((224,), (256,), (32, 48), ())
    """
    if isinstance(size, int):
        return (size,)
    if not size:
        return ()
    if isinstance(size, list | tuple):
        return (int(size[0]), int(size[-1]))
    return (
        (int(size["shortest_edge"]),)
        if "shortest_edge" in size
        else (int(size["height"]), int(size["width"]))
    )


def _square(sides: tuple[int, ...]) -> tuple[int, int]:
    return (sides[0], sides[-1])


def read_preprocessor(name: str | Path) -> dict[str, Any]:
    """Read the model's preprocessor_config.json, or its part of processor_config.json.

    Empty if there is none.
    """
    settings = read_json(name, "preprocessor_config.json")
    return settings or read_json(name, "processor_config.json").get("image_processor") or {}
