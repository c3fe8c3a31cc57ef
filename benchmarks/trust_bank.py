"""A bank of cases for trying label-free rules in seconds.

    python benchmarks/trust_bank.py --out runs/bank --data FOLDER    train everything (some 20 minutes on one core)

A case is a model on a shifted target with a second model: the logits of both for the target and for
mixup samples of it, the penultimate layer of the second model, and the labels, for scoring only.
Every kind of model is trained with plain and with smoothed labels. The second model has another seed
and another four fifths of the source, or three tenths of it ("weak"), so it may be much worse than
the first. What is held out is used for claims only; `evaluation.py` logs every look.

| family | classes | |
|---|---|---|
| digits, CNN | 10 | end to end: mnist, optdigits and fonts, source-only and MCC |
| scikit-learn digits, MLP | 10 | pixels under ten corruptions |
| emoji, heads | 52 | on frozen EfficientNet-Lite0, targets noto and fluent, source-only and MCC |
| emoji groups, heads | 8 | the same with the classes merged |
| USPS, MLP | 10 | pixels, from USPS to other digits and back |
| held out: emoji, other vendors, heads | 52, 8 | the same heads, targets openmoji and twemoji |
| held out: gas drift, MLP | 6 | trained on the first batches, used on later ones |
| held out: emoji groups, CNN | 8 | end to end, 32 x 32 pixels |
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from pseudocal.lab.adapt.losses import cross_entropy, mcc
from pseudocal.lab.data import load
from pseudocal.mixup import partners

LAM = 0.65
MOST_ROWS = 1000  # of a target
SMOOTHING = 0.1
FRACTIONS = {"first": 0.8, "second": 0.8, "weak": 0.3}  # of the source that a model learns from
GROUPS = {
    "face": 0, "heart": 0, "emotion": 0, "person": 1, "body": 1, "animal": 2, "plant": 2,
    "food": 3, "drink": 3, "place": 4, "transport": 4, "sky": 4, "event": 5, "game": 5, "sport": 5,
    "book": 6, "clothing": 6, "computer": 6, "household": 6, "light": 6, "mail": 6, "office": 6,
    "tool": 6,
}  # fmt: skip
SYMBOLS = 7


@dataclass(frozen=True, eq=False)
class BankCase:
    """One model on one target with a second model.

    Attributes:
        family: The family that the case belongs to.
        task: The task and the kind of training.
        second_kind: "second" or "weak".
        smoothed: Whether both models were trained with smoothed labels.
        logits: The logits of the target.
        second: Those of the second model.
        mixed: The logits of mixup samples of each row with its partner.
        second_mixed: Those of the second model.
        partner: The partner of each row.
        features: The penultimate layer of the second model for the target.
        mixed_features: The same for the mixup samples.
        labels: The labels of the target, for scoring only.

    """

    family: str
    task: str
    second_kind: str
    smoothed: bool
    logits: np.ndarray
    second: np.ndarray
    mixed: np.ndarray
    second_mixed: np.ndarray
    partner: np.ndarray
    features: np.ndarray
    mixed_features: np.ndarray
    labels: np.ndarray


class Net(nn.Module):
    """A body up to the penultimate layer, and a linear layer."""

    def __init__(self, body: nn.Module, width: int, classes: int) -> None:
        super().__init__()
        self.body = body
        self.top = nn.Linear(width, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits."""
        logits: torch.Tensor = self.top(self.body(x))
        return logits

    def outputs(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Logits and penultimate features of many inputs."""
        self.eval()
        parts = []
        with torch.no_grad():
            for chunk in torch.from_numpy(x).split(256):
                hidden = self.body(chunk)
                parts.append((self.top(hidden).numpy(), hidden.numpy()))
        logits, hidden = (np.concatenate(column) for column in zip(*parts, strict=True))
        return logits.astype(np.float32), hidden.astype(np.float16)


def mlp(columns: int, classes: int, width: int = 64) -> Net:
    return Net(nn.Sequential(nn.Linear(columns, width), nn.ReLU()), width, classes)


def cnn(channels: int, side: int, classes: int) -> Net:
    def layers(before: int, after: int) -> list[nn.Module]:
        convolution = nn.Conv2d(before, after, 3, padding=1, bias=False)
        return [convolution, nn.BatchNorm2d(after), nn.ReLU(), nn.MaxPool2d(2)]

    blocks = [*layers(channels, 16), *layers(16, 32), *layers(32, 32)]
    flat = 32 * (side // 8) ** 2
    body = nn.Sequential(*blocks, nn.Flatten(), nn.Linear(flat, 64), nn.ReLU())
    return Net(body, 64, classes)


@dataclass(frozen=True)
class Recipe:
    """How models of a family are trained."""

    build: Callable[[], Net]
    iterations: int
    rate: float = 1e-3
    decay: float = 1e-4


def trained(
    recipe: Recipe,
    source: tuple[np.ndarray, np.ndarray],
    kind: str,
    *,
    smoothing: float,
    adapted_to: np.ndarray | None = None,
) -> Net:
    """A model of one kind: first, second or weak; adapted by MCC if there is a target."""
    seed = list(FRACTIONS).index(kind)
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    x, y = source
    rows = rng.permutation(len(y))[: int(FRACTIONS[kind] * len(y))]
    net = recipe.build()
    optimiser = torch.optim.AdamW(net.parameters(), recipe.rate, weight_decay=recipe.decay)
    net.train()
    for _ in range(recipe.iterations):
        some = rng.choice(rows, 64)
        inputs = torch.from_numpy(x[some])
        if adapted_to is not None:
            others = torch.from_numpy(adapted_to[rng.choice(len(adapted_to), 64)])
            inputs = torch.cat([inputs, others])
        logits = net(inputs)
        loss = cross_entropy(logits[:64], torch.from_numpy(y[some]), smoothing=smoothing)
        if adapted_to is not None:
            loss = loss + mcc(logits[64:], temperature=2.5)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return net


@dataclass(frozen=True)
class Target:
    """What models are used on."""

    name: str
    x: np.ndarray
    mixed: np.ndarray
    partner: np.ndarray
    labels: np.ndarray
    rows: np.ndarray | None = None

    @classmethod
    def of(cls, name: str, x: np.ndarray, labels: np.ndarray) -> Target:
        """A sample of the rows, mixed with their partners."""
        rows = np.random.default_rng(0).permutation(len(x))[:MOST_ROWS]
        partner = partners(len(rows), seed=0)
        seen = x[rows]
        mixed = (LAM * seen + (1 - LAM) * seen[partner]).astype(np.float32)
        return cls(name, seen, mixed, partner, labels[rows], rows)


def cases(
    family: str,
    source_name: str,
    recipe: Recipe,
    source: tuple[np.ndarray, np.ndarray],
    targets: list[Target],
    *,
    adapt: bool,
) -> Iterator[BankCase]:
    """Models of one source on all targets: plain and smoothed, source-only and adapted."""
    for smoothing in (0.0, SMOOTHING):
        unadapted = {kind: trained(recipe, source, kind, smoothing=smoothing) for kind in FRACTIONS}
        for target in targets:
            models = {"source-only": unadapted}
            if adapt:
                models["mcc"] = {
                    kind: trained(recipe, source, kind, smoothing=smoothing, adapted_to=target.x)
                    for kind in FRACTIONS
                }
            for method, of_kind in models.items():
                found = {
                    kind: [net.outputs(x) for x in (target.x, target.mixed)]
                    for kind, net in of_kind.items()
                }
                (logits, _), (mixed, _) = found["first"]
                for kind in ("second", "weak"):
                    (second, features), (second_mixed, mixed_features) = found[kind]
                    yield BankCase(
                        family, f"{source_name} to {target.name}, {method}", kind, smoothing > 0,
                        logits, second, mixed, second_mixed, target.partner, features,
                        mixed_features, target.labels,
                    )  # fmt: skip


# ------------------------------------------------------------------------------ families


def all_digits(data: Path) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    found = {
        name: (domain.inputs[:].astype(np.float32) / 255, domain.labels.astype(np.int64))
        for name, domain in load("digits", "mnist", "optdigits", "fonts").items()
    }
    with np.load(data / "usps.npz", allow_pickle=False) as file:
        x = file["train_x"].reshape(-1, 1, 16, 16).astype(np.float32) / 255
        found["usps"] = (x, file["train_y"].astype(np.int64))
    return found


def digits_cnn(data: Path) -> Iterator[BankCase]:
    found = all_digits(data)
    recipe = Recipe(lambda: cnn(1, 16, 10), iterations=300)
    for source in ("mnist", "optdigits", "fonts"):
        targets = [
            Target.of(name, *found[name])
            for name in ("mnist", "optdigits", "fonts")
            if name != source
        ]
        yield from cases("digits, CNN", source, recipe, found[source], targets, adapt=True)


def usps_mlp(data: Path) -> Iterator[BankCase]:
    found = {name: (x.reshape(len(x), -1), y) for name, (x, y) in all_digits(data).items()}
    recipe = Recipe(lambda: mlp(256, 10), iterations=500)
    for source in found:
        names = [name for name in found if name != source and "usps" in (source, name)]
        targets = [Target.of(name, *found[name]) for name in names]
        yield from cases("USPS, MLP", source, recipe, found[source], targets, adapt=False)


def corrupted_digits(data: Path) -> Iterator[BankCase]:
    from sklearn.datasets import load_digits

    from trust_families import CORRUPTIONS

    x, y = load_digits(return_X_y=True)
    images = x.reshape(-1, 8, 8, 1) / 16
    half = np.random.default_rng(0).permutation(len(y))
    train, test = half[:900], half[900:]
    targets = []
    for name, corrupt in CORRUPTIONS.items():
        seen = corrupt(images[test], np.random.default_rng(1)).reshape(len(test), -1)
        targets.append(Target.of(name, seen.astype(np.float32), y[test].astype(np.int64)))
    source = (images[train].reshape(900, -1).astype(np.float32), y[train].astype(np.int64))
    recipe = Recipe(lambda: mlp(64, 10), iterations=500, rate=3e-3)
    yield from cases("scikit-learn digits, MLP", "clean", recipe, source, targets, adapt=False)


def gas(data: Path) -> Iterator[BankCase]:
    with np.load(data / "gas_drift.npz", allow_pickle=False) as file:
        x, y, batch = file["x"], file["y"].astype(np.int64), file["batch"]
    for name, first in (("batches 1 and 2", (1, 2)), ("batches 1 to 3", (1, 2, 3))):
        seen = np.isin(batch, first)
        scaled = np.clip((x - x[seen].mean(axis=0)) / x[seen].std(axis=0), -10, 10)
        later = [(3,), (4, 5), (6,), (8,), (9,)]
        targets = [
            Target.of(
                f"batch {'+'.join(map(str, some))}",
                scaled[np.isin(batch, some)].astype(np.float32),
                y[np.isin(batch, some)],
            )
            for some in later
            if not set(some) & set(first)
        ]
        source = (scaled[seen].astype(np.float32), y[seen])
        recipe = Recipe(lambda: mlp(128, 6), iterations=500)
        yield from cases("gas drift, MLP", name, recipe, source, targets, adapt=True)


def group_of(name: str) -> int:
    """The group of an emoji class; symbols are the rest."""
    return next((group for start, group in GROUPS.items() if name.startswith(start)), SYMBOLS)


def emoji_features(folder: Path) -> dict[str, Any]:
    """Features of each vendor's images and of its mixup samples, kept in a file."""
    from pseudocal.lab.adapt.backbones import build_backbone, compute_features
    from pseudocal.lab.adapt.choices import Choice

    path = folder / "emoji_features.npz"
    if not path.exists():
        backbone = build_backbone(Choice("efficientnet-lite0", size=64))
        found: dict[str, Any] = {}
        for name, domain in load("emoji").items():
            target = Target.of(name, domain.inputs[:].astype(np.float32), domain.labels)
            source = compute_features(backbone, domain.inputs[:])
            found[f"{name}/source"] = source
            found[f"{name}/target"] = source[target.rows]
            found[f"{name}/mixed"] = compute_features(backbone, target.mixed)
            found[f"{name}/labels"] = domain.labels.astype(np.int64)
            found[f"{name}/target_labels"] = target.labels.astype(np.int64)
            found[f"{name}/partner"] = target.partner
        np.savez(path, **found)
    with np.load(path, allow_pickle=False) as file:
        return dict(file)


def emoji_heads(folder: Path, *, held_out: bool) -> Iterator[BankCase]:
    features = emoji_features(folder)
    names = [group_of(name) for name in load("emoji", "noto")["noto"].classes]
    merge = {"emoji": np.arange(len(names)), "emoji groups": np.array(names)}
    aims = ("openmoji", "twemoji") if held_out else ("noto", "fluent")
    for family, groups in merge.items():
        title = f"{family}, other vendors, heads" if held_out else f"{family}, heads"
        classes = int(groups.max()) + 1
        for source in ("noto", "fluent", "openmoji", "twemoji"):
            x = features[f"{source}/source"]
            mean, std = x.mean(axis=0), x.std(axis=0) + 1e-6
            targets = [
                Target(
                    name,
                    np.clip((features[f"{name}/target"] - mean) / std, -10, 10),
                    np.clip((features[f"{name}/mixed"] - mean) / std, -10, 10),
                    features[f"{name}/partner"],
                    groups[features[f"{name}/target_labels"]],
                )
                for name in aims
                if name != source
            ]
            recipe = Recipe(partial(mlp, 1280, classes, 128), iterations=300, rate=5e-4)
            labelled = ((x - mean) / std, groups[features[f"{source}/labels"]])
            yield from cases(title, source, recipe, labelled, targets, adapt=True)


def emoji_cnn(folder: Path) -> Iterator[BankCase]:
    domains = load("emoji")
    groups = np.array([group_of(name) for name in domains["noto"].classes])
    small = {}
    for name, domain in domains.items():
        x = domain.inputs[:].astype(np.float32) / 255
        x = x.reshape(len(x), 3, 32, 3, 32, 3).mean(axis=(3, 5))
        small[name] = (x, groups[domain.labels])
    recipe = Recipe(lambda: cnn(3, 32, 8), iterations=300)
    for source in small:
        targets = [Target.of(name, *small[name]) for name in small if name != source]
        yield from cases("emoji groups, CNN", source, recipe, small[source], targets, adapt=False)


# ------------------------------------------------------------------------------ files

DEVELOPMENT = (
    "digits_cnn", "scikit_digits", "usps_mlp", "emoji_heads"
)  # fmt: skip
HELD_OUT = ("gas_drift", "emoji_other_vendors", "emoji_cnn")
ARRAYS = tuple(f.name for f in fields(BankCase))[4:]


def families(out: Path, data: Path) -> dict[str, Callable[[], Iterator[BankCase]]]:
    return {
        "scikit_digits": lambda: corrupted_digits(data),
        "usps_mlp": lambda: usps_mlp(data),
        "digits_cnn": lambda: digits_cnn(data),
        "gas_drift": lambda: gas(data),
        "emoji_heads": lambda: emoji_heads(out, held_out=False),
        "emoji_other_vendors": lambda: emoji_heads(out, held_out=True),
        "emoji_cnn": lambda: emoji_cnn(out),
    }


def save(path: Path, found: list[BankCase]) -> None:
    arrays: dict[str, Any] = {}
    for i, case in enumerate(found):
        arrays |= {f"{i}/{name}": getattr(case, name) for name in ARRAYS}
    about = [(c.family, c.task, c.second_kind, str(int(c.smoothed))) for c in found]
    np.savez(path, about=np.array(about), **arrays)


def load_cases(path: Path) -> Iterator[BankCase]:
    with np.load(path, allow_pickle=False) as file:
        for i, (family, task, second_kind, smoothed) in enumerate(file["about"].tolist()):
            arrays = {name: file[f"{i}/{name}"] for name in ARRAYS}
            yield BankCase(family, task, second_kind, smoothed == "1", **arrays)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("runs/bank"))
    parser.add_argument("--data", type=Path, required=True, help="a folder with usps and gas_drift")
    args = parser.parse_args()
    torch.set_num_threads(1)
    args.out.mkdir(parents=True, exist_ok=True)
    for name, build in families(args.out, args.data).items():
        path = args.out / f"{name}.npz"
        if path.exists():
            continue
        start = time.perf_counter()
        found = list(build())
        save(path, found)
        print(f"{name}: {len(found)} cases in {time.perf_counter() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
