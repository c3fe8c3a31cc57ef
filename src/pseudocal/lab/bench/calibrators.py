"""Every calibrator of the comparison by name: its title in tables, and how it is fitted.

The library's calibrators work on the model outputs that earlier stages wrote
(`pseudocal.calibrators.calibrate_by_name`). PseudoCal, its variants in the paper's ablation and its
sweep over lambda fit a temperature to a pseudo-target set. Making that set is a separate stage
here, since all models above one frozen backbone can share the features of the mixup samples.
"""

from __future__ import annotations

import inspect
import json
import re
from dataclasses import dataclass, replace
from typing import Any, Literal

from pseudocal.arrays import InputError
from pseudocal.calibrators import CALIBRATORS
from pseudocal.lab.analyses import LAMBDAS
from pseudocal.mixup import STRATEGIES


@dataclass(frozen=True)
class MixupVariant:
    """How a pseudo-target set is made.

    Attributes:
        strategy: "PseudoCal", which is mixup, or another of `pseudocal.mixup.STRATEGIES`.
        lam: the weight of the larger input.
        labels: the label of a mixup sample: "hard" for the class of the larger part, "soft" for
            the class with the largest mixed probability.

    """

    strategy: str = "PseudoCal"
    lam: float = 0.65
    labels: Literal["hard", "soft"] = "hard"


@dataclass(frozen=True)
class Compared:
    """One calibrator of the comparison.

    Attributes:
        title: its name in tables.
        mixup variant: the pseudo-target set that it fits a temperature to; None for a calibrator of
        the library that works
            on the outputs of the models.
        needs_ensemble: whether it needs the other models of the task's ensemble.
        calibrator: its name in `pseudocal.calibrators.CALIBRATORS`, if it is one of the library's.
        settings: settings of that calibrator which are not its defaults.

    """

    title: str
    mixup_variant: MixupVariant | None = None
    needs_ensemble: bool = False
    calibrator: str = ""
    settings: tuple[tuple[str, Any], ...] = ()


class ComparedTable(dict[str, Compared]):
    """Calibrators by name.

    One with settings of its own is made when it is asked for by what `with_settings` returns.

    >>> COMPARED["pseudocal, lam=0.7, labels=soft"].mixup_variant
    MixupVariant(strategy='PseudoCal', lam=0.7, labels='soft')
    >>> COMPARED["vectorscal, penalty=0.1"].title
    'VectorScal, ridge, penalty 0.1'
    """

    def __missing__(self, name: str) -> Compared:
        base, *given = name.split(", ")
        if not given:
            raise KeyError(name)
        settings = {key: _value(text) for key, _, text in (each.partition("=") for each in given)}
        how = self[base]
        title = ", ".join([how.title, *(f"{key} {value}" for key, value in settings.items())])
        if how.mixup_variant is not None:
            return replace(how, title=title, mixup_variant=replace(how.mixup_variant, **settings))
        return replace(how, title=title, settings=tuple({**dict(how.settings), **settings}.items()))


ABLATION = {
    name.lower(): Compared(name, MixupVariant(name)) for name in STRATEGIES if name != "PseudoCal"
}
SWEEP = {
    f"lambda-{lam}-{labels}": Compared(f"λ = {lam}, {labels}", MixupVariant(lam=lam, labels=labels))
    for lam in LAMBDAS
    for labels in ("hard", "soft")
}
MIXING = (
    "pseudocal",
    "pseudo-ensemble",
)  # the calibrators of the library that fit to mixup samples
RANDOM = (
    "mc-dropout",
    "cpcs",
    "transcal",
)  # take a seed: the released density ratio of the last two draws a sample
RIDGE = {
    "matrixscal": "MatrixScal, ridge",
    "vectorscal": "VectorScal, ridge",
}  # to tell them from the next
# The baselines as the released code of TransCal and PseudoCal has them: the paper's numbers are
# theirs.
RELEASED = {
    f"{name}-released": Compared(
        f"{CALIBRATORS[name].title}, as released", calibrator=name, settings=settings
    )
    for name, settings in {
        **dict.fromkeys(
            ("matrixscal", "vectorscal", "tempscal", "cpcs", "transcal"), (("reference", True),)
        ),
        "oracle": (("by", "ece"), ("reference", True)),
    }.items()
}
LIKELIHOOD = {
    f"{name}-likelihood": Compared(
        f"{CALIBRATORS[name].title}, maximum likelihood",
        calibrator=name,
        settings=(("penalty", 0.0),),
    )
    for name in RIDGE
}
COMPARED = ComparedTable(
    {
        **{
            name: Compared(
                RIDGE.get(name, entry.title),
                MixupVariant() if name in MIXING else None,
                "member_logits" in entry.parts,
                name,
            )
            for name, entry in CALIBRATORS.items()
        },
        **RELEASED,
        **LIKELIHOOD,
        **ABLATION,
        **SWEEP,
    }
)
SEE_LABELS = frozenset(
    name for name, how in COMPARED.items() if how.calibrator == "oracle"
)  # target labels


def with_settings(name: str, settings: dict[str, Any]) -> str:
    """Name a calibrator that has other settings than its usual ones, and refuse settings that it does not have.

    >>> with_settings("vectorscal", {"penalty": 0.1})
    'vectorscal, penalty=0.1'

    Args:
        name: a name in `COMPARED`, but no oracle.
        settings: the settings by name.

    """
    how = COMPARED[name]
    if name in MIXING:
        known = ["lam", "labels"]
    elif how.mixup_variant is not None or name in SEE_LABELS:
        known = []
    else:
        taken = inspect.signature(CALIBRATORS[how.calibrator].function).parameters.values()
        known = [
            each.name for each in taken if each.kind is each.KEYWORD_ONLY and each.name != "seed"
        ]
    for key, value in settings.items():
        if key not in known:
            raise InputError(
                f"expected settings of {name} among {', '.join(known) or 'none'}, got {key!r}"
            )
        if not isinstance(value, bool | int | float | str) or re.search(r"[^\w.+-]", str(value)):
            raise InputError(f"expected {key} as a number, true, false or a word, got {value!r}")
    return ", ".join([name, *(f"{key}={_text(value)}" for key, value in settings.items())])


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text
