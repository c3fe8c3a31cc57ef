"""Every calibrator of the comparison by name: its title in tables, and how it is fitted.

The library's calibrators work on the model outputs that earlier stages wrote
(`pseudocal.calibrators.calibrate_by_name`). PseudoCal, its variants in the paper's ablation and its sweep over lambda
fit a temperature to a pseudo-target set. Making that set is a separate stage here, since all models above one frozen
backbone can share the features of the mixes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from pseudocal.calibrators import CALIBRATORS
from pseudocal.lab.analyses import LAMBDAS
from pseudocal.synthesis import STRATEGIES


@dataclass(frozen=True)
class Synthesis:
    """How a pseudo-target set is made.

    Attributes:
        strategy: "PseudoCal", which is mixup, or another of `pseudocal.synthesis.STRATEGIES`.
        lam: the larger share of a mix.
        labels: the label of a mix: "hard" for the class of the larger share, "soft" for the class with the largest
            mixed probability.

    """

    strategy: str = "PseudoCal"
    lam: float = 0.65
    labels: Literal["hard", "soft"] = "hard"


@dataclass(frozen=True)
class Compared:
    """One calibrator of the comparison.

    Attributes:
        title: its name in tables.
        synthesis: the pseudo-target set that it fits a temperature to; None for a calibrator of the library that works
            on the outputs of the models.
        needs_ensemble: whether it needs the other models of the task's ensemble.
        calibrator: its name in `pseudocal.calibrators.CALIBRATORS`, if it is one of the library's.
        settings: settings of that calibrator which are not its defaults.

    """

    title: str
    synthesis: Synthesis | None = None
    needs_ensemble: bool = False
    calibrator: str = ""
    settings: tuple[tuple[str, Any], ...] = ()


ABLATION = {name.lower(): Compared(name, Synthesis(name)) for name in STRATEGIES if name != "PseudoCal"}
SWEEP = {
    f"lambda-{lam}-{labels}": Compared(f"λ = {lam}, {labels}", Synthesis(lam=lam, labels=labels))
    for lam in LAMBDAS
    for labels in ("hard", "soft")
}
MIXING = ("pseudocal", "pseudo-ensemble")  # the calibrators of the library that fit to mixes
RANDOM = ("mc-dropout", "cpcs", "transcal")  # take a seed: the released density ratio of the last two draws a sample
RIDGE = {"matrixscal": "MatrixScal, ridge", "vectorscal": "VectorScal, ridge"}  # to tell them from the next
# The rivals as the released code of TransCal and PseudoCal has them: the paper's numbers are theirs.
RELEASED = {
    f"{name}-released": Compared(f"{CALIBRATORS[name].title}, as released", calibrator=name, settings=settings)
    for name, settings in {
        **dict.fromkeys(("matrixscal", "vectorscal", "tempscal", "cpcs", "transcal"), (("reference", True),)),
        "oracle": (("by", "ece"), ("reference", True)),
    }.items()
}
LIKELIHOOD = {
    f"{name}-likelihood": Compared(
        f"{CALIBRATORS[name].title}, maximum likelihood", calibrator=name, settings=(("penalty", 0.0),)
    )
    for name in RIDGE
}
COMPARED: dict[str, Compared] = {
    **{
        name: Compared(
            RIDGE.get(name, entry.title), Synthesis() if name in MIXING else None, "member_logits" in entry.parts, name
        )
        for name, entry in CALIBRATORS.items()
    },
    **RELEASED,
    **LIKELIHOOD,
    **ABLATION,
    **SWEEP,
}
SEE_LABELS = frozenset(name for name, how in COMPARED.items() if how.calibrator == "oracle")  # target labels
