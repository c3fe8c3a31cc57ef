"""The papers' benchmarks, read from a user's disk. Nothing is downloaded.

Each exists as folders and as list files, under several names. A list takes precedence over folders,
since published models were trained with its labels. Lists that number the classes differently are
not mixed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from pseudocal.arrays import InputError
from pseudocal.lab.data.domains import Domain
from pseudocal.lab.data.domains import partial as keep_classes
from pseudocal.lab.data.layouts import BENCHMARKS, Benchmark, Patterns
from pseudocal.lab.data.listings import (
    Listing,
    Prefix,
    found_in,
    listed_domain,
    read_folder,
    read_list,
)


@dataclass(frozen=True)
class Place:
    """Where a benchmark is on disk: its images, its lists, and how to read them."""

    root: Path
    lists: Path
    prefix: Prefix | None
    ignore_case: bool


def load_benchmark(
    benchmark: str,
    *domains: str,
    root: str | Path | None = None,
    lists: str | Path | None = None,
    prefix: Prefix | None = None,
    partial: bool = False,
    ignore_case: bool = False,
    sides: tuple[int, int] = (256, 224),
) -> dict[str, Domain]:
    """Read a benchmark from your disk.

    Args:
        benchmark: `office-31`, `office-home`, `visda-2017`, `domainnet-126` or `imagenet-sketch`.
        domains: the domains to read, in any of their usual spellings; by default those that
            everyone has.
        root: the folder of the benchmark.
        lists: the folder of its list files; `root` by default.
        prefix: `(old, new)` replaces the beginning of paths that were written on another machine.
        partial: whether to keep only images of the partial-set classes; the label space does not
            change.
        ignore_case: whether to ignore case when numbering the classes of folders, as most
            Office-Home lists do.
        sides: images are resized to a square of the first side, and cropped to the central square
            of the second.

    """
    layout = BENCHMARKS[benchmark]
    place = _place(layout, root, lists, prefix, ignore_case)
    chosen = [layout.spelled(name) for name in domains or layout.default]
    listings = {name: find(layout, name, place, partial=partial) for name in chosen}
    numbered = list(listings.values())
    if partial:
        numbered += _whole_listings(layout, place)
    classes = label_space(layout, numbered)
    read = {
        name: listed_domain(each, name, classes, resize=sides[0], crop=sides[1])
        for name, each in listings.items()
    }
    if partial:
        return {name: keep_classes(domain, layout.partial) for name, domain in read.items()}
    return read


def _place(
    layout: Benchmark,
    root: str | Path | None,
    lists: str | Path | None,
    prefix: Prefix | None,
    ignore_case: bool,
) -> Place:
    if root is None or not Path(root).is_dir():
        got = "None" if root is None else f"{root}, which is no folder"
        raise InputError(
            f"expected root, the folder of {layout.name} ({layout.shape()}), got {got}"
        )
    if lists is not None and not Path(lists).is_dir():
        raise InputError(
            f"expected lists, the folder of the list files of {layout.name}, got {lists}"
        )
    return Place(Path(root), Path(lists or root), prefix, ignore_case)


def find(layout: Benchmark, domain: str, place: Place, *, partial: bool = False) -> Listing:
    """Read one domain from the first layout that exists.

    The partial list if asked for, a full list, a folder.
    """
    patterns = layout.partial_lists + layout.lists if partial else layout.lists
    found = _from_list(layout, domain, place, patterns) or _from_folder(layout, domain, place)
    if found is None:
        raise InputError(
            f"expected the domain {domain} of {layout.name} ({layout.shape(domain)}), got "
            f"{_found(place)}"
        )
    return found


def _from_list(
    layout: Benchmark, domain: str, place: Place, patterns: Patterns, *, check: bool = True
) -> Listing | None:
    files = next(_lists_of(layout, domain, place, patterns), None)
    if files is None:
        return None
    parts = [
        read_list(file, roots=_roots(file, place), prefix=place.prefix, check=check)
        for file in files
    ]
    return sum(parts[1:], start=parts[0])


def _from_folder(layout: Benchmark, domain: str, place: Place) -> Listing | None:
    tried = (
        place.root / each.format(d=name)
        for each, name in product(layout.folders, layout.domains[domain])
    )
    folder = next((folder for folder in tried if folder.is_dir()), None)
    return None if folder is None else read_folder(folder, ignore_case=place.ignore_case)


def _lists_of(
    layout: Benchmark, domain: str, place: Place, patterns: Patterns
) -> Iterator[list[Path]]:
    folders = [place.lists / folder for folder in ("", *layout.published)]
    for folder, pattern, spelling in product(folders, patterns, layout.domains[domain]):
        files = [folder / part.format(d=spelling) for part in pattern]
        if all(file.is_file() for file in files):
            yield files


def _roots(file: Path, place: Place) -> list[Path]:
    # Paths in published lists are relative to the data root, its parent, the working folder or, in
    # data/txt/multi/*.txt, to a folder of the same name as the list's own: data/multi.
    own = file.parent.name
    return [place.root, place.root.parent, Path(), place.root / own, place.root / "data" / own]


def _whole_listings(layout: Benchmark, place: Place) -> list[Listing]:
    """Listings that name all classes, as a partial list does not.

    The full lists of any domain, or a folder.
    """
    lists = (
        _from_list(layout, domain, place, layout.lists, check=False) for domain in layout.domains
    )
    folders = (_from_folder(layout, domain, place) for domain in layout.domains)
    return [each for each in lists if each] or [each for each in folders if each][:1]


def label_space(layout: Benchmark, listings: Iterable[Listing]) -> tuple[str, ...]:
    """The class names in the order of their labels; listings that disagree are refused."""
    names = dict(enumerate(layout.names))
    origin: dict[int, Path] = {}
    for listing in listings:
        for label, name in _label_names(layout, listing).items():
            if names.setdefault(label, name) != name:
                raise InputError(
                    f"expected one label order in all of {layout.name}, got label {label} for "
                    f"{name!r} in "
                    f"{listing.origin} and for {names[label]!r} in "
                    f"{origin.get(label, 'the benchmark')}"
                )
            origin.setdefault(label, listing.origin)
    if sorted(names) != list(range(layout.classes)) or len(set(names.values())) != layout.classes:
        raise InputError(_wrong_classes(layout, names, origin))
    return tuple(names[label] for label in range(layout.classes))


def _label_names(layout: Benchmark, listing: Listing) -> dict[int, str]:
    if listing.names or layout.names:
        return listing.names
    raise InputError(
        f"expected each image of {listing.origin} in a folder named after its class, one folder "
        "for each label, "
        "got labels and folders that are not one to one"
    )


def _wrong_classes(layout: Benchmark, names: dict[int, str], origin: dict[int, Path]) -> str:
    where = ", ".join(sorted({str(path) for path in origin.values()}))
    return (
        f"expected the {layout.classes} classes of {layout.name}, each with one label from 0 to "
        f"{layout.classes - 1}, "
        f"got {len(names)} labels up to {max(names)} and {len(set(names.values()))} class names in "
        f"{where}"
    )


def _found(place: Place) -> str:
    lists = f"; in {place.lists}: {found_in(place.lists)}" if place.lists != place.root else ""
    return f"in {place.root}: {found_in(place.root)}{lists}"
