"""A Hugging Face image classifier or semantic segmenter, from a folder or the hub."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pseudocal.app.models.model import Expects, OpenModel
from pseudocal.arrays import InputError
from pseudocal.extras import require
from pseudocal.omissions import one_line


def open_hugging_face(name: str | Path, *, device: str = "cpu", **_: Any) -> OpenModel:
    """Open an image model and its preprocessor settings; weights are read from safetensors only."""
    torch_module = require("pseudocal.predictors.torch_module", "hf")
    require("safetensors", "hf")
    transformers = require("transformers", "hf")
    require("transformers.utils.logging", "hf").disable_progress_bar()
    try:
        config = transformers.AutoConfig.from_pretrained(name, trust_remote_code=False)
        segments = any("Segmentation" in str(each) for each in getattr(config, "architectures", None) or ())
        kind = "AutoModelForSemanticSegmentation" if segments else "AutoModelForImageClassification"
        opener = getattr(transformers, kind)
        model = opener.from_pretrained(name, config=config, use_safetensors=True, trust_remote_code=False)
        classes = tuple(str(config.id2label[i]) for i in range(config.num_labels))
    except Exception as error:  # a damaged config may raise anything
        why = one_line(error)
        raise InputError(f"expected a Hugging Face image classifier with safetensors, got {name}: {why}") from error
    preprocessing = preprocessing_of(_preprocessor(name))
    shape = (config.num_channels, None, None) if hasattr(config, "num_channels") else None
    return OpenModel(
        kind="huggingface",
        predict=torch_module.TorchPredictor(model.to(device)),
        expects=Expects(shape, "float32", preprocessing=preprocessing),
        classes=classes,
        notes=(type(model).__name__, f"preprocessor: {preprocessing or 'none'}"),
        ship=lambda temperature, folder, probe: _ship(config, temperature, folder),
    )


def preprocessing_of(settings: dict[str, Any]) -> dict[str, Any]:
    """Translate the settings of a preprocessor into those of `inputs.Preprocessing`.

    >>> preprocessing_of({"size": {"shortest_edge": 256}, "do_center_crop": True, "crop_size": 224})
    {'centre': 'down', 'size': (224, 224), 'resize': 'crop', 'edge': 256}

    ConvNeXt and ResNet give the share to crop instead:

    >>> preprocessing_of({"size": {"shortest_edge": 224}, "crop_pct": 0.875})
    {'centre': 'down', 'size': (224, 224), 'resize': 'crop', 'edge': 256}
    """
    try:
        return _settings_of(settings)
    except InputError:
        raise
    except (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError, ZeroDivisionError) as error:
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
    size, crop = _sides(settings.get("size")), _sides(settings.get("crop_size"))
    if not size or not settings.get("do_resize", True):
        return {}
    if settings.get("do_center_crop") and crop:
        edge = size if len(size) == 1 else None
        if edge is None and size != crop * (len(size) // len(crop)):
            raise InputError(f"expected a resize by the shorter side before a crop, got {settings['size']}")
        return {"size": _square(crop), "resize": "crop"} | ({"edge": edge[0]} if edge else {})
    if len(size) == 2:
        return {"size": size, "resize": "stretch"}
    share = settings.get("crop_pct") if size[0] < 384 else None
    if "crop_pct" in settings and share is None:  # ConvNeXt's preprocessor stretches large pictures
        return {"size": _square(size), "resize": "stretch"}
    return {"size": _square(size), "resize": "crop"} | ({"edge": int(size[0] / share)} if share else {})


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
    return (int(size["shortest_edge"]),) if "shortest_edge" in size else (int(size["height"]), int(size["width"]))


def _square(sides: tuple[int, ...]) -> tuple[int, int]:
    return (sides[0], sides[-1])


def _preprocessor(name: str | Path) -> dict[str, Any]:
    """Read the model's preprocessor_config.json; empty if there is none."""
    find = require("transformers.utils.hub", "hf").cached_file
    path = find(name, "preprocessor_config.json", _raise_exceptions_for_missing_entries=False)
    if not path:
        return {}
    try:
        settings = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"expected JSON in {path}, got {one_line(error)}") from error
    if not isinstance(settings, dict):
        raise InputError(f"expected an object of settings in {path}, got {type(settings).__name__}")
    return settings


def _ship(config: Any, temperature: float, folder: Path) -> list[str]:
    """Write the model's own config with the temperature added, to be copied next to the weights."""
    content = config.to_diff_dict() | {"architectures": config.architectures, "pseudocal_temperature": temperature}
    (folder / "config.json").write_text(json.dumps(content, indent=2, default=str) + "\n", encoding="utf-8")
    return ["config.json"]
