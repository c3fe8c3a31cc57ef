"""Every calibrator of the comparison by name: its title in tables, and how it is fitted.

The library's calibrators work on the model outputs that earlier stages wrote
(`pseudocal.calibrators.calibrate_by_name`). PseudoCal, its variants in the paper's ablation and its
sweep over lambda are `PseudoCal` with other settings or another strategy. Their mixup samples are
made in a separate stage, since all models above one frozen backbone can share the features of the
mixup samples.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from pseudocal.arrays import InputError
from pseudocal.calibrators import CALIBRATORS, PseudoCal
from pseudocal.lab.analyses import LAMBDAS
from pseudocal.mixup import STRATEGIES

CONSTANT = 2.0  # where the released searches for a temperature start
SEEDS_APART = 1_000_000  # between repetitions: more than any suite has seeds


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

    def method(self, seed: int) -> PseudoCal:
        """Return PseudoCal with these settings; as in the paper, each input is mixed once."""
        return PseudoCal(lam=self.lam, labels=self.labels, seed=seed, epochs=1, estimator="mixup")


def seed_of_repeat(seed: int, repeat: int) -> int:
    """Return the seed of a repetition, from that of the task.

    >>> seed_of_repeat(3, 0), seed_of_repeat(3, 2)
    (3, 2000003)
    """
    return seed + SEEDS_APART * repeat


@dataclass(frozen=True)
class Compared:
    """One calibrator of the comparison.

    Attributes:
        title: its name in tables.
        mixup_variant: the pseudo-target set that it fits a temperature to; None for a calibrator of
            the library that works on the outputs of the models.
        needs_ensemble: whether it needs the other models of the task's ensemble.
        calibrator: its name in `pseudocal.calibrators.CALIBRATORS`, if it is one of the library's.
        settings: settings of that calibrator which are not its defaults.
        estimator: its name in `pseudocal.lab.bench.stages.estimators`, if it is one of those.
        needs_second: whether it needs a second model, trained with another seed.
        repeat: the number of the repetition, each with its own random numbers.

    """

    title: str
    mixup_variant: MixupVariant | None = None
    needs_ensemble: bool = False
    calibrator: str = ""
    settings: tuple[tuple[str, Any], ...] = ()
    estimator: str = ""
    needs_second: bool = False
    repeat: int = 0

    def seed(self, task_seed: int) -> int:
        """Return the seed of its random numbers, from that of the task."""
        return seed_of_repeat(task_seed, self.repeat)


# The calibrators of the library that fit to mixup samples.
MIXING = ("pseudocal", "pseudo-ensemble")
# Titles that tell the ridge penalty from the maximum of the likelihood.
RIDGE = {"matrixscal": "MatrixScal, ridge", "vectorscal": "VectorScal, ridge"}


def _from_library(name: str) -> Compared:
    entry = CALIBRATORS[name]
    return Compared(
        RIDGE.get(name, entry.title),
        mixup_variant=MixupVariant() if name in MIXING else None,
        needs_ensemble="member_logits" in entry.parts,
        calibrator=name,
    )


def _as_released(name: str, **settings: Any) -> Compared:
    """A baseline as the released code of TransCal and PseudoCal has it."""
    title = f"{CALIBRATORS[name].title}, as released"
    return Compared(title, calibrator=name, settings=(*settings.items(), ("reference", True)))


def _maximum_likelihood(name: str) -> Compared:
    title = f"{CALIBRATORS[name].title}, maximum likelihood"
    return Compared(title, calibrator=name, settings=(("penalty", 0.0),))


LIBRARY = {name: _from_library(name) for name in CALIBRATORS}
RELEASED = {  # the paper's numbers are theirs
    "matrixscal-released": _as_released("matrixscal"),
    "vectorscal-released": _as_released("vectorscal"),
    "tempscal-released": _as_released("tempscal"),
    "cpcs-released": _as_released("cpcs"),
    "transcal-released": _as_released("transcal"),
    "oracle-released": _as_released("oracle", by="ece"),
}
LIKELIHOOD = {
    "matrixscal-likelihood": _maximum_likelihood("matrixscal"),
    "vectorscal-likelihood": _maximum_likelihood("vectorscal"),
}
ABLATION = {
    name.lower(): Compared(name, MixupVariant(name)) for name in STRATEGIES if name != "PseudoCal"
}
SWEEP = {
    f"lambda-{lam}-{labels}": Compared(f"λ = {lam}, {labels}", MixupVariant(lam=lam, labels=labels))
    for lam in LAMBDAS
    for labels in ("hard", "soft")
}
ESTIMATORS = {  # of this package, with a released version and a constant to compare with
    "pseudocal-released": Compared("PseudoCal, as released", estimator="pseudocal-released"),
    "agreement": Compared("Agreement", estimator="agreement", needs_second=True),
    "surrogate": Compared("Surrogate", estimator="surrogate", needs_second=True),
    "mean-estimate": Compared(
        "Mean of agreement and surrogate", estimator="mean-estimate", needs_second=True
    ),
    "labels-50": Compared("50 labels", estimator="labels-50", needs_second=True),
    "constant": Compared("Constant, T = 2", estimator="constant"),
}
COMPARED: dict[str, Compared] = {
    **LIBRARY,
    **RELEASED,
    **LIKELIHOOD,
    **ABLATION,
    **SWEEP,
    **ESTIMATORS,
}


def compared_names() -> tuple[str, ...]:
    """List the names of all calibrators: those of `COMPARED`, then those of plugins."""
    return tuple(dict.fromkeys([*COMPARED, *CALIBRATORS]))


def plugin_names() -> tuple[str, ...]:
    """List the names of the calibrators that loaded plugins have registered."""
    return tuple(name for name in CALIBRATORS if name not in COMPARED)


def is_built_in(name: str) -> bool:
    """Whether a calibrator, with settings or without, is one of `COMPARED` and not a plugin's."""
    return name.split(", ")[0] in COMPARED


