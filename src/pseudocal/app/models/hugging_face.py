"""A Hugging Face image classifier or semantic segmenter, from a folder or the hub."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pseudocal.app.models.opened import Expects, OpenModel
from pseudocal.arrays import InputError
from pseudocal.extras import MissingExtraError


def open_hugging_face(name: str | Path, *, device: str = "cpu", **_: Any) -> OpenModel:
    """Open a model of images and the preprocessor settings beside it; weights come from safetensors alone."""
    try:
        import torch  # noqa: F401
        from safetensors import SafetensorError
        from transformers import AutoConfig, AutoModelForImageClassification, AutoModelForSemanticSegmentation
        from transformers.utils.logging import disable_progress_bar
    except ImportError as error:
        raise MissingExtraError(error.name or "transformers", "hf") from error
    from pseudocal.predictors.torch_module import TorchPredictor

    disable_progress_bar()
    try:
        config = AutoConfig.from_pretrained(name, trust_remote_code=False)
        segments = "Segmentation" in _architecture(config)
        kind: Any = AutoModelForSemanticSegmentation if segments else AutoModelForImageClassification
        model = kind.from_pretrained(name, config=config, use_safetensors=True, trust_remote_code=False)
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        first = str(error).strip().splitlines()[0]
        raise InputError(f"expected a Hugging Face image classifier with safetensors, got {name}: {first}") from error
    preprocessing = preprocessing_of(_preprocessor(name))
    return OpenModel(
        kind="huggingface",
        predict=TorchPredictor(model.to(device)),
        expects=Expects(
            (config.num_channels, None, None) if hasattr(config, "num_channels") else None,
            "float32",
            preprocessing=preprocessing,
        ),
        classes=tuple(str(config.id2label[i]) for i in range(config.num_labels)),
        notes=(type(model).__name__, f"preprocessor: {preprocessing or 'none'}"),
        ship=lambda temperature, folder, probe: _ship(config, temperature, folder),
    )


def preprocessing_of(settings: dict[str, Any]) -> dict[str, Any]:
    """A preprocessor's settings in the words of `inputs.Preprocessing`.

    >>> preprocessing_of({"size": {"shortest_edge": 256}, "do_center_crop": True, "crop_size": 224})
    {'size': (224, 224), 'resize': 'crop', 'edge': 256}

    ConvNeXt and ResNet say a share to crop instead:

    >>> preprocessing_of({"size": {"shortest_edge": 224}, "crop_pct": 0.875})
    {'size': (224, 224), 'resize': 'crop', 'edge': 256}
    """
    preprocessing = _size_of(settings)
    for key, ours in (("image_mean", "mean"), ("image_std", "std")):
        if settings.get("do_normalize", True) and settings.get(key):
            preprocessing[ours] = tuple(settings[key])
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
    if "crop_pct" in settings and share is None:  # the preprocessor of ConvNeXt stretches what is large
        return {"size": _square(size), "resize": "stretch"}
    return {"size": _square(size), "resize": "crop"} | ({"edge": int(size[0] / share)} if share else {})


def _sides(size: Any) -> tuple[int, ...]:
    """(edge,) for the shorter side, (height, width) for both, () for nothing.

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
    from transformers.utils.hub import cached_file

    path = cached_file(name, "preprocessor_config.json", _raise_exceptions_for_missing_entries=False)
    return dict(json.loads(Path(path).read_text(encoding="utf-8"))) if path else {}


def _architecture(config: Any) -> str:
    (architecture,) = getattr(config, "architectures", None) or [""]
    return str(architecture)


def _ship(config: Any, temperature: float, folder: Path) -> list[str]:
    """Write the model's own config with the temperature in it, to lie beside the weights."""
    content = config.to_diff_dict() | {"architectures": config.architectures, "pseudocal_temperature": temperature}
    (folder / "config.json").write_text(json.dumps(content, indent=2, default=str) + "\n", encoding="utf-8")
    return ["config.json"]
