"""Every calibrator that a task can be asked for, by its name: how tables call it, and how the stages get its answer.

Those of the library correct what the stages have written of a model (`pseudocal.calibrators.calibrate_by_name`).
PseudoCal, its variants of the paper's ablation and its sweep over shares fit a temperature to a pseudo-target set,
which is a stage of its own here, since all models above one frozen backbone can share the features of the mixes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pseudocal.calibrators import CALIBRATORS
from pseudocal.lab.analyses import LAMBDAS
from pseudocal.synthesis import STRATEGIES


@dataclass(frozen=True)
class Synthesis:
    """How a pseudo-target set is made.

    Attributes:
        strategy: "PseudoCal", which is mixup, or another of `pseudocal.synthesis.STRATEGIES`.
        lam: the larger share of a mix.
        labels: of a mix: "hard", the class of the larger share, or "soft", that of the largest mixed probability.

    """

    strategy: str = "PseudoCal"
    lam: float = 0.65
    labels: Literal["hard", "soft"] = "hard"


@dataclass(frozen=True)
class Compared:
    """One calibrator of the comparison.

    Attributes:
        title: how tables call it.
        synthesis: the pseudo-target set that it fits a temperature to; None for a calibrator of the library, which
            is given what the models said.
        needs_ensemble: whether it needs the other models of the task's ensemble.

    """

    title: str
    synthesis: Synthesis | None = None
    needs_ensemble: bool = False


ABLATION = {name.lower(): Compared(name, Synthesis(name)) for name in STRATEGIES if name != "PseudoCal"}
SWEEP = {
    f"lambda-{lam}-{labels}": Compared(f"λ = {lam}, {labels}", Synthesis(lam=lam, labels=labels))
    for lam in LAMBDAS
    for labels in ("hard", "soft")
}
MIXING = ("pseudocal", "pseudo-ensemble")  # those of the library's calibrators that synthesise
COMPARED: dict[str, Compared] = {
    **{
        name: Compared(entry.title, Synthesis() if name in MIXING else None, "member_logits" in entry.parts)
        for name, entry in CALIBRATORS.items()
    },
    **ABLATION,
    **SWEEP,
}