def is_known(name: str) -> bool:
    """Whether a calibrator, with settings or without, is built in or of a loaded plugin.

    >>> is_known("pseudocal, lam=0.7"), is_known("of-no-loaded-plugin")
    (True, False)

    Args:
        name: the name, as a suite has it.

    """
    return name.split(", ")[0] in compared_names()


def sees_labels(name: str) -> bool:
    """Whether a calibrator is given target labels, such as the oracle.

    >>> sees_labels("oracle-released"), sees_labels("labels-50"), sees_labels("pseudocal")
    (True, True, False)

    Args:
        name: the name, as a suite has it.

    """
    compared = find_compared(name)
    if compared.estimator == "labels-50":
        return True
    entry = CALIBRATORS.get(compared.calibrator)
    return entry is not None and "target_labels" in entry.needs


def find_compared(name: str) -> Compared:
    """Return the calibrator of a name in `COMPARED` or of a plugin, or of `with_settings`.

    A calibrator whose plugin is not loaded has a title only.

    >>> find_compared("tempscal").title
    'TempScal'
    >>> find_compared("vectorscal, penalty=0.1").title
    'VectorScal, ridge, penalty 0.1'
    >>> find_compared("pseudocal, lam=0.7, labels=soft").mixup_variant
    MixupVariant(strategy='PseudoCal', lam=0.7, labels='soft')

    Args:
        name: the name, as a suite has it.

    """
    base, *parts = name.split(", ")
    compared = _find_base(base)
    if not parts:
        return compared
    settings = {}
    for part in parts:
        key, _, text = part.partition("=")
        settings[key] = _value(text)
    repeat = settings.pop("repeat", 0)
    compared = replace(compared, repeat=repeat)
    title = ", ".join([compared.title, *(f"{key} {value}" for key, value in settings.items())])
    if compared.mixup_variant is not None:
        variant = replace(compared.mixup_variant, **settings)
        return replace(compared, title=title, mixup_variant=variant)
    merged = {**dict(compared.settings), **settings}
    return replace(compared, title=title, settings=tuple(merged.items()))


def _find_base(name: str) -> Compared:
    if name in COMPARED:
        if name in CALIBRATORS and COMPARED[name] != _from_library(name):
            raise InputError(
                f"the benchmark already has a calibrator {name!r}: rename the plugin's"
            )
        return COMPARED[name]
    if name in CALIBRATORS:
        return _from_library(name)
    return Compared(name, calibrator=name)


def takes_seed(name: str) -> bool:
    """Whether a calibrator of the library takes a seed.

    >>> takes_seed("mc-dropout"), takes_seed("tempscal")
    (True, False)

    Args:
        name: a name in `pseudocal.calibrators.CALIBRATORS`.

    """
    return "seed" in inspect.signature(CALIBRATORS[name].function).parameters


def with_repeats(calibrators: Sequence[str], repeats: int) -> tuple[str, ...]:
    """Name the repetitions of the calibrators that draw random numbers.

    >>> with_repeats(["tempscal", "pseudocal"], 3)
    ('tempscal', 'pseudocal', 'pseudocal, repeat=1', 'pseudocal, repeat=2')

    Args:
        calibrators: names of calibrators.
        repeats: how often each is fitted in all.

    """
    names = []
    for name in calibrators:
        names.append(name)
        if draws(name):
            names += [f"{name}, repeat={number}" for number in range(1, repeats)]
    return tuple(names)


def draws(name: str) -> bool:
    """Whether a calibrator draws random numbers: pairs, rows to label, dropout or a sample.

    CPCS and TransCal draw a sample in their released versions only.

    >>> [draws(name) for name in ("pseudocal", "labels-50", "cpcs", "cpcs-released", "tempscal")]
    [True, True, False, True, False]

    Args:
        name: the name, as a suite has it.

    """
    compared = find_compared(name)
    if compared.mixup_variant is not None or compared.needs_second:
        return True
    if compared.estimator:
        return compared.estimator != "constant"
    if compared.calibrator not in CALIBRATORS or not takes_seed(compared.calibrator):
        return False
    if compared.calibrator in ("cpcs", "transcal"):
        return bool(dict(compared.settings).get("reference"))
    return True


def with_settings(name: str, settings: dict[str, Any]) -> str:
    """Name a calibrator with settings that are not its usual ones; refuse unknown settings.

    >>> with_settings("vectorscal", {"penalty": 0.1})
    'vectorscal, penalty=0.1'

    Args:
        name: a name in `compared_names()`, but no oracle.
        settings: the settings by name.

    """
    known = _known_settings(name)
    for key, value in settings.items():
        if key not in known:
            raise InputError(
                f"expected settings of {name} among {', '.join(known) or 'none'}, got {key!r}"
            )
        if not isinstance(value, bool | int | float | str) or re.search(r"[^\w.+-]", str(value)):
            raise InputError(f"expected {key} as a number, true, false or a word, got {value!r}")
    return ", ".join([name, *(f"{key}={_text(value)}" for key, value in settings.items())])


def _known_settings(name: str) -> list[str]:
    compared = find_compared(name)
    if name in MIXING:
        return ["lam", "labels"]
    if compared.mixup_variant is not None or compared.estimator or sees_labels(name):
        return []
    parameters = inspect.signature(CALIBRATORS[compared.calibrator].function).parameters.values()
    keywords = [each.name for each in parameters if each.kind is each.KEYWORD_ONLY]
    return [keyword for keyword in keywords if keyword != "seed"]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text
