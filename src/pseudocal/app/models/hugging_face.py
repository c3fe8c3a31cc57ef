"""Hugging Face models from a folder or from the hub: check them, open them, export them.

A name is looked up on the hub only if it begins with `hf:`. Any other name is a folder. Settings
that select code (attention kernels, code beside the model, quantisers, adapters) and files outside
the folder are refused before transformers reads anything. Weights are read from safetensors only.
"""

from __future__ import annotations

import copy
import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from pseudocal.app.models.model import Expects, OpenModel, check_exported, or_input_error
from pseudocal.arrays import Floats, InputError, Inputs, Logits, Predictor, as_numpy
from pseudocal.extras import require
from pseudocal.files import is_inside
from pseudocal.skipped import one_line

HUB_PREFIX = "hf:"
HUB_NAME = re.compile(r"[\w-][\w.-]*/[\w.-]+")  # owner/name
MODEL_SUFFIXES = frozenset(
    {".joblib", ".onnx", ".pickle", ".pkl", ".pt", ".pt2", ".pth", ".safetensors", ".skops"}
)
# implementations of attention that are part of transformers and torch
BUILT_IN = (None, "eager", "sdpa")
# settings that choose an implementation, also with a leading underscore, and "_internal"
IMPLEMENTATIONS = ("attn_implementation", "experts_implementation")
SELECT_CODE = (
    "auto_map",
    "compression_config",
    "kernel_config",
    "quantization_config",
    "use_kernels",
)
# of timm, which may be on the hub: "hf-hub:owner/name"
SELECT_NETWORK = ("architecture", "backbone")
NAMES_OF_CLASSES = ("id2label", "label2id")
SETTINGS = ("config.json", "tokenizer_config.json")

TEXT_MODEL = "AutoModelForSequenceClassification"
# what opens a model, by a part of the name of its architecture; the last one any other
OPENERS = {
    "Segmentation": "AutoModelForSemanticSegmentation",
    "SequenceClassification": TEXT_MODEL,
    "": "AutoModelForImageClassification",
}
TOKENIZERS = ("*token*", "vocab*", "*.model")  # the names of files that one of them has
LONGEST_TEXT = 512  # tokens, if neither the tokenizer nor the model says

# the folder of an exported model, and the file that says that it is ours
MODEL_FOLDER = "model"
MODEL_RECORD = "pseudocal.json"

MakePredictor = Callable[[Any], Predictor]  # of a network


def open_hugging_face(name: str | Path, *, device: str = "cpu", **_: Any) -> OpenModel:
    """Open a classifier of images or texts, or a semantic segmentation model."""
    torch_module = require("pseudocal.predictors.torch_module", "hf")
    transformers = _transformers()
    name = checked_source(name)
    here = _options_of(name)
    with or_input_error(f"{name} is not a Hugging Face classifier with safetensors"):
        config = transformers.AutoConfig.from_pretrained(name, **here)
        kind = _kind_of(getattr(config, "architectures", None) or ())
        opener = getattr(transformers, kind)
        model = opener.from_pretrained(name, config=config, use_safetensors=True, **here)
        classes = tuple(str(config.id2label[i]) for i in range(config.num_labels))
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
        export=partial(
            export_folder,
            model,
            torch_module.TorchPredictor,
            save_beside=partial(_save_preprocessor, settings),
        ),
    )


def open_headless(name: str | Path, what: str) -> tuple[Any, list[str]]:
    """Open a model without its head, in float32; also name the weights that its files lack."""
    opener = _transformers().AutoModel
    name = checked_source(name)
    with or_input_error(f"{name} is not {what} with safetensors"):
        model, found = opener.from_pretrained(
            name, use_safetensors=True, output_loading_info=True, **_options_of(name)
        )
    return model.float().eval(), sorted(found["missing_keys"])


def _options_of(name: str | Path) -> dict[str, bool]:
    """How anything is loaded: never code beside the model, and for a folder nothing from the hub."""
    return {"trust_remote_code": False, "local_files_only": isinstance(name, Path)}


def _transformers() -> Any:
    require("safetensors", "hf")
    require("transformers.utils.logging", "hf").disable_progress_bar()
    return require("transformers", "hf")


def _kind_of(architectures: Sequence[Any]) -> str:
    """Return the class of transformers that opens a model.

    >>> _kind_of(["BertForSequenceClassification"]), _kind_of([])
    ('AutoModelForSequenceClassification', 'AutoModelForImageClassification')
    """
    named = " ".join(str(each) for each in architectures)
    return next(opener for part, opener in OPENERS.items() if part in named)


