"""Held-out evaluation of verdicts, estimated accuracy and temperatures from agreement.

    python benchmarks/trust.py prepare --out runs/bench      train missing models (hours, resumable)
    python benchmarks/trust.py development                   tasks on which constants were chosen
    python benchmarks/trust.py families --data FOLDER        each with constants chosen on the others
    python benchmarks/trust.py formulas --data FOLDER        formulas from agreement to accuracy
    python benchmarks/trust.py surrogates --data FOLDER      surrogates, PseudoCal and a second seed
    python benchmarks/trust.py surrogates-held-out           the same on held-out tasks; logged
    python benchmarks/trust.py examples                      verdicts of development and the truth
    python benchmarks/trust.py held-out                      held-out tasks; logged

Held-out evaluations are logged in `trust_openings.jsonl`.

Development tasks have two of the four emoji vendors as targets, with four methods and two
backbones, and digits after three methods. Held-out tasks have the other two vendors as targets,
three more methods, and digits after three other methods. `trust_families.py` has the families that
need no stored models, `trust_tables.py` the tables.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from unittest.mock import patch

import numpy as np

from pseudocal.calibrators import agreement, trust
from pseudocal.calibrators.trust import consensus_from
from pseudocal.lab.bench import Store, Suite, Task, run
from trust_cases import DEVELOPMENT, HELD_OUT, Case, stored_case
from trust_families import families
from trust_formulas import compared
from trust_surrogate_tables import surrogate_tables
from trust_tables import Cases, examples, measured, tables

OPENINGS = Path(__file__).with_name("trust_openings.jsonl")
LEANS = (0.0, 0.1, 0.2, 0.25, 1 / 3, 0.5)
VERBS = ("families", "formulas", "surrogates", "surrogates-held-out", "examples")
WIDTHS = np.arange(0.2, 2.0, 0.02)  # of the numbers of TOGETHER_BELOW_AND_ABOVE


@contextmanager
def numbers(lean: float, width: float) -> Iterator[None]:
    """Other constants than those that ship."""
    together = (width, width)
    with (
        patch.object(agreement, "LEAN", lean),
        patch.object(trust, "TOGETHER_BELOW_AND_ABOVE", together),
    ):
        yield


def chosen(cases: Cases) -> tuple[float, float]:
    """The lean with the smallest error of the estimate, and the least width that covers 90%, families alike."""
    usable = [group for group in cases.values() if group[0].logits.shape[1] > 2]

    def error(lean: float) -> float:
        with numbers(lean, 1.0):
            return float(
                np.mean([np.mean([abs(off(case)[0]) for case in group]) for group in usable])
            )

    lean = min(LEANS, key=error)
    for width in WIDTHS:
        with numbers(lean, width):
            covered = [[gap <= most for gap, most in map(off, group)] for group in usable]
        if np.mean([np.mean(of_family) for of_family in covered]) >= 0.9:
            break
    return lean, float(width)


def off(case: Case) -> tuple[float, float]:
    """How far the estimate is from the accuracy, and how far its interval reaches."""
    consensus = consensus_from(case.agreements[:1], case.real)
    if consensus is None:
        return 0.0, 0.0
    return abs(consensus.accuracy - case.accuracy), trust.NORMAL_90 * trust.estimate_errors(
        consensus
    )[0]


def skipped(cases: Cases) -> Iterator[str]:
    """Each family with the constants that the others choose, and all of them together."""
    found = {}
    yield "all families choose: lean {:.2f}, width {:.2f}".format(*chosen(cases))
    for family, group in cases.items():
        choice = chosen({name: others for name, others in cases.items() if name != family})
        yield f"{family} left out: lean {choice[0]:.2f}, width {choice[1]:.2f}"
        with numbers(*choice):
            found[family] = measured(family, group)
    yield from tables(found)


def as_shipped(cases: Cases) -> Iterator[str]:
    """All families with the constants that ship."""
    return tables({family: measured(family, group) for family, group in cases.items()})


def load(families: dict[str, list[Task]], store: Store, *, with_surrogates: bool = False) -> Cases:
    return {
        family: [stored_case(family, task, store, with_surrogate=with_surrogates) for task in tasks]
        for family, tasks in families.items()
    }


def trained(families: dict[str, list[Task]], store: Store) -> dict[str, list[Task]]:
    """The families whose models are there."""
    return {
        name: tasks
        for name, tasks in families.items()
        if (store.folder(tasks[-1]) / "target.npz").exists()
    }


def opened(what: str) -> None:
    """Write down that the held-out tasks were looked at."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True
    ).stdout
    when = datetime.now(UTC).isoformat(timespec="seconds")
    with OPENINGS.open("a") as file:
        file.write(json.dumps({"opened": what, "when": when, "commit": commit.strip()}) + "\n")


def prepare(store: Store, family: str | None, *, development: bool) -> None:
    """Train what is missing, and compute the features of mixup samples."""
    families = [*DEVELOPMENT.items(), *([] if development else HELD_OUT.items())]
    tasks = [task for name, group in families if family in (None, name) for task in group]
    for failure in run(Suite("trust", tuple(tasks), ("pseudocal",)), store, progress=print):
        print(f"{failure.task.pair} {failure.task.method} {failure.task.seed}: {failure.error}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["prepare", "development", *VERBS, "held-out"])
    parser.add_argument(
        "--family", choices=[*DEVELOPMENT, *HELD_OUT], help="prepare this one alone"
    )
    parser.add_argument("--development", action="store_true", help="prepare no held-out task")
    parser.add_argument("--data", type=Path, help="a folder with the reviews, the census and USPS")
    parser.add_argument("--out", type=Path, default=Path("runs/bench"))
    args = parser.parse_args()
    store = Store(args.out)
    if args.what == "prepare":
        prepare(store, args.family, development=args.development)
    elif args.what == "development":
        print(*as_shipped(load(DEVELOPMENT, store)), sep="\n\n")
    elif args.what == "families":
        cases = load(DEVELOPMENT, store) | families(args.out, args.data)
        for text in chain(skipped(cases), ["With the constants that ship:"], as_shipped(cases)):
            print(text, end="\n\n", flush=True)
    elif args.what == "formulas":
        cases = load(DEVELOPMENT, store, with_surrogates=True) | families(args.out, args.data)
        print(*compared(cases), sep="\n\n")
    elif args.what == "surrogates":
        cases = load(trained(DEVELOPMENT, store), store, with_surrogates=True) | families(
            args.out, args.data
        )
        print(*surrogate_tables(cases), sep="\n\n")
    elif args.what == "surrogates-held-out":
        opened("surrogates: ECE, estimate and verdict")
        print(
            *surrogate_tables(load(HELD_OUT, store, with_surrogates=True), choose=False), sep="\n\n"
        )
    elif args.what == "examples":
        print(
            examples([case for group in load(DEVELOPMENT, store).values() for case in group[::3]])
        )
    else:
        opened("ECE, verdict and estimate")
        print(*as_shipped(load(HELD_OUT, store)), sep="\n\n")


if __name__ == "__main__":
    main()
