"""Options of the commands, and how their text is parsed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from pseudocal.arrays import InputError
from pseudocal.extras import require

EPILOG = (
    "Exit codes: 0 done, 1 a bug, 2 usage, 3 model or data, 4 output, 5 a missing package, 130 interrupted. "
    "--debug shows the traceback of an error."
)


def option(*names: str, **settings: Any) -> Any:
    """Make an option whose default is shown only if requested."""
    typer = require("typer", "cli")
    return typer.Option(*names, show_default=settings.pop("show_default", False), **settings)


def check_alone(context: Any, name: str, allowed: set[str]) -> None:
    """Refuse other options beside one that stands for all of them.

    Args:
        context: the context of the command.
        name: the parameter of that option.
        allowed: the parameters that may be given with it.

    """
    given = [
        each for each in context.params if context.get_parameter_source(each).name == "COMMANDLINE"
    ]
    others = [each for each in given if each not in allowed]
    if others:
        raise InputError(
            f"expected no other settings with --{name.partition('_')[0]}, got {others[0]}"
        )


def numbers(text: str | None) -> tuple[float, ...] | None:
    """Parse numbers separated by commas.

    >>> numbers("0.5,0.25"), numbers(None)
    ((0.5, 0.25), None)
    """
    try:
        return None if text is None else tuple(float(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"expected numbers separated by commas, got {text!r}") from None


def sides(text: str | None) -> tuple[int, int] | None:
    """Parse a height and a width.

    >>> sides("224"), sides("32x48")
    ((224, 224), (32, 48))
    """
    if text is None:
        return None
    parts = text.lower().split("x")
    if len(parts) > 2 or not all(part.isdigit() for part in parts):
        raise InputError(f"expected a size like 224 or 224x160, got {text!r}")
    return (int(parts[0]), int(parts[-1]))


def resizing(text: str | None) -> dict[str, Any]:
    """Parse how images are resized.

    "crop", "stretch", or the length of the shorter side before the crop.

    >>> resizing("stretch"), resizing("256")
    ({'resize': 'stretch'}, {'resize': 'crop', 'edge': 256})
    """
    if text in (None, "crop", "stretch"):
        return {} if text is None else {"resize": text}
    if not text.isdigit():
        raise InputError(
            f"expected crop, stretch or the shorter side in pixels as --resize, got {text!r}"
        )
    return {"resize": "crop", "edge": int(text)}


def normalisation(text: str | None) -> dict[str, Any]:
    """Parse how images are normalised: a name, or a mean and a standard deviation.

    >>> normalisation("imagenet"), normalisation("0.5/0.25")
    ({'normalisation': 'imagenet'}, {'mean': (0.5,), 'std': (0.25,)})
    """
    if text is None or "/" not in text:
        return {} if text is None else {"normalisation": text}
    mean, _, std = text.partition("/")
    return {"mean": numbers(mean), "std": numbers(std)}


def cropping(size: str | None, crop: str | None) -> dict[str, Any]:
    """Parse the size of the images, which a crop gives too.

    >>> cropping("32x48", None), cropping(None, "224")
    ({'size': (32, 48)}, {'size': (224, 224), 'resize': 'crop'})
    """
    if size is not None and crop is not None and sides(size) != sides(crop):
        raise InputError(
            f"expected one size of the cropped images, got --size {size} and --crop {crop}"
        )
    if crop is not None:
        return {"size": sides(crop), "resize": "crop"}
    return {} if size is None else {"size": sides(size)}


def fraction(text: str) -> float:
    """Parse a fraction given as a number or in percent.

    >>> fraction("1%"), fraction("0.2")
    (0.01, 0.2)
    """
    try:
        fraction = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        fraction = -1.0
    if not 0 <= fraction <= 1:
        raise InputError(f"expected a fraction like 1% or 0.01, got {text!r}")
    return fraction


def words(text: str | None) -> tuple[str, ...] | None:
    """Parse words separated by commas.

    >>> words("a,b")
    ('a', 'b')
    """
    return None if text is None else tuple(part.strip() for part in text.split(","))


def with_address(arguments: list[str]) -> list[str]:
    """Complete a `--ray` without an address to `--ray=local`, a cluster on this machine.

    >>> with_address(["--ray", "-o", "out"]), with_address(["--ray", "head:6379"])
    (['--ray=local', '-o', 'out'], ['--ray=head:6379'])
    """
    if "--ray" not in arguments:
        return arguments
    i = arguments.index("--ray")
    address = arguments[i + 1] if i + 1 < len(arguments) else ""
    if re.fullmatch(r"auto|local|ray://\S+|[\w.-]+:\d+", address):
        return [*arguments[:i], f"--ray={address}", *arguments[i + 2 :]]
    return [*arguments[:i], "--ray=local", *arguments[i + 1 :]]


def prefix(text: str | None) -> tuple[str, str] | None:
    """Parse how paths begin in a list, and how they begin here.

    >>> prefix("/home/them/data=/data")
    ('/home/them/data', '/data')
    """
    if text is None:
        return None
    old, equals, new = text.partition("=")
    if not (old and equals):
        raise InputError(f"expected a prefix like OLD=NEW, got {text!r}")
    return (old, new)


def check_device(name: str) -> str:
    """Return a device that torch can use here, or refuse it.

    >>> check_device("cpu")
    'cpu'
    """
    torch = require("torch", "torch")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise InputError(f"expected a device like cpu, cuda or cuda:1, got {name!r}") from error
    count = torch.cuda.device_count() if device.type == "cuda" else 1
    if (device.index or 0) >= count:
        raise InputError(f"expected a GPU that torch can use, got {name} with {count} of them")
    return name


def names_in(path: Path | None) -> tuple[str, ...]:
    """Read class names, one per line; blank lines at the end are dropped."""
    if path is None:
        return ()
    try:
        return tuple(path.read_text(encoding="utf-8").rstrip().splitlines())
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"expected a text file of class names, got {path}: {error}") from error
