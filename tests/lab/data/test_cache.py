from __future__ import annotations

from hashlib import sha256
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest

from pseudocal.arrays import InputError
from pseudocal.lab.data import RenderingWarning, cache_folder
from pseudocal.lab.data.cache import NamedArrays, cached, digest, read_checked, write_checked

ARRAYS: NamedArrays = {
    "images": np.arange(12, dtype=np.uint8).reshape(3, 4),
    "names": np.array(["a", "bc"]),
}


class Builder:
    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> NamedArrays:
        self.calls += 1
        return ARRAYS


def get(builder: Builder) -> NamedArrays:
    return cached("thing", builder, expected=digest(ARRAYS))


def test_folder_is_the_users_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PSEUDOCAL_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", "/home/me")
    assert cache_folder() == Path("/home/me/.cache/pseudocal")
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert cache_folder() == Path("/caches/pseudocal")
    monkeypatch.setenv("PSEUDOCAL_CACHE", "/mine")
    assert cache_folder() == Path("/mine")


def test_built_once_and_read_back_the_same(cache: Path) -> None:
    builder = Builder()
    first, second = get(builder), get(builder)
    assert builder.calls == 1
    assert digest(first) == digest(second) == digest(ARRAYS)
    assert sorted(path.name for path in cache.iterdir()) == [
        f"thing-{digest(ARRAYS)[:12]}.npz",
        f"thing-{digest(ARRAYS)[:12]}.npz.sha256",
    ]


def test_built_and_read_arrays_have_one_layout_in_memory(cache: Path) -> None:
    images = np.zeros((2, 4, 4, 3), dtype=np.uint8)
    odd = {
        "channels last": images.transpose(0, 3, 1, 2),
        "new axis": images[..., 0].copy()[:, None],
        "fortran": np.asfortranarray(images),
    }
    built, read = (cached("odd", lambda: odd, expected=digest(odd)) for _ in range(2))
    assert {name: array.strides for name, array in built.items()} == {
        n: a.strides for n, a in read.items()
    }


def test_damaged_file_is_built_again(cache: Path) -> None:
    builder = Builder()
    get(builder)
    (file,) = cache.glob("*.npz")
    checksum = file.with_name(f"{file.name}.sha256")
    whole = file.read_bytes()
    changed = whole[:60] + bytes([whole[60] ^ 1]) + whole[61:]
    damages = [
        lambda: file.write_bytes(changed),
        lambda: file.write_bytes(whole[:-9]),
        lambda: file.write_bytes(b""),
        file.unlink,
        checksum.unlink,
        lambda: checksum.write_bytes(b"\xff"),
    ]
    for count, damage in enumerate(damages, start=2):
        damage()
        assert digest(get(builder)) == digest(ARRAYS)
        assert builder.calls == count
        assert read_checked(file) is not None  # and it was repaired on disk


def test_pickles_are_neither_written_nor_read(cache: Path) -> None:
    objects = {"x": np.array([None])}
    with pytest.raises(ValueError, match="expected arrays without objects, got x"):
        write_checked(cache / "thing.npz", objects)
    content = BytesIO()
    np.savez(content, allow_pickle=True, **objects)
    cache.mkdir()
    (cache / "thing.npz").write_bytes(content.getvalue())
    (cache / "thing.npz.sha256").write_text(sha256(content.getvalue()).hexdigest())
    assert read_checked(cache / "thing.npz") is None


def test_other_content_than_documented_warns_once(cache: Path) -> None:
    with pytest.warns(
        RenderingWarning, match=r"expected thing with the digest 000.*, got [0-9a-f]{12}: "
    ):
        cached("thing", lambda: ARRAYS, expected="0" * 64)
    assert digest(cached("thing", dict, expected="0" * 64)) == digest(ARRAYS)


def test_folder_that_cannot_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("PSEUDOCAL_CACHE", str(tmp_path / "file"))
    with pytest.raises(
        InputError,
        match=r"expected a cache folder that can be written, got .*file .*PSEUDOCAL_CACHE",
    ):
        get(Builder())


def test_digest_sees_name_type_shape_and_values() -> None:
    base = np.arange(6, dtype=np.uint8)
    variants: list[dict[str, np.ndarray]] = [
        {"a": base},
        {"b": base},
        {"a": base.astype(np.int8)},
        {"a": base.reshape(2, 3)},
        {"a": base + 1},
    ]
    assert len({digest(each) for each in variants}) == len(variants)