def _text_model(name: str | Path, model: Any, classes: tuple[str, ...]) -> OpenModel:
    """Open the tokenizer of a text classifier."""
    tokenizer = open_tokenizer(name, "a text classifier")
    if tokenizer.pad_token is None:
        if tokenizer.eos_token is None:
            raise InputError(f"the tokenizer of {name} has no token for padding")
        tokenizer.pad_token = tokenizer.eos_token
    if model.config.pad_token_id is None:
        model.config.pad_token_id = tokenizer.pad_token_id
    longest = _longest_text(tokenizer, model.config)
    make = partial(TextPredictor, tokenizer=tokenizer, longest=longest)
    return OpenModel(
        kind="huggingface",
        predict=make(model),
        expects=Expects(text=True),
        classes=classes,
        notes=(type(model).__name__, f"texts of up to {longest} tokens; longer ones are cut"),
        export=partial(export_folder, model, make, save_beside=tokenizer.save_pretrained),
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
    """Open the tokenizer of a model."""
    if isinstance(name, Path) and not any(any(name.glob(pattern)) for pattern in TOKENIZERS):
        raise InputError(f"{name} has no tokenizer: expected {of} with its tokenizer")
    tokenizers = require("transformers", "hf").AutoTokenizer
    with or_input_error(f"the tokenizer of {name}, {of}, cannot be opened"):
        return tokenizers.from_pretrained(name, **_options_of(name))


@dataclass(frozen=True)
class TextPredictor:
    """A text classifier with its tokenizer."""

    model: Any
    tokenizer: Any
    longest: int  # the most tokens of a text that are read

    def __call__(self, x: Inputs, /) -> Logits:
        """Predict one batch of texts, padded to the longest of them."""
        torch = require("torch", "hf")
        texts = [str(text) for text in x]
        tokens = self.tokenizer(
            texts, padding=True, truncation=True, max_length=self.longest, return_tensors="pt"
        )
        with torch.inference_mode():
            output = self.model(**tokens.to(self.model.device)).logits
        return as_numpy(output.float())


def preprocessing_of(settings: dict[str, Any]) -> dict[str, Any]:
    """Translate the settings of a preprocessor into those of `inputs.Preprocessing`.

    >>> preprocessing_of({"size": {"shortest_edge": 256}, "do_center_crop": True, "crop_size": 224})
    {'centre': 'down', 'size': (224, 224), 'resize': 'crop', 'edge': 256}

    ConvNeXt and ResNet give the fraction to crop instead:

    >>> preprocessing_of({"size": {"shortest_edge": 224}, "crop_pct": 0.875})
    {'centre': 'down', 'size': (224, 224), 'resize': 'crop', 'edge': 256}
    """
    try:
        preprocessing = _size_of(settings)
        if preprocessing:
            preprocessing = {"centre": "down"} | preprocessing
        for key, ours in (("image_mean", "mean"), ("image_std", "std")):
            if settings.get("do_normalize", True) and settings.get(key):
                preprocessing[ours] = tuple(float(v) for v in settings[key])
        if not settings.get("do_rescale", True):
            preprocessing["scale"] = 1.0
        elif settings.get("rescale_factor"):
            preprocessing["scale"] = float(settings["rescale_factor"])
        if "resample" in settings:
            preprocessing["resample"] = int(settings["resample"])
    except InputError:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise InputError(
            f"expected sizes and numbers in preprocessor_config.json, got {str(settings)[:200]}"
        ) from error
    return preprocessing


def _size_of(settings: dict[str, Any]) -> dict[str, Any]:
    size = _sides(settings.get("size"))
    crop = _sides(settings.get("crop_size"))
    if not size or not settings.get("do_resize", True):
        return {}
    if settings.get("do_center_crop") and crop:
        if len(size) == 1:
            return {"size": _square(crop), "resize": "crop", "edge": size[0]}
        if size != _square(crop):
            raise InputError(
                f"expected a resize by the shorter side before a crop, got {settings['size']}"
            )
        return {"size": _square(crop), "resize": "crop"}
    if len(size) == 2:
        return {"size": size, "resize": "stretch"}
    if "crop_pct" not in settings:
        return {"size": _square(size), "resize": "crop"}
    fraction = settings["crop_pct"]
    if fraction is None or size[0] >= 384:  # ConvNeXt's preprocessor stretches large images
        return {"size": _square(size), "resize": "stretch"}
    return {"size": _square(size), "resize": "crop", "edge": int(size[0] / fraction)}


def _sides(size: Any) -> tuple[int, ...]:
    """Return (edge,) for the shorter side, (height, width) for both sides, () for none.

    >>> _sides(224), _sides({"shortest_edge": 256}), _sides({"height": 32, "width": 48})
    ((224,), (256,), (32, 48))
    """
    if isinstance(size, int):
        return (size,)
    if not size:
        return ()
    if isinstance(size, list | tuple):
        return (int(size[0]), int(size[-1]))
    if "shortest_edge" in size:
        return (int(size["shortest_edge"]),)
    return (int(size["height"]), int(size["width"]))


def _square(sides: tuple[int, ...]) -> tuple[int, int]:
    return (sides[0], sides[-1])


def read_preprocessor(name: str | Path) -> dict[str, Any]:
    """Read preprocessor_config.json, or the part of processor_config.json; empty if absent."""
    settings = read_json(name, "preprocessor_config.json")
    return settings or read_json(name, "processor_config.json").get("image_processor") or {}


def export_folder(
    network: Any,
    make: MakePredictor,
    temperature: float,
    folder: Path,
    probe: Inputs,
    *,
    save_beside: Callable[[Path], Any],
) -> list[str]:
    """Write a folder that `from_pretrained` opens, with the temperature inside the last layer.

    Logits are a linear layer, and dividing them by T is dividing its weights by T: the folder holds
    an ordinary model, with its tokenizer or the settings of its preprocessor beside it. It is
    checked on a few inputs. If no layer of the model gives the logits, nothing is written.
    """
    model = copy.deepcopy(network).cpu()
    predict = make(model)
    before = np.asarray(predict(probe))
    layer = _layer_of_logits(model, predict, before, probe)
    if layer is None:
        return []
    _divide(layer, temperature)
    check_exported(predict(probe), before / temperature, "model")
    target = folder / MODEL_FOLDER
    model.config.pseudocal_temperature = temperature
    model.save_pretrained(target)
    save_beside(target)
    record = {"format": "pseudocal-model", "format_version": 1, "temperature": temperature}
    (target / MODEL_RECORD).write_text(json.dumps(record) + "\n", encoding="utf-8")
    return [MODEL_FOLDER]


def _save_preprocessor(settings: dict[str, Any], folder: Path) -> None:
    if settings:
        text = json.dumps(settings, indent=2) + "\n"
        (folder / "preprocessor_config.json").write_text(text, encoding="utf-8")


def _layer_of_logits(model: Any, predict: Predictor, before: Floats, probe: Inputs) -> Any:
    """The layer whose weights give the logits: the last one that halves them when halved."""
    nn = require("torch.nn", "hf")
    layers = [one for one in model.modules() if isinstance(one, nn.Linear | nn.Conv2d)]
    for layer in reversed(layers):
        _divide(layer, 2.0)
        halved = predict(probe)
        _divide(layer, 0.5)
        tolerance = 1e-4 * max(1.0, float(np.abs(before).max()))
        if np.allclose(halved, before / 2, rtol=1e-4, atol=tolerance):
            return layer
        # another number of outputs: no layer of logits, and those before it are not either
        if layer.weight.shape[0] != before.shape[1]:
            break
    return None


def _divide(layer: Any, number: float) -> None:
    torch = require("torch", "hf")
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.div_(number)


def is_hub_name(name: str) -> bool:
    """Whether a name asks for the hub.

    >>> is_hub_name("hf:microsoft/resnet-18"), is_hub_name("microsoft/resnet-18")
    (True, False)
    >>> is_hub_name("hf:predict")
    False
    """
    rest = name.removeprefix(HUB_PREFIX)
    return rest != name and HUB_NAME.fullmatch(rest) is not None


def no_such_model(name: str) -> InputError:
    """The error for a path that does not exist.

    It says how to ask the hub if the name could be one of its models.

    >>> str(no_such_model("acme/model"))
    'no such file or folder: acme/model; to load it from the Hugging Face hub, write hf:acme/model'
    """
    if HUB_NAME.fullmatch(name) is None or Path(name).suffix in MODEL_SUFFIXES:
        return InputError(
            "expected a model file, a Hugging Face folder, hf:owner/name or module:function, got "
            f"{name}: no such file"
        )
    return InputError(
        f"no such file or folder: {name}; to load it from the Hugging Face hub, write "
        f"{HUB_PREFIX}{name}"
    )


def checked_source(name: str | Path) -> Path | str:
    """Return the folder, or the name on the hub, after a look at its settings and files."""
    if not is_hub_name(str(name)):
        folder = Path(name)
        if not folder.is_dir():
            raise no_such_model(str(name))
        _check_files(folder)
        _check_settings(folder)
        return folder
    source = str(name).removeprefix(HUB_PREFIX)
    if Path(source).exists():  # transformers would take it
        raise InputError(
            f"{name} is on the hub, and {source} is also here: rename it, or give its path"
        )
    _check_settings(source)
    return source


def read_json(source: str | Path, file: str) -> dict[str, Any]:
    """Read one of the model's files of settings; empty if there is none."""
    if isinstance(source, Path):
        path = source / file
        found = path if path.exists() else None
    else:
        find = require("transformers.utils.hub", "hf").cached_file
        name = source.removeprefix(HUB_PREFIX)
        with or_input_error(f"{source} cannot be read from the Hugging Face hub"):
            found = find(name, file, _raise_exceptions_for_missing_entries=False)
    if found is None:
        return {}
    try:
        settings = json.loads(Path(found).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"expected JSON in {found}, got {one_line(error)}") from error
    if not isinstance(settings, dict):
        raise InputError(
            f"expected an object of settings in {found}, got {type(settings).__name__}"
        )
    return settings


def _check_settings(source: str | Path) -> None:
    """Refuse settings that select code, and adapters, which name another model."""
    for file in SETTINGS:
        check_selects_no_code(read_json(source, file), f"{file} of {source}")
    if read_json(source, "adapter_config.json"):
        raise InputError(f"{source} is an adapter, not a whole model: merge it into its base model")


def check_selects_no_code(settings: dict[str, Any], where: str) -> None:
    """Refuse settings that make transformers load other code than its own.

    >>> settings = {"vision_config": {"_attn_implementation": "owner/kernel"}}
    >>> check_selects_no_code(settings, "config.json")
    Traceback (most recent call last):
    pseudocal.arrays.InputError: '_attn_implementation' = 'owner/kernel' in config.json selects
    code: remove it
    """
    for key, value in _walk(settings):
        if _selects_code(key, value):
            shown = repr(value)[:100]
            raise InputError(f"{key!r} = {shown} in {where} selects code: remove it")


def _selects_code(key: str, value: Any) -> bool:
    if key.removesuffix("_internal").lstrip("_") in IMPLEMENTATIONS:
        chosen = list(value.values()) if isinstance(value, dict) else [value]
        return any(each not in BUILT_IN for each in chosen)
    if key in SELECT_NETWORK:
        return isinstance(value, str) and bool({":", "/"} & set(value))
    return key in SELECT_CODE and bool(value)


def _walk(settings: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Every key with its value, at any depth, but for the names of classes."""
    waiting: list[Any] = [settings]
    while waiting:
        found = waiting.pop()
        if isinstance(found, list):
            waiting += found
        if isinstance(found, dict):
            for key, value in found.items():
                if key in NAMES_OF_CLASSES:
                    continue
                yield key, value
                waiting.append(value)


def _check_files(folder: Path) -> None:
    """Refuse pipes, links that leave the folder, and files outside of it that its settings name."""
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(parent, name)
            if path.is_symlink() and not _is_inside(folder, path):
                raise InputError(f"{path} is a link that leaves {folder}: copy the file")
            if path.exists() and not path.is_file() and not path.is_dir():
                raise InputError(f"{path} is a pipe or a device: remove it")
    for key, value in _walk(read_json(folder, "tokenizer_config.json")):
        if key.endswith(("_file", "_files")):
            _check_named(folder, value, "tokenizer_config.json")
    for index in sorted(folder.glob("*.index.json")):
        _check_named(folder, read_json(folder, index.name).get("weight_map"), index.name)


def _check_named(folder: Path, named: Any, where: str) -> None:
    """Refuse names of files that are there but outside of the folder."""
    if isinstance(named, dict):
        named = list(named.values())
    for name in named if isinstance(named, list) else [named]:
        if not isinstance(name, str) or "\0" in name:
            continue
        path = folder / name
        if os.path.lexists(path) and not _is_inside(folder, path):
            raise InputError(
                f"{where} names {name}, which is outside of {folder}: copy the file into it"
            )


def _is_inside(folder: Path, path: Path) -> bool:
    """Whether a path is in the folder once links are followed, or in its hub cache."""
    # models--owner--name/snapshots/REVISION links to models--owner--name/blobs
    snapshots = folder.resolve().parent
    cached = snapshots.name == "snapshots" and is_inside(path, snapshots.parent / "blobs")
    return cached or is_inside(path, folder)
