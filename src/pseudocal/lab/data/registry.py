"""Every data set for classification by its name."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from pseudocal.arrays import InputError
from pseudocal.lab.data.benchmarks import load_benchmark
from pseudocal.lab.data.builtin_digits import digits
from pseudocal.lab.data.builtin_emoji import emoji, emoji_groups
from pseudocal.lab.data.domains import Domain
from pseudocal.lab.data.domains import partial as keep_classes
from pseudocal.lab.data.layouts import PARTIAL_CLASSES
from pseudocal.lab.data.listings import Prefix, found_in, image_folder, image_list

BUILT_IN_DATASETS: dict[str, Callable[..., dict[str, Domain]]] = {
    "digits": digits,
    "emoji": emoji,
    "emoji-groups": emoji_groups,
}
DATASETS: dict[str, Callable[..., dict[str, Domain]]] = {
    **BUILT_IN_DATASETS,
    "office-31": partial(load_benchmark, "office-31"),
    "office-home": partial(load_benchmark, "office-home"),
    "visda-2017": partial(load_benchmark, "visda-2017"),
    "domainnet-126": partial(load_benchmark, "domainnet-126"),
    "imagenet-sketch": partial(load_benchmark, "imagenet-sketch"),
}


def load(
    dataset: str, *domains: str, root: str | Path | None = None, **options: Any
) -> dict[str, Domain]:
    """Load a data set by name. The built-in ones are built on first use.

        load("emoji", "noto", "fluent")
        load("office-home", root="/data/office_home")

    Args:
        dataset: a name in `DATASETS`.
        domains: the domains to load; the usual ones by default.
        root: the folder of a benchmark that is not built in.
        options: other arguments of `pseudocal.lab.data.load_benchmark`.

    """
    if dataset not in DATASETS:
        hint = ""
        if dataset == "scenes":
            hint = "; scenes have masks, not labels: call pseudocal.lab.data.scenes()"
        raise InputError(f"expected a data set among {', '.join(DATASETS)}, got {dataset!r}{hint}")
    if dataset not in BUILT_IN_DATASETS:
        if root is not None:
            options["root"] = root
        return DATASETS[dataset](*domains, **options)
    if root is not None or options:
        given = sorted(options) if root is None else ["root", *sorted(options)]
        raise InputError(
            f"expected no options for {dataset}, which is built in, got {', '.join(given)}"
        )
    return DATASETS[dataset](*domains)


def load_own(folder: Path, *domains: str, prefix: Prefix | None = None) -> dict[str, Domain]:
    """Load domains of a user's folder: each is a list `DOMAIN.txt`, or a folder of classes.

    A file `classes.txt`, one name a line, names the classes of lists.

    Args:
        folder: the folder of the data set.
        domains: the names of the domains.
        prefix: `(old, new)` replaces the beginning of paths that were written on another machine.

    """
    named = folder / "classes.txt"
    classes = named.read_text(encoding="utf-8").split("\n") if named.is_file() else []
    classes = [name.strip() for name in classes if name.strip()]
    found = {}
    for name in domains:
        if (folder / f"{name}.txt").is_file():
            path = folder / f"{name}.txt"
            found[name] = image_list(path, prefix=prefix, classes=classes or None, name=name)
        elif (folder / name).is_dir():
            found[name] = image_folder(folder / name, name=name)
        else:
            raise InputError(
                f"expected {name}.txt, a list of images, or a folder {name} of classes in "
                f"{folder}, got {found_in(folder)}"
            )
    return found


def partial_set(dataset: str, target: Domain) -> Domain:
    """Make the target of a partial set.

    The classes that the papers chose for a benchmark, else the first half of all.

    Args:
        dataset: a name in `DATASETS`.
        target: the whole target domain.

    """
    first_half = target.classes[: len(target.classes) // 2]
    return keep_classes(target, PARTIAL_CLASSES.get(dataset, first_half))
