"""Image folders and list files: which image has which label, and the domains made of them.

Nothing is decoded until images are asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from os import walk
from os.path import basename, dirname, join
from pathlib import Path

import numpy as np

from pseudocal.arrays import InputError
from pseudocal.lab.data.domains import Domain, Unlabelled, class_count
from pseudocal.lab.data.images import ImageFiles, check_exist, is_image

Prefix = tuple[str, str]  # how paths begin in a list, and how they begin here


def image_folder(
    folder: str | Path,
    *,
    name: str | None = None,
    ignore_case: bool = False,
    resize: int = 256,
    crop: int = 224,
) -> Domain:
    """Images as `folder/<class>/<image>`, classes numbered by sorted name.

    Args:
        folder: the folder that holds a folder for each class.
        name: the name of the domain; that of the folder by default.
        ignore_case: whether to sort "Table" before "TV", as some published lists do; else capitals
            come first.
        resize: the side, in pixels, of the square that each image is resized to, whatever its
            aspect ratio.
        crop: the side, in pixels, of the central square that is kept after resizing.

    """
    listing = read_folder(Path(folder), ignore_case=ignore_case)
    classes = tuple(listing.names.values())
    return listed_domain(listing, name or Path(folder).name, classes, resize=resize, crop=crop)


def image_list(
    path: str | Path,
    *,
    root: str | Path | None = None,
    prefix: Prefix | None = None,
    classes: Sequence[str] | None = None,
    name: str | None = None,
    resize: int = 256,
    crop: int = 224,
) -> Domain:
    """Images as `<path> <label>` lines of a list file.

    The label comes from the line, never from the folder.

    Args:
        path: the list file.
        root: the folder that relative paths start from; that of the list by default.
        prefix: `(old, new)` replaces the beginning of paths that were written on another machine.
        classes: the class names. By default a class is named after the folder of its images where
            folders and labels are one to one, and after its number otherwise.
        name: the name of the domain; that of the list by default.
        resize: the side, in pixels, of the square that each image is resized to, whatever its
            aspect ratio.
        crop: the side, in pixels, of the central square that is kept after resizing.

    """
    listing = read_list(Path(path), roots=[Path(root)] if root else [], prefix=prefix)
    labels = range(class_count(max(listing.labels), str(path)))
    names = tuple(classes or (listing.names.get(label, str(label)) for label in labels))
    return listed_domain(listing, name or Path(path).stem, names, resize=resize, crop=crop)


def unlabelled_folder(
    folder: str | Path, *, name: str | None = None, resize: int = 256, crop: int = 224
) -> Unlabelled:
    """All images below a folder, in the order of their paths.

    Args:
        folder: the folder; the images may be at any depth.
        name: the name of the domain; that of the folder by default.
        resize: the side, in pixels, of the square that each image is resized to, whatever its
            aspect ratio.
        crop: the side, in pixels, of the central square that is kept after resizing.

    """
    root = Path(folder)
    paths = tuple(images_below(root))
    if not paths:
        raise InputError(
            f"expected images below {root}, got "
            f"{found_in(root) if root.is_dir() else 'no such folder'}"
        )
    return Unlabelled(name or root.name, ImageFiles(paths, resize, crop))


@dataclass(frozen=True, eq=False)
class Listing:
    """Paths, their labels, and the names of the labels by folder.

    There are no names if labels and folders are not one to one.
    """

    origin: Path
    paths: tuple[str, ...]
    labels: tuple[int, ...]
    names: dict[int, str]

    def __add__(self, other: Listing) -> Listing:
        paths = self.paths + other.paths
        labels = self.labels + other.labels
        return Listing(self.origin, paths, labels, folder_names(paths, labels))


def listed_domain(
    listing: Listing, name: str, classes: tuple[str, ...], *, resize: int = 256, crop: int = 224
) -> Domain:
    """A domain whose images stay on disk until they are asked for."""
    return Domain(name, ImageFiles(listing.paths, resize, crop), np.array(listing.labels), classes)


def read_folder(folder: Path, *, ignore_case: bool = False) -> Listing:
    """Read `folder/<class>/**/<image>`, the classes numbered by their sorted names.

    `sorted` puts capitals first ("TV" before "Table"); some published lists ignore case ("Table"
    before "TV").
    """
    key: Callable[[str], str] = str.lower if ignore_case else str
    names = sorted(_class_folders(folder), key=key)
    found = {name: list(images_below(folder / name)) for name in names}
    empty = [name for name in names if not found[name]]
    if empty or not names:
        raise InputError(
            f"expected images as {folder}/<class>/<image>, got {_what_is_missing(folder, empty)}"
        )
    labels = tuple(label for label, name in enumerate(names) for _ in found[name])
    return Listing(
        folder,
        tuple(path for name in names for path in found[name]),
        labels,
        dict(enumerate(names)),
    )


def _class_folders(folder: Path) -> list[str]:
    if not folder.is_dir():
        raise InputError(
            f"expected a folder, got {folder}, which is "
            f"{'a file' if folder.exists() else 'missing'}"
        )
    return [
        entry.name
        for entry in folder.iterdir()
        if entry.is_dir() and not entry.name.startswith(".")
    ]


def images_below(folder: Path) -> Iterator[str]:
    """The paths of all images below a folder, sorted."""
    for parent, folders, files in walk(folder, followlinks=True):
        folders.sort()
        yield from (f"{parent}/{file}" for file in sorted(files) if is_image(file))


def _what_is_missing(folder: Path, empty: Sequence[str]) -> str:
    return f"no image in {folder / empty[0]}" if empty else found_in(folder)


def found_in(folder: Path) -> str:
    """The first names in a folder, for an error message."""
    names = sorted(entry.name + "/" * entry.is_dir() for entry in folder.iterdir())
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return ", ".join(names[:8]) + more if names else "an empty folder"


def read_list(
    path: Path, *, roots: Sequence[Path] = (), prefix: Prefix | None = None, check: bool = True
) -> Listing:
    """Read `<path> <label>` lines; the last word is the label, so a path may hold spaces.

    Relative paths start from the first of `roots` that holds the first image, else from the list's
    own folder. With `check=False` the images may be absent: the paths are enough to learn the names
    of the classes.
    """
    entries = [parse_line(path, number, line) for number, line in _numbered_lines(path)]
    if not entries:
        raise InputError(f"expected lines of `<path> <label>` in {path}, got none")
    written = [moved(name, prefix) for name, _ in entries]
    root = next((root for root in roots if (root / written[0]).exists()), path.parent)
    paths = tuple(join(root, name) for name in written)
    if check:
        check_exist(paths, path)
    labels = tuple(label for _, label in entries)
    return Listing(path, paths, labels, folder_names(paths, labels))


def _numbered_lines(path: Path) -> Iterator[tuple[int, str]]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"expected a list file in UTF-8, got {path} ({error})") from error
    return (
        (number, line) for number, line in enumerate(text.splitlines(), start=1) if line.strip()
    )


def parse_line(path: Path, number: int, line: str) -> tuple[str, int]:
    """Split one line of a list.

    >>> parse_line(Path("art.txt"), 1, "Real World/Alarm Clock/0001.jpg 12")
    ('Real World/Alarm Clock/0001.jpg', 12)
    """
    words = line.rsplit(maxsplit=1)
    if len(words) != 2 or not (words[1].isascii() and words[1].isdigit()):
        raise InputError(
            f"expected `<path> <label>` with a label from 0 in {path}, line {number}, got "
            f"{line.strip()!r}"
        )
    return words[0].strip(), int(words[1])


def moved(name: str, prefix: Prefix | None) -> str:
    """Rewrite the beginning of a path.

    >>> moved("xxxxxx/office_home/Art/Bed/1.jpg", ("xxxxxx", "/data"))
    '/data/office_home/Art/Bed/1.jpg'
    """
    return (
        prefix[1] + name.removeprefix(prefix[0]) if prefix and name.startswith(prefix[0]) else name
    )


def folder_names(paths: Sequence[str], labels: Sequence[int]) -> dict[int, str]:
    """The folder of each label's images, or nothing where labels and folders are not one to one.

    >>> folder_names(["a/bed/1.jpg", "a/bike/2.jpg", "a/bed/3.jpg"], [0, 1, 0])
    {0: 'bed', 1: 'bike'}
    >>> folder_names(["flat/1.jpg", "flat/2.jpg"], [0, 1])
    {}
    """
    pairs = {(label, basename(dirname(path))) for path, label in zip(paths, labels, strict=True)}
    names = dict(sorted(pairs))
    return names if len(names) == len(pairs) == len(set(names.values())) else {}
