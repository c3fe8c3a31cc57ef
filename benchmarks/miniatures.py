"""Miniature copies of every data set of the paper, in every accepted layout, with tiny networks.

    python benchmarks/miniatures.py minis
    pseudocal bench run office-home --root minis/data --weights minis/resnet --iterations 2 --batch 4 -o minis/runs

With a few coloured images of each class, you can try all suites before you have the real data and
a GPU. The numbers mean nothing. `--lists` also writes list files with paths of another machine.
"""

from __future__ import annotations

import argparse
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from io import BytesIO
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from pseudocal.lab.data.layouts import BENCHMARKS, Benchmark
from pseudocal.lab.data.street_scenes import LABEL_COLUMN, STREET_CLASSES

SIDE = 32  # of an image
FRAME = (32, 64)  # of a street scene: height, width
FRAMES = 8
SPREAD = 100.0  # how far apart the features of two images are
FOREIGN = "/home/someone/data"  # how paths begin in the lists of somebody else
EACH = {
    "office-31": 2,
    "office-home": 1,
    "visda-2017": 3,
    "domainnet-126": 1,
    "imagenet-sketch": 1,
}  # of a class
SYNTHIA_MASKS = ("GT/LABELS", "parsed_LABELS", "synthia_mapped_to_cityscapes")


def _class_names(benchmark: Benchmark) -> list[str]:
    """The names that are known or that choose a partial set, then numbers."""
    known = benchmark.names or benchmark.partial
    return [*known, *(f"thing_{i:03}" for i in range(benchmark.classes - len(known)))]


CLASSES = {name: _class_names(benchmark) for name, benchmark in BENCHMARKS.items()}


@dataclass(frozen=True)
class DiskLayout:
    """One accepted way to have a data set on disk.

    Attributes:
        folder: the pattern of a domain's folder.
        spelling: which spelling of the domains is used, counted from 0.
        lists: the patterns of a domain's lists; empty for folders alone.

    """

    folder: str
    spelling: int = 0
    lists: tuple[str, ...] = ()


def accepted_layouts(data: str) -> Iterator[DiskLayout]:
    """Yield every combination of folders, spellings of domains and names of lists that is accepted."""
    benchmark = BENCHMARKS[data]
    named = [(), *benchmark.lists]
    named += [
        tuple(f"{place}/{part}" for part in pattern)
        for place, pattern in product(benchmark.published, benchmark.lists)
    ]
    spellings = range(max(len(benchmark.domains[name]) for name in benchmark.default))
    yield from (DiskLayout(*each) for each in product(benchmark.folders, spellings, named))


