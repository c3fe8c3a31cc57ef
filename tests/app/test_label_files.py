"""A file of labels as people write it.

What differs in form alone is taken, what is wrong is named by line.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from pseudocal import InputError
from pseudocal.app.label_files import read_label_lines
from pseudocal.calibrators import CANNOT_TELL, NONE_OF_THESE

NAMES = ["a 1.png", "b.png", "=c.png", "d.png"]
CLASSES = ["cat", "dog"]
PLAIN = "file,label\na 1.png,cat\nb.png,dog\n=c.png,cannot tell\nd.png,none of these\n"
PIXELS = "file,y,x,label\na.png,3,4,cat\n"


def read(folder: Path, text: str, classes: list[str] = CLASSES) -> dict[str, int]:
    path = folder / "labels.csv"
    path.write_bytes(text.encode())
    return {given.name: label for given, label in read_label_lines(path, NAMES, classes)}


@pytest.mark.parametrize(
    "text",
    [
        PLAIN,
        "\ufeff" + PLAIN,
        PLAIN.replace("\n", "\r\n"),
        PLAIN.replace("\n", "\r"),
        PLAIN.replace("\n", "\n\n"),
        "\n \n" + PLAIN + "\n,\n",
        PLAIN.replace(",", ";"),
        "\ufeff" + PLAIN.replace(",", ";").replace("\n", "\r\n"),
        "sep=;\r\n" + PLAIN.replace(",", ";").replace("\n", "\r\n"),
        PLAIN.replace(",", "\t"),
        '"file";"label"\n"a 1.png";"cat"\n"b.png";"dog"\n"=c.png";"cannot tell"\n"d.png";"none of these"\n',
        PLAIN.replace("=c.png", "'=c.png"),
        PLAIN.replace(",", " , ").replace("\n", " \n"),
        PLAIN.replace("file,label", "File,LABEL"),
        PLAIN.replace("cat\n", "0\n").replace("dog", "1.0"),
        PLAIN.replace("cat\n", "CAT\n").replace("cannot tell", "Cannot  tell"),
        PLAIN.replace("a 1.png", "A  1.PNG"),
        "label,note,file\ncat,,a 1.png\ndog,hm,b.png\ncannot tell,,=c.png\nnone of these,,d.png\n",
        "file,label\n" + "\n".join(reversed(PLAIN.splitlines()[1:])),
        PLAIN.replace("b.png,dog", "b.png,\nb.png\nb.png,dog"),
    ],
)
def test_the_same_labels_in_another_form(text: str, tmp_path: Path) -> None:
    assert read(tmp_path, text) == {
        "a 1.png": 0,
        "b.png": 1,
        "=c.png": CANNOT_TELL,
        "d.png": NONE_OF_THESE,
    }


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "columns file and label in .*, got an empty file"),
        ("name,label\nb.png,dog\n", "columns file and label in .*, got name,label"),
        ("b.png,dog\n", "columns file and label in .*, got b.png,dog"),
        ("file,label,Label\nb.png,dog,cat\n", "columns file and label in .*, got file,label,Label"),
        ("file,label\n", "at least one label in .*, got none"),
        ("file,label\nb.png,\n", "at least one label in .*, got none"),
        (
            "file,label\n\nx.png,dog\n",
            r"line 3: 'x.png', which is no input of the target. They are called 'a 1.png', 'b.png', '=c.png', ... \(4",
        ),
        (
            "file,label\nb.png,eel\n",
            """line 2: 'eel', which is no class of the model. The classes are 'cat', 'dog'; "cannot tell" and "none""",
        ),
        ("file,label\nb.png,2\n", "line 2: '2', which is no class"),
        ("file,label\nb.png,0.5\n", "line 2: '0.5', which is no class"),
        ("file,label\nb.png,-1\n", "line 2: '-1', which is no class"),
        (
            "file,label\nb.png,dog\nB.png,1\n",
            r"line 3: 'b.png' has two labels, '1' here and 'dog' in line 2 \(keep one of them\)",
        ),
        (
            "file,label\nb.png,dog\nb.png,cat\n",
            r"cannot use .*labels.csv: line 3: 'b.png' has two labels, 'cat' here and 'dog' in line 2",
        ),
        ("label,file\ndog\n", "line 2: '', which is no input"),
        (
            'file,label\nb.png,dog\n"d.png,cat\n',
            r"labels.csv: unexpected end of data \(a stray quotation mark\?\)",
        ),
    ],
)
def test_what_is_wrong_is_named(text: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=why):
        read(tmp_path, text)


def test_a_file_of_another_program_is_refused_in_plain_words(tmp_path: Path) -> None:
    path = tmp_path / "labels.csv"
    for content in (
        PLAIN.encode("utf-16"),
        PLAIN.replace("cat", "caté").encode("latin-1"),
        b"PK\x03\x04\xff",
    ):
        path.write_bytes(content)
        with pytest.raises(InputError, match=r'in UTF-8, got .*labels.csv: save it as "CSV UTF-8"'):
            read_label_lines(path, NAMES, CLASSES)


def test_names_that_differ_in_case_alone_are_not_confused(tmp_path: Path) -> None:
    text = "file,label\nb.png,Dog\nd.png,dog\n"
    assert read(tmp_path, text, ["dog", "Dog"]) == {"b.png": 1, "d.png": 0}
    with pytest.raises(InputError, match="line 2: 'DOG', which is no class"):
        read(tmp_path, "file,label\nb.png,DOG\n", ["dog", "Dog"])
    assert read(tmp_path, "file,label\nb.png,cannot tell\n", ["Cannot tell", "dog"]) == {
        "b.png": CANNOT_TELL
    }
    assert read(tmp_path, "file,label\nb.png,Cannot tell\n", ["Cannot tell", "dog"]) == {"b.png": 0}


@pytest.mark.parametrize(
    "text",
    [
        PIXELS,
        PIXELS.replace(",", ";"),
        "label,X,Y ,file\ncat, 4,03,a.png \n",
        PIXELS.replace("a.png", " a.png"),
    ],
)
def test_pixels_too(text: str, tmp_path: Path) -> None:
    path = tmp_path / "labels.csv"
    path.write_text(text)
    ((given, label),) = read_label_lines(
        path, ["a.png (y 3, x 4)", "a.png (y 4, x 3)"], CLASSES, pixels=True
    )
    assert (given.name, label) == ("a.png (y 3, x 4)", 0)
