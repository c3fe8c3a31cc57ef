"""Where a Hugging Face model comes from, and what is refused before transformers reads it.

A name is looked up on the hub only if it begins with `hf:`. Any other name is a folder. Settings
that select code (attention kernels, code beside the model, quantisers, adapters) and files outside
the folder are refused.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pseudocal.arrays import InputError
from pseudocal.extras import require
from pseudocal.skipped import one_line

HUB_PREFIX = "hf:"
HUB_NAME = re.compile(r"[\w-][\w.-]*/[\w.-]+")  # owner/name
MODEL_FILES = (
    ".joblib",
    ".onnx",
    ".pickle",
    ".pkl",
    ".pt",
    ".pt2",
    ".pth",
    ".safetensors",
    ".skops",
)
BUILT_IN = (
    None,
    "eager",
    "sdpa",
)  # implementations of attention that are part of transformers and torch
IMPLEMENTATIONS = (
    "attn_implementation",
    "experts_implementation",
)  # also with a leading underscore, and "_internal"
SELECT_CODE = (
    "auto_map",
    "compression_config",
    "kernel_config",
    "quantization_config",
    "use_kernels",
)
SELECT_NETWORK = (
    "architecture",
    "backbone",
)  # of timm, which may be on the hub: "hf-hub:owner/name"
NAMES_OF_CLASSES = ("id2label", "label2id")
SETTINGS = ("config.json", "tokenizer_config.json")


def is_hub_name(name: str) -> bool:
    """Whether a name asks for the hub.

    >>> is_hub_name("hf:microsoft/resnet-18"), is_hub_name("microsoft/resnet-18"), is_hub_name("hf:predict")
    (True, False, False)
    """
    return (
        name.startswith(HUB_PREFIX)
        and HUB_NAME.fullmatch(name.removeprefix(HUB_PREFIX)) is not None
    )


def no_such_model(name: str) -> InputError:
    """The error for a path that does not exist.

    It says how to ask the hub if the name could be one of its models.

    >>> str(no_such_model("acme/model"))
    'no such file or folder: acme/model; to load it from the Hugging Face hub, write hf:acme/model'
    """
    if HUB_NAME.fullmatch(name) is None or Path(name).suffix in MODEL_FILES:
        return InputError(
            f"expected a model file, a Hugging Face folder, hf:owner/name or module:function, got {name}: no such file"
        )
    return InputError(
        f"no such file or folder: {name}; to load it from the Hugging Face hub, write {HUB_PREFIX}{name}"
    )


def checked_source(name: str | Path) -> Path | str:
    """Return the folder, or the name on the hub, after a look at its settings and files.

    Args:
        name: the folder, or `hf:owner/name`.

    """
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
            f"expected a name on the hub, got {name}, and {source} is also here: rename it, or give its path"
        )
    _check_settings(source)
    return source


def read_json(source: str | Path, file: str) -> dict[str, Any]:
    """Read one of the model's files of settings; empty if there is none.

    Args:
        source: the folder, or the name on the hub.
        file: the name of the file.

    """
    if isinstance(source, Path):
        path = source / file
        found = path if path.exists() else None
    else:
        find = require("transformers.utils.hub", "hf").cached_file
        try:
            found = find(
                source.removeprefix(HUB_PREFIX), file, _raise_exceptions_for_missing_entries=False
            )
        except Exception as error:  # of the network, or of a name that is not there
            raise InputError(
                f"expected a model on the Hugging Face hub, got {source}: {one_line(error)}"
            ) from error
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
        raise InputError(
            f"expected a whole model, got {source} with an adapter: merge it into its base model"
        )


def check_selects_no_code(settings: dict[str, Any], where: str) -> None:
    """Refuse settings that make transformers load other code than its own.

    >>> check_selects_no_code({"vision_config": {"_attn_implementation": "owner/kernel"}}, "config.json")
    Traceback (most recent call last):
    pseudocal.arrays.InputError: expected settings that select no code, got '_attn_implementation' =
    'owner/kernel' \
in config.json: remove it

    Args:
        settings: the settings, with those of parts of the model inside.
        where: the file, for the message.

    """
    for key, value in _walk(settings):
        if _selects_code(key, value):
            shown = repr(value)[:100]
            raise InputError(
                f"expected settings that select no code, got {key!r} = {shown} in {where}: remove it"
            )


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
                raise InputError(
                    f"expected files inside {folder}, got {path}, a link that leaves it: copy the file"
                )
            if path.exists() and not path.is_file() and not path.is_dir():
                raise InputError(f"expected files in {folder}, got {path}, a pipe or a device")
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
                f"expected files inside {folder}, got {name} in {where}, which is outside: copy the file"
            )


def _is_inside(folder: Path, path: Path) -> bool:
    """Whether a path, with all links followed, is in the folder, or in the blobs of a hub cache that it is part of."""
    root = folder.resolve()
    try:
        target = path.resolve()
    except (OSError, RuntimeError):  # a link to itself
        return False
    allowed = [root]
    if (
        root.parent.name == "snapshots"
    ):  # models--owner--name/snapshots/REVISION links to models--owner--name/blobs
        allowed.append(root.parent.parent / "blobs")
    return any(target.is_relative_to(each) for each in allowed)