def write_dataset(
    data: str, root: Path, layout: DiskLayout | None = None, *, each: int | None = None
) -> None:
    """Write the images of all domains that everyone has, and lists if the layout has them.

    Args:
        data: the name of the data set.
        root: the folder of the data set.
        layout: how it lies on disk; folders by default.
        each: the number of images of each class.

    """
    benchmark, layout = BENCHMARKS[data], layout or DiskLayout(BENCHMARKS[data].folders[0])
    for number, name in enumerate(benchmark.default):
        spelled = _spelled(benchmark, name, layout)
        folder = root / layout.folder.format(d=spelled)
        paths = [
            folder / kind / f"{i}.png" for kind in CLASSES[data] for i in range(each or EACH[data])
        ]
        for place, path in enumerate(paths):
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.exists():
                path.write_bytes(_png(place // (each or EACH[data]), number, place))
        parts = np.array_split(
            np.array([str(path.relative_to(root)) for path in paths]), max(len(layout.lists), 1)
        )
        for pattern, part in zip(layout.lists, parts, strict=bool(layout.lists)):
            write_list(root / pattern.format(d=spelled), part.tolist(), CLASSES[data])


def write_list(
    path: Path, image_files: Sequence[str], classes: Sequence[str], begin: str = ""
) -> None:
    """Write lines of `<path> <label>`; `begin` comes before each path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [f"{begin}{each} {classes.index(Path(each).parent.name)}\n" for each in image_files]
    path.write_text("".join(lines), encoding="utf-8")


def write_foreign_lists(root: Path, lists: Path) -> None:
    """Write a list for each domain of each data set below a root, with absolute paths of another machine."""
    for data, benchmark in BENCHMARKS.items():
        for name in benchmark.default:
            folder = root / data / benchmark.folders[0].format(d=benchmark.domains[name][0])
            paths = sorted(str(path.relative_to(root)) for path in folder.rglob("*.png"))
            write_list(lists / data / f"{name}_list.txt", paths, CLASSES[data], f"{FOREIGN}/")


def write_streets(root: Path, *, masks: str = SYNTHIA_MASKS[0]) -> None:
    """Write frames and masks of GTA5, SYNTHIA and Cityscapes.

    Of SYNTHIA as downloaded, or as people parse them.
    """
    for domain, data in enumerate(("gta5", "synthia", "cityscapes")):
        rng = np.random.default_rng(domain)
        numbers = np.array([int(row[LABEL_COLUMN[data]]) for row in STREET_CLASSES])
        for frame in range(FRAMES):
            kinds = (
                rng.integers(0, len(numbers), (FRAME[0] // 8, FRAME[1] // 8))
                .repeat(8, 0)
                .repeat(8, 1)
            )
            colours = np.random.default_rng(9).integers(
                0, 200, (len(numbers), 3)
            )  # the same in all three
            noisy = colours[kinds] + rng.integers(0, 20 + 15 * domain, (*FRAME, 3))
            paths = _street_files(data, frame, masks)
            for path in paths:
                (root / path).parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(noisy.astype(np.uint8)).save(root / paths[0])
            wide = data == "synthia" and masks == SYNTHIA_MASKS[0]
            _save_mask(root / paths[1], numbers[kinds], palette=data == "gta5", wide=wide)


def _street_files(data: str, frame: int, masks: str) -> tuple[str, str]:
    if data == "cityscapes":
        stem = f"frankfurt/frankfurt_000000_{frame:06}"
        return (
            f"{data}/leftImg8bit/val/{stem}_leftImg8bit.png",
            f"{data}/gtFine/val/{stem}_gtFine_labelIds.png",
        )
    if data == "gta5":
        return f"{data}/images/{frame:05}.png", f"{data}/labels/{frame:05}.png"
    return f"{data}/RGB/{frame:07}.png", f"{data}/{masks}/{frame:07}.png"


def _save_mask(path: Path, numbers: Any, *, palette: bool, wide: bool) -> None:
    if wide:
        path.write_bytes(wide_png(np.stack([numbers, numbers * 0 + 1, numbers * 0], axis=-1)))
        return
    image = Image.fromarray(numbers.astype(np.uint8))
    if palette:
        image.putpalette(list(range(255, -1, -1)) * 3)
    image.save(path)


def wide_png(values: Any) -> bytes:
    """A PNG of 16-bit colour without filters: `values` is `(height, width, 3)`."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return (
            struct.pack(">I", len(content))
            + kind
            + content
            + struct.pack(">I", zlib.crc32(kind + content))
        )

    height, width, _ = values.shape
    lines = b"".join(b"\0" + row.astype(">u2").tobytes() for row in values)
    head = struct.pack(">IIBBBBB", width, height, 16, 2, 0, 0, 0)
    parts = (chunk(b"IHDR", head), chunk(b"IDAT", zlib.compress(lines)), chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def write_networks(folder: Path) -> None:
    """Write a tiny ResNet and a tiny ViT as transformers has them, with a classifier of 1,000 classes.

    Their weights are random, but such that different images are predicted to be of different
    classes.
    """
    import torch
    from transformers import (
        ResNetConfig,
        ResNetForImageClassification,
        ViTConfig,
        ViTForImageClassification,
    )

    torch.manual_seed(0)
    small = ResNetConfig(
        embedding_size=4,
        hidden_sizes=[4, 4, 8, 32],
        depths=[1, 1, 1, 1],
        layer_type="basic",
        num_labels=1000,
    )
    resnet = ResNetForImageClassification(small)
    norms = [module for module in resnet.modules() if isinstance(module, torch.nn.BatchNorm2d)]
    for norm in norms:
        norm.momentum = None  # the moments become those of these images
    image_files = np.stack(
        [np.asarray(_image(kind, 0, kind).resize((224, 224))) for kind in range(40)]
    )
    images = torch.from_numpy(image_files.transpose(0, 3, 1, 2) / 64 - 2).float()
    with torch.no_grad():
        resnet(images)
        norms[-1].weight.mul_(SPREAD)
        norms[-1].bias.sub_(SPREAD)  # so that each image moves a few features only
    resnet.save_pretrained(folder / "resnet")
    thin = ViTConfig(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        patch_size=32,
        num_labels=1000,
    )
    vit = ViTForImageClassification(thin)
    with torch.no_grad():
        vit.vit.embeddings.patch_embeddings.projection.weight *= SPREAD
        vit.vit.layernorm.weight *= SPREAD
        vit.vit.layernorm.bias -= vit.vit(images).last_hidden_state[:, 0].mean(dim=0)
    vit.save_pretrained(folder / "vit")


@lru_cache(maxsize=4096)  # the same in every layout
def _png(kind: int, domain: int, number: int) -> bytes:
    content = BytesIO()
    _image(kind, domain, number).save(content, "png")
    return content.getvalue()


def _image(kind: int, domain: int, number: int) -> Image.Image:
    """A gradient whose colours are those of the class, with the noise of the domain."""
    first, second = np.random.default_rng([kind]).integers(0, 200, (2, 1, 1, 3))
    across = np.linspace(0, 1, SIDE)[None, :, None]
    noise = np.random.default_rng([domain, number]).integers(0, 20 + 15 * domain, (SIDE, SIDE, 3))
    return Image.fromarray(
        (first * across + second * (1 - across) + noise).clip(0, 255).astype(np.uint8)
    )


def _spelled(benchmark: Benchmark, domain: str, layout: DiskLayout) -> str:
    spellings = benchmark.domains[domain]
    return spellings[min(layout.spelling, len(spellings) - 1)]


def write_all(folder: Path, *, lists: bool = False) -> None:
    """Write the data to `data`, the networks beside it and, if asked for, list files to `lists`."""
    for data in BENCHMARKS:
        write_dataset(data, folder / "data" / data)
    write_streets(folder / "data" / "street-scenes")
    write_networks(folder)
    if lists:
        write_foreign_lists(folder / "data", folder / "lists")


def main() -> None:
    """Write everything."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--lists", action="store_true", help="lists with the paths of another machine too"
    )
    args = parser.parse_args()
    write_all(args.folder, lists=args.lists)
    print(f"{args.folder}: data, resnet, vit{', lists' if args.lists else ''}")


if __name__ == "__main__":
    main()
