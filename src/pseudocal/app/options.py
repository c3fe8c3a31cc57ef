"""Options of the commands: their groups in the help, and how their text is parsed."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from pseudocal.app.inputs.tables import read_text
from pseudocal.arrays import InputError

EXIT_CODES = (
    "Exit codes: 0 done, 1 a bug, 2 usage, 3 model or data, 4 output, 5 a missing package, "
    "130 interrupted. --debug shows the traceback of an error."
)
RAY_ADDRESS = re.compile(r"auto|local|ray://\S+|[\w.-]+:\d+")


def option(*names: str, show_default: bool = False, **settings: Any) -> Any:
    """An option whose default is shown in the help only if requested."""
    return typer.Option(*names, show_default=show_default, **settings)


def _options_of(group: str) -> Callable[..., Any]:
    """Make the options of a group in the help: what they do comes first, then the flags."""

    def grouped(about: str, *names: str, **settings: Any) -> Any:
        return option(*names, rich_help_panel=group, help=about, **settings)

    return grouped


data_option = _options_of("Data")
model_option = _options_of("Model")
image_option = _options_of("Images")
table_option = _options_of("Tables and text")
method_option = _options_of("Method")
second_option = _options_of("Second opinion")
output_option = _options_of("Output")
performance_option = _options_of("Performance")
saved_option = _options_of("Saved outputs")

# options that several commands have
Quiet = Annotated[bool, output_option("print warnings and errors only", "--quiet", "-q")]
AsJson = Annotated[bool, output_option("print the result as JSON", "--json")]
Device = Annotated[
    str,
    performance_option(
        "where the models run: cpu, cuda, cuda:1 ...", "--device", show_default=True
    ),
]


def epilog(*examples: str, more_codes: str = "") -> str:
    """The end of a help text: the exit codes, then examples."""
    codes = EXIT_CODES.replace("130", f"{more_codes}, 130") if more_codes else EXIT_CODES
    return "\n\n".join([codes, "Example:", *examples])


def check_alone(context: typer.Context, name: str, allowed: set[str], hint: str = "") -> None:
    """Refuse other options beside one that stands for all of them."""
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if source is None or source.name != "COMMANDLINE" or parameter.name in allowed:
            continue
        shown = parameter.opts[0] if parameter.opts[0].startswith("-") else parameter.name
        raise InputError(f"expected no other settings with {name}, got {shown}{hint}")


def with_address(arguments: list[str]) -> list[str]:
    """Complete a `--ray` without an address to `--ray=local`, a cluster on this machine.

    >>> with_address(["--ray", "-o", "out"]), with_address(["--ray", "head:6379"])
    (['--ray=local', '-o', 'out'], ['--ray=head:6379'])
    """
    if "--ray" not in arguments:
        return arguments
    i = arguments.index("--ray")
    rest = arguments[i + 1 :]
    if rest and RAY_ADDRESS.fullmatch(rest[0]):
        return [*arguments[:i], f"--ray={rest[0]}", *rest[1:]]
    return [*arguments[:i], "--ray=local", *rest]


# ------------------------------------------------------------------------------ parsing


def numbers(text: str | None) -> tuple[float, ...] | None:
    """Parse numbers separated by commas.

    >>> numbers("0.5,0.25")
    (0.5, 0.25)
    """
    if text is None:
        return None
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"expected numbers separated by commas, got {text!r}") from None


def sides(text: str) -> tuple[int, int]:
    """Parse a height and a width.

    >>> sides("224"), sides("32x48")
    ((224, 224), (32, 48))
    """
    parts = text.lower().split("x")
    if len(parts) > 2 or not all(part.isdigit() for part in parts):
        raise InputError(f"expected a size like 224 or 224x160, got {text!r}")
    return (int(parts[0]), int(parts[-1]))


def resizing(text: str | None) -> dict[str, Any]:
    """Parse how images are resized: "crop", "stretch", or the shorter side before the crop.

    >>> resizing("stretch"), resizing("256")
    ({'resize': 'stretch'}, {'resize': 'crop', 'edge': 256})
    """
    if text is None:
        return {}
    if text in ("crop", "stretch"):
        return {"resize": text}
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
    if text is None:
        return {}
    if "/" not in text:
        return {"normalisation": text}
    mean, _, std = text.partition("/")
    return {"mean": numbers(mean), "std": numbers(std)}


def cropping(size: str | None, crop: str | None = None) -> dict[str, Any]:
    """Parse the size of the images, which a crop gives too.

    >>> cropping("32x48"), cropping(None, "224")
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
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise InputError(f"expected a fraction like 5% or 0.05, got {text!r}")
    return value


def without_none(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings that were given.

    >>> without_none({"batch": None, "lr": 0.1})
    {'lr': 0.1}
    """
    return {name: value for name, value in settings.items() if value is not None}


def words(text: str | None) -> tuple[str, ...] | None:
    """Parse words separated by commas.

    >>> words("a,b")
    ('a', 'b')
    """
    return None if text is None else tuple(part.strip() for part in text.split(","))


def one_file(names: list[str] | None) -> Path:
    """The file of the second opinion that saved outputs need."""
    if names is None or len(names) != 1:
        raise InputError(
            "saved outputs need the outputs of one second model: pass --second-opinion FILE, or "
            "label some inputs with pseudocal label"
        )
    return Path(names[0])


def names_in(path: Path | None, *, synonyms: bool = False) -> tuple[str, ...]:
    """Read class names, one per line; blank lines at the end are dropped.

    Synonyms may follow a name, each after a tab.
    """
    if path is None:
        return ()
    lines = read_text(path, "a text file of class names").rstrip().splitlines()
    return tuple(lines if synonyms else (line.split("\t")[0] for line in lines))
