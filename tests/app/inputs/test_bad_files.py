"""Every bad file of data ends in one line that names the file."""

from __future__ import annotations

import io
import os
import re
import struct
import zipfile

import numpy as np
import pytest

from pseudocal import InputError
from pseudocal.app.inputs.blocks import files_at
from pseudocal.app.inputs.ground_truth import read_ground_truth
from pseudocal.app.inputs.preprocessing import Preprocessing
from pseudocal.app.inputs.sets import open_images, open_rows
from pseudocal.app.inputs.tables import read_array, read_columns, read_table
from pseudocal.app.options import names_in

pyarrow = pytest.importorskip("pyarrow")
NAMES = ["a", "b"]
NAMED = r"^[^\n]*\b[xy]\.(csv|npy|npz|parquet)\b[^\n]*$"


def npy(array):
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def header(text):
    """A NumPy file with a header of one's own."""
    body = text.encode("latin-1")
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(body)) + body + bytes(64)


def npz_with(path, *, flags=0, method=zipfile.ZIP_STORED):
    """An archive of one array, with other flags or another compression written into both of its headers."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", npy(np.zeros((4, 3))))
    content = bytearray(path.read_bytes())
    for signature, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        start = content.index(signature) + place
        content[start : start + 4] = struct.pack("<HH", flags, method)
    path.write_bytes(content)
    return path


def test_an_encrypted_npz(tmp_path):
    with pytest.raises(InputError, match=r"x.npz is encrypted"):
        read_array(npz_with(tmp_path / "x.npz", flags=1))


def test_an_unknown_compression_in_npz(tmp_path):
    with pytest.raises(InputError, match=r"x.npz is truncated or damaged: .*compression"):
        read_array(npz_with(tmp_path / "x.npz", method=97))


@pytest.mark.parametrize(
    "text",
    [
        "{'descr': '<f8', 'fortran_order': False, 'shape': (4, 3), }",  # too little data behind it
        "{'descr': '<f8', 'fortran_order': False, 'shape': (4, 'x')}\n",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (-4, 3)}\n",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (99999999999, 99999999999)}\n",
        "{'descr': '<f8', 'fortran_order': 'no', 'shape': (4, 3)}\n",
        "{'descr': '<q9', 'fortran_order': False, 'shape': (4, 3)}\n",
        "{'descr': [('a', '<f8'], 'fortran_order': False, 'shape': (4,)}\n",
        "{'shape': (4, 3)}\n",
        "[" * 200 + "\n",
        "(" * 5000 + "\n",
        "\xff\xfe{}\n",
        "",
    ],
)
def test_a_broken_npy_header(tmp_path, text):
    (tmp_path / "x.npy").write_bytes(header(text))
    with pytest.raises(InputError, match=NAMED):
        np.asarray(open_rows(str(tmp_path / "x.npy")).read(9))
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("x.npy", header(text))
    with pytest.raises(InputError, match=NAMED):
        np.asarray(open_rows(str(tmp_path / "x.npz")).read(9))


@pytest.mark.parametrize(
    "dtype", ["complex64", "complex128", "m8[s]", "M8[s]", "bool", "S3", "U2", [("a", "f4")]]
)
def test_only_real_numbers_are_inputs(tmp_path, dtype):
    from pseudocal.app import shards

    np.save(tmp_path / "x.npy", np.zeros((4, 3), dtype=dtype))
    with pytest.raises(InputError, match="expected an array with one input per row, got"):
        open_rows(str(tmp_path / "x.npy"))
    with pytest.raises(InputError, match="expected one input per row, got"):
        shards(tmp_path / "x.npy")[0].read()


@pytest.mark.parametrize("kind", ["duration", "timestamp", "bool", "string"])
def test_only_real_numbers_are_features(tmp_path, kind):
    import pyarrow.parquet

    column = {
        "duration": pyarrow.array([1, 2], pyarrow.duration("s")),
        "timestamp": pyarrow.array([1, 2], pyarrow.timestamp("s")),
        "bool": pyarrow.array([True, False]),
        "string": pyarrow.array(["1", "2"]),
    }[kind]
    pyarrow.parquet.write_table(
        pyarrow.table({"x": [1.0, 2.0], "odd": column}), tmp_path / "x.parquet"
    )
    with pytest.raises(InputError, match=r"not numeric: odd \(") as refused:
        read_table(tmp_path / "x.parquet")
    assert refused.value.setting == "features"


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_a_csv_in_utf_16(tmp_path, encoding):
    (tmp_path / "x.csv").write_bytes("a,b\n1,2\n".encode(encoding))
    with pytest.raises(InputError, match=r"x.csv is UTF-16 or not text"):
        read_table(tmp_path / "x.csv")


def test_a_csv_that_is_not_utf_8(tmp_path):
    (tmp_path / "x.csv").write_bytes(b"a,\xff\n1,2\n")
    with pytest.raises(InputError, match=r"the table .*x.csv cannot be read"):
        read_table(tmp_path / "x.csv")


def test_duplicate_columns(tmp_path):
    import pyarrow.parquet

    (tmp_path / "x.csv").write_text("a,b,a\n1,2,3\n")
    table = pyarrow.Table.from_arrays([pyarrow.array([1]), pyarrow.array([2])], names=["a", "a"])
    pyarrow.parquet.write_table(table, tmp_path / "x.parquet")
    with pytest.raises(InputError, match=r"x.csv has two columns 'a'"):
        read_columns(tmp_path / "x.csv")
    with pytest.raises(InputError, match=r"x.parquet cannot be read: Multiple matches"):
        read_columns(tmp_path / "x.parquet")


@pytest.mark.parametrize("name", ["x.csv", "x.parquet"])
@pytest.mark.parametrize(
    "content", [b"", b"PAR1", b"\0" * 100, b"PAR1" + bytes(20) + b"PAR1", b'"']
)
def test_a_table_that_is_none(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=NAMED):
        read_table(tmp_path / name)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("1_0\n0\n", "got '1_0'"),
        ("\u0661\n0\n", "got '\u0661'"),  # an Arabic digit
        ("1.0\n0\n", "got '1.0'"),
        ("99999999999999999999\n0\n", "got '99999999999999999999'"),
        ("9" * 5000 + "\n0\n", r"got '9{50}\.\.\.'"),
        ("nothing\n0\n", "got 'nothing'"),
    ],
)
def test_labels_as_text_that_are_none(tmp_path, text, problem):
    (tmp_path / "y.txt").write_text(text, encoding="utf-8")
    with pytest.raises(
        InputError, match=f"expected class numbers or names of the model's classes in .*{problem}"
    ):
        read_ground_truth(tmp_path / "y.txt", NAMES, ["cat", "dog"])
    with pytest.raises(InputError, match=f"{problem}: no class names are known; calibrate with"):
        read_ground_truth(tmp_path / "y.txt", NAMES)


@pytest.mark.parametrize(
    "labels",
    [
        np.array([2**63, 1], dtype=np.uint64),
        np.array([1e300, 1.0]),
        np.array([-np.inf, 1.0]),
        np.array([np.nan, 1.0]),
        np.array([np.nan, 1.0], dtype=np.float16),
        np.array([1j, 1]),
        np.array([1, 2], dtype="m8[s]"),
        np.array([1, 2], dtype="M8[s]"),
    ],
    ids=[
        "beyond 64 bits",
        "large",
        "infinite",
        "NaN",
        "NaN in float16",
        "complex",
        "timedelta",
        "date",
    ],
)
def test_labels_that_are_no_class_numbers(tmp_path, labels):
    np.save(tmp_path / "y.npy", labels)
    with pytest.raises(InputError, match=r"expected (whole )?class numbers .* in .*y.npy, got"):
        read_ground_truth(tmp_path / "y.npy", NAMES)


@pytest.mark.parametrize("labels", [["cat", None], [1, None]])
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_labels_with_a_null(tmp_path, labels, suffix):
    import pyarrow.csv
    import pyarrow.parquet

    table = pyarrow.table({"label": labels, "file": NAMES})
    if suffix == "csv":
        pyarrow.csv.write_csv(table, tmp_path / "y.csv")
    else:
        pyarrow.parquet.write_table(table, tmp_path / "y.parquet")
    with pytest.raises(InputError, match=NAMED):
        read_ground_truth(tmp_path / f"y.{suffix}", NAMES, ["cat"])


def test_contradictory_duplicates_of_a_label(tmp_path):
    (tmp_path / "y.csv").write_text("file,label\na,1\nb,0\na,2\n")
    with pytest.raises(InputError, match=r"y.csv has two labels for a: 1 and 2"):
        read_ground_truth(tmp_path / "y.csv", NAMES)
    (tmp_path / "y.csv").write_text("file,label\na,1\nb,0\na,1\n")
    np.testing.assert_array_equal(read_ground_truth(tmp_path / "y.csv", NAMES), [1, 0])


def test_a_byte_order_mark_is_no_part_of_the_first_line(tmp_path):
    (tmp_path / "names.txt").write_text("cat\ndog\n", encoding="utf-8-sig")
    assert names_in(tmp_path / "names.txt") == ("cat", "dog")
    (tmp_path / "y.txt").write_text("dog\ncat\n", encoding="utf-8-sig")
    found = read_ground_truth(tmp_path / "y.txt", NAMES, ["cat", "dog"])
    np.testing.assert_array_equal(found, [1, 0])
    (tmp_path / "a.png").touch()
    (tmp_path / "images.txt").write_text("a.png\n", encoding="utf-8-sig")
    assert open_images(str(tmp_path / "images.txt"), Preprocessing()).paths[0].is_file()


def test_labels_that_are_truths_are_numbers(tmp_path):
    np.save(tmp_path / "y.npy", np.array([True, False]))
    np.testing.assert_array_equal(read_ground_truth(tmp_path / "y.npy", NAMES), [1, 0])


@pytest.mark.parametrize("name", ["x.npy", "x.npz", "x.csv", "x.parquet", "list.txt"])
def test_a_fifo_in_place_of_a_file(tmp_path, name):
    os.mkfifo(tmp_path / name)
    reads = [
        lambda path: open_images(str(path), Preprocessing()),
        lambda path: open_rows(str(path)),
        lambda path: read_ground_truth(path, NAMES),
        lambda path: files_at(str(path), (".npy",)),
    ]
    for read in reads:
        with pytest.raises(InputError, match=rf"expected .*, got .*{name}: a pipe or a device"):
            read(tmp_path / name)


def test_a_folder_in_place_of_a_file(tmp_path):
    (tmp_path / "y.csv").mkdir()
    with pytest.raises(InputError, match=r"expected a file of labels, got .*y.csv: a folder"):
        read_ground_truth(tmp_path / "y.csv", NAMES)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("suffix", ["npy", "npz", "parquet", "csv"])
def test_damaged_anywhere(tmp_path, suffix, seed):
    """Some bytes of a good file are changed: it is read, or refused with an `InputError`."""
    import pyarrow.parquet

    rng = np.random.default_rng(seed)
    x = rng.normal(size=(6, 3))
    path = tmp_path / f"x.{suffix}"
    table = pyarrow.table({f"c{i}": x[:, i] for i in range(3)})
    if suffix == "npy":
        np.save(path, x)
    elif suffix == "npz":
        np.savez_compressed(path, x=x)
    elif suffix == "parquet":
        pyarrow.parquet.write_table(table, path)
    else:
        pyarrow.csv.write_csv(table, path)
    good, refused = path.read_bytes(), []
    for _ in range(60):
        bad = bytearray(good[: rng.integers(1, len(good))] if rng.random() < 0.3 else good)
        for place in rng.integers(0, len(bad), rng.integers(1, 8)):
            bad[place] = rng.integers(0, 256)
        path.write_bytes(bad)
        try:
            open_rows(str(path)).read(0)
        except InputError as error:
            refused.append(str(error))
    assert refused
    assert all(re.match(NAMED, line) for line in refused)
