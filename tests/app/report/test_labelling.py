"""The labelling page in a real browser.

By keyboard, mouse and touch, narrow and wide, with hostile names.
"""

from __future__ import annotations

import csv
import json
import re
from typing import Any

import numpy as np
import pytest

from pseudocal.app import labelling
from pseudocal.app.inputs.tables import plain_cell
from pseudocal.app.label_files import NOT_A_CLASS, label_texts
from pseudocal.app.labelling import ToLabel, write_labelling_page
from pseudocal.app.report.images import image_within
from pseudocal.arrays import InputError

pytestmark = pytest.mark.filterwarnings("default")  # of the browser's driver

SIZES: dict[str, dict[str, Any]] = {
    "desktop": {"viewport": {"width": 1200, "height": 800}},
    "phone": {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True},
}
FEW = ("aeroplane", "bird", "boat", "bus", "cat", "dog", "horse")
HOSTILE = (
    "<script>document.title='owned'</script>",
    "</script><script>document.title='owned'</script><!--",
    "<img src=x onerror=document.title='owned'>",
    "=cmd()",
    "'=cmd()",
    "@sum",
    "-1+1",
    "'80s",
    'a "quoted", one',
    "two\nlines\u2028three",
    "{{ 7 * 7 }} {% raw %} ${7 * 7}",
    "&amp; ünïcödé 猫",
    "a;=1+1;.png",
    "b|\n@sum",
    "\uff1d1",
)


@pytest.fixture
def label_page(browser, tmp_path):
    """Write a page and open it.

    The second time in the same browser, which keeps what the first stored.
    """
    events: list[str] = []
    contexts = {}

    def open_page(inputs, classes, size="desktop", scheme="light", init=None, synonyms=()):
        (tmp_path / "out").mkdir(exist_ok=True)
        path = tmp_path / "out" / "label.html"
        write_labelling_page(path, inputs, classes, synonyms)
        if (size, scheme) not in contexts:
            contexts[size, scheme] = browser.new_context(**SIZES[size], color_scheme=scheme)
        tab = contexts[size, scheme].new_page()
        if init:
            tab.add_init_script(init)
        tab.on("console", lambda message: events.append(f"console: {message.text}"))
        tab.on("pageerror", lambda error: events.append(f"error: {error}"))
        tab.on("dialog", lambda dialog: events.append(f"dialog: {dialog.message}"))
        tab.on(
            "request", lambda request: events.append(request.url) if _outside(request.url) else None
        )
        tab.goto(path.as_uri())
        tab.wait_for_selector("body[data-ready]")
        assert tab.title().startswith(f"Label {len(inputs)} ")  # and not "owned"
        assert (
            tab.evaluate("document.documentElement.scrollWidth") <= SIZES[size]["viewport"]["width"]
        )
        return tab

    yield open_page
    for context in contexts.values():
        context.close()
    assert events == []


def _outside(url: str) -> bool:
    return not url.startswith(("data:", "blob:")) and not (
        url.startswith("file:") and url.endswith("label.html")
    )


@pytest.fixture
def photographs(tmp_path):
    """Twenty images of twenty colours, of different shapes."""
    from PIL import Image

    paths = [tmp_path / f"{i:02}.jpg" for i in range(20)]
    for i, path in enumerate(paths):
        Image.new("RGB", (900, 300 + 50 * i), (10 * i, 255 - 10 * i, 128)).save(path)
    return paths


def give(tab, way: str, label: str) -> None:
    """Label the input that is shown."""
    button = tab.get_by_role("button", name=label, exact=True)
    if way == "keyboard":
        tab.keyboard.press(button.get_attribute("aria-keyshortcuts"))
    elif way == "touch":
        button.tap()
    else:
        button.click()


def saved(tab, way: str = "mouse") -> list[list[str]]:
    """The rows of the file that the page saves, without its header."""
    with tab.expect_download() as download:
        tab.keyboard.press("Control+s") if way == "keyboard" else tab.locator("#save").click()
    assert download.value.suggested_filename == "labels.csv"
    with open(download.value.path(), newline="", encoding="utf-8") as file:
        header, *rows = csv.reader(file)
    assert header == ["file", "label"]
    return rows


@pytest.mark.parametrize(
    ("size", "way"),
    [("desktop", "keyboard"), ("desktop", "mouse"), ("phone", "touch"), ("phone", "keyboard")],
)
def test_twenty_images(label_page, photographs, size, way):
    inputs = [ToLabel(f"folder/{path.name}", path) for path in photographs]
    said = [FEW[i % 7] for i in range(20)]
    said[5:7] = NOT_A_CLASS
    tab = label_page(inputs, FEW, size)
    for _ in range(4):  # on a busy machine headless Chromium may lose what a page has just stored
        for i in range(10):
            assert tab.locator("#where").text_content() == f"Label 20 images: {i + 1} of 20"
            assert tab.locator("#name").text_content() == inputs[i].name
            give(tab, way, said[i])
        tab.wait_for_timeout(300)
        tab.reload()
        if tab.locator("#where").text_content() != "Label 20 images: 1 of 20":
            break
    assert tab.locator("#where").text_content() == "Label 20 images: 11 of 20"
    assert tab.locator("#count").text_content() == "10 of 20 labelled"
    tab.close()
    tab = label_page(inputs, FEW, size)  # a new tab
    assert tab.locator("#where").text_content() == "Label 20 images: 11 of 20"
    for label in said[10:12]:
        give(tab, way, label)

    for _ in range(3):
        tab.keyboard.press("ArrowLeft") if way == "keyboard" else tab.locator("#back").click()
    assert tab.locator("#where").text_content() == "Label 20 images: 10 of 20"
    assert tab.locator("[aria-pressed=true]").all_inner_texts()[0].startswith(said[9])
    said[9] = "bus"
    give(tab, way, "bus")
    assert (
        tab.locator("#where").text_content() == "Label 20 images: 13 of 20"
    )  # on where it was left
    for label in said[12:]:
        give(tab, way, label)

    assert tab.locator("#prompt").text_content() == "All 20 labelled"
    expected = [[one.name, label] for one, label in zip(inputs, said, strict=True)]
    assert saved(tab, way) == expected
    assert "Saved to your downloads as labels.csv." in tab.locator("#end-text").text_content()
    tab.locator("#review button").nth(3).click()  # one of them is changed at the end
    give(tab, way, "horse")
    expected[3][1] = "horse"
    assert saved(tab, way) == expected


@pytest.mark.parametrize("size", SIZES)
def test_an_image_is_shown_large_and_everything_fits(label_page, photographs, size):
    tab = label_page([ToLabel(path.name, path) for path in photographs], FEW, size)
    view = SIZES[size]["viewport"]
    image_file = tab.locator("#image")
    assert (
        image_file.evaluate("e => e.complete && Math.max(e.naturalWidth, e.naturalHeight)") == 640
    )
    assert image_file.bounding_box()["width"] > 0.6 * view["width"]
    assert image_file.bounding_box()["height"] > 0.3 * view["height"]
    assert tab.evaluate("document.documentElement.scrollHeight") <= view["height"]
    for button in tab.locator("button:visible").all():
        box = button.bounding_box()
        assert box["height"] >= 40  # of a finger
        assert 0 <= box["y"] < box["y"] + box["height"] <= view["height"]


def test_back_skip_and_undo(label_page):
    tab = label_page([ToLabel(f"{i}") for i in range(4)], FEW)
    where = tab.locator("#where")
    give(tab, "keyboard", "cat")
    tab.keyboard.press("Backspace")
    assert where.text_content() == "Label 4 inputs: 1 of 4"
    give(tab, "keyboard", "dog")  # instead
    tab.keyboard.press("ArrowRight")  # input 2 stays open
    give(tab, "keyboard", "bus")
    tab.keyboard.press("Control+z")
    assert where.text_content() == "Label 4 inputs: 3 of 4"
    assert tab.locator("[aria-pressed=true]").count() == 0
    tab.locator("#undo").click()
    assert where.text_content() == "Label 4 inputs: 1 of 4"
    assert tab.locator("[aria-pressed=true]").inner_text().startswith("cat")
    assert tab.locator("#undo").is_enabled()
    tab.wait_for_timeout(500)  # the browser stores labels in the background
    tab.reload()  # what was undone is not stored either
    assert tab.locator("#count").text_content() == "1 of 4 labelled"
    tab.keyboard.press("End")  # no key of this page
    for _ in range(5):
        tab.keyboard.press("ArrowRight")
    assert tab.locator("#prompt").text_content() == "3 of 4 without a label"
    assert saved(tab) == [["0", "cat"]]  # those that are open are left out
    tab.keyboard.press("ArrowLeft")
    give(tab, "keyboard", "bus")  # the last one
    assert saved(tab) == [["0", "cat"], ["3", "bus"]]


def test_a_key_that_is_held_or_a_double_click_labels_once(label_page):
    tab = label_page([ToLabel(f"{i}") for i in range(6)], FEW)
    for _ in range(3):
        tab.keyboard.down("1")
    tab.keyboard.up("1")
    assert tab.locator("#count").text_content() == "1 of 6 labelled"
    tab.get_by_role("button", name="dog", exact=True).dblclick()
    assert tab.locator("#count").text_content() == "2 of 6 labelled"


@pytest.mark.parametrize(
    ("classes", "keys"),
    [
        (("0", "1", "7"), ["0", "1", "7"]),  # a digit is the key of the class of that name
        (("-1", "1"), ["a", "b"]),  # and never that of another
        (("no", "yes"), ["1", "2"]),
    ],
)
def test_which_key_means_which_class(label_page, classes, keys):
    tab = label_page([ToLabel("a"), ToLabel("b")], classes)
    assert tab.locator("#classes kbd").all_inner_texts() == keys
    tab.keyboard.press(keys[-1])
    assert saved(tab) == [["a", {"-1": "'-1"}.get(classes[-1], classes[-1])]]


@pytest.mark.parametrize("size", SIZES)
def test_many_classes_are_searched(label_page, size):
    classes = [
        f"{size} {kind}"
        for size in ("great", "common")
        for kind in ("wildcat", "tit", "owl", "heron", "crane")
    ]
    classes += ["cat", "crane", "crane", "Bär", "- dash"]
    tab = label_page([ToLabel(f"{i}") for i in range(8)], classes, size)
    tab.keyboard.press("Enter")  # nothing was typed
    assert tab.locator("#count").text_content() == "0 of 8 labelled"
    tab.keyboard.type("cat")
    assert tab.locator("#classes button").first.inner_text() == "cat"  # rather than wildcat
    assert tab.locator("#classes button").count() == 3
    tab.keyboard.press("Enter")
    tab.keyboard.type("heron com")  # parts in any order
    tab.keyboard.press("Enter")
    tab.keyboard.type("bar")  # without its dots
    tab.keyboard.press("Enter")
    tab.keyboard.type("owl")
    tab.keyboard.press("ArrowDown")
    tab.keyboard.press("Enter")
    tab.keyboard.press("?")
    tab.keyboard.type("crane (class 12")  # of two classes of one name
    tab.keyboard.press("Enter")
    tab.keyboard.type("-")  # begins the name of a class here, so it is no key
    tab.keyboard.press("Enter")
    tab.keyboard.type("nothing of the kind")
    assert tab.locator("#hint").text_content() == "no classes"
    tab.keyboard.press("Enter")
    tab.keyboard.press("Escape")
    assert tab.get_by_label("Find the class").input_value() == ""
    tab.get_by_role("button", name="none of these", exact=True).click()
    labels = [
        "cat",
        "common heron",
        "Bär",
        "common owl",
        "cannot tell",
        "12",
        "'- dash",
        "none of these",
    ]
    assert [label for _, label in saved(tab)] == labels
    tab.keyboard.press("Backspace")
    assert tab.locator("#where").text_content() == "Label 8 inputs: 8 of 8"


def test_synonyms_are_searched_and_telling_names_are_hidden(label_page):
    classes = ["maillot", *(f"class {i}" for i in range(20))]
    synonyms = [("swimsuit", "tank suit"), *[()] * 20]
    inputs = [ToLabel("maillot/1.png"), ToLabel("maillot/2.png")]
    tab = label_page(inputs, classes, synonyms=synonyms)
    assert tab.locator("#name").text_content() == "input 1"
    assert "maillot/1" not in tab.locator("main").inner_text()
    tab.keyboard.type("swim")
    assert tab.locator("#classes button").all_inner_texts() == ["maillot"]
    tab.keyboard.press("Enter")
    assert saved(tab) == [["maillot/1.png", "maillot"]]


@pytest.mark.parametrize("more", [0, 20])
def test_hostile_names_stay_text(label_page, tmp_path, more):
    of_classes = [
        f"{name} class" for name in HOSTILE[:10]
    ]  # or the names of inputs would be hidden
    classes = [*of_classes, *(f"class {i}" for i in range(more))]
    inputs = [ToLabel(name, cells=((name, name), ("x", "1"))) for name in HOSTILE]
    inputs.append(ToLabel("not \udcff Unicode"))
    tab = label_page(inputs, classes)
    assert (
        tab.locator("#classes button").evaluate_all("all => all.map(e => e.firstChild.data)")
        == classes
    )
    for i, one in enumerate(inputs):
        assert tab.locator("#name").text_content() == one.name.replace("\udcff", "?")
        if one.cells:
            assert tab.locator("#row th, #row td").all_text_contents()[:2] == [one.name] * 2
        tab.locator("#classes button").nth(i % 10).click()
    assert tab.locator("#review .name").all_text_contents()[: len(HOSTILE)] == list(HOSTILE)
    rows = saved(tab)
    assert not [cell for row in rows for cell in row if cell.startswith(("=", "+", "-", "@"))]
    expected = [[one.name.replace("\udcff", "?"), classes[i % 10]] for i, one in enumerate(inputs)]
    assert [[plain_cell(cell) for cell in row] for row in rows] == expected
    assert tab.locator("script").count() == 2
    assert tab.locator("img[onerror]").count() == 0
    assert tab.title().startswith(f"Label {len(inputs)} ")


def test_the_policy_lets_only_this_script_run(tmp_path):
    write_labelling_page(tmp_path / "label.html", [ToLabel(name) for name in HOSTILE], HOSTILE)
    text = (tmp_path / "label.html").read_text(encoding="utf-8")
    assert text.count("<script") == text.count("</script>") == 2
    assert "<!--" not in text
    assert "\u2028" not in text
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]+)"', text)
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    data = json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1])
    assert [one["name"] for one in data["chosen"]] == list(HOSTILE)
    assert [path.name for path in tmp_path.iterdir()] == ["label.html"]  # nothing was left aside


def test_labels_belong_to_their_inputs_and_classes(label_page, photographs, monkeypatch):
    """More inputs keep the labels there are.

    Other images of the same names, or other classes, have none.
    """
    from PIL import Image

    noise = np.random.default_rng(0).integers(0, 255, size=(300, 300, 3), dtype=np.uint8)
    Image.fromarray(noise).save(photographs[0])
    tab = label_page([ToLabel("0.png", photographs[0]), ToLabel("1.png", photographs[1])], FEW)
    give(tab, "keyboard", "cat")
    monkeypatch.setattr(
        labelling, "IMAGES_ROOM", 200_000
    )  # the first image is drawn smaller from here on
    for image_files, classes, count in (
        (photographs, FEW, 1),
        (photographs[5:], FEW, 0),
        (photographs, FEW[::-1], 0),
    ):
        inputs = [ToLabel(f"{i}.png", image_file) for i, image_file in enumerate(image_files[:5])]
        assert (
            label_page(inputs, classes).locator("#count").text_content() == f"{count} of 5 labelled"
        )


def test_a_browser_that_stores_nothing_says_so(label_page):
    none = "Object.defineProperty(window, 'localStorage', { get() { throw new Error('denied'); } })"
    tab = label_page([ToLabel("a"), ToLabel("b")], FEW, init=none)
    assert tab.locator("#warning").is_visible()
    give(tab, "keyboard", "cat")
    assert saved(tab) == [["a", "cat"]]


def test_an_image_that_cannot_be_read_can_still_be_labelled(label_page, tmp_path):
    (tmp_path / "a.png").write_bytes(b"no image")
    tab = label_page([ToLabel("a.png", tmp_path / "a.png"), ToLabel("b")], FEW)
    assert tab.locator("#unreadable").is_visible()
    assert not tab.locator("#image").is_visible()
    give(tab, "keyboard", "cannot tell")
    assert not tab.locator("#unreadable").is_visible()
    assert saved(tab) == [["a.png", "cannot tell"]]


@pytest.mark.parametrize("size", SIZES)
def test_a_row_of_a_table(label_page, size):
    cells = tuple((f"column {i}", f"{i} " * 40) for i in range(40))
    tab = label_page(
        [ToLabel("row 7", cells=cells), ToLabel("row 8", cells=(("age", "39"),))],
        ("no", "yes"),
        size,
    )
    assert tab.locator("#row tr").count() == 40
    assert tab.locator("#row").evaluate("e => e.scrollHeight > e.clientHeight")  # scrolls by itself
    assert tab.locator("#name").is_visible()
    give(tab, "mouse", "yes")
    assert tab.locator("#row th").all_text_contents() == ["age"]
    assert tab.locator("#row td").all_text_contents() == ["39"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("classes", [FEW, [f"class {i}" for i in range(20)]], ids=["few", "many"])
def test_it_can_be_read_and_reached(label_page, made, photographs, classes, scheme):
    tab = label_page([ToLabel(path.name, path) for path in photographs], classes, scheme=scheme)
    tab.get_by_role("button", name=classes[0], exact=True).click()
    tab.locator("#back").click()
    texts = tab.locator(
        "button:enabled, kbd:visible, .name:visible, #where, #count, #hint:visible, label:visible"
    )
    assert texts.count() > 10
    for text in texts.all():
        colour, paper = text.evaluate(COLOURS)
        if not text.locator("xpath=ancestor-or-self::*[@disabled]").count():
            assert made.contrast(colour, paper) > 4.5, text.inner_text()
    assert tab.locator("[aria-pressed=true]").count() == 1
    assert tab.get_by_role("progressbar", name="1 of 20 labelled").is_visible()
    names = tab.locator("button:visible").evaluate_all("all => all.map(e => e.textContent.trim())")
    assert all(names)
    reached: set[str] = set()
    while "cannot tell" not in reached and len(reached) < 50:
        tab.keyboard.press("Tab")
        reached.add(tab.evaluate("document.activeElement.firstChild?.data"))
    assert tab.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    tab.keyboard.press("Enter")  # on a button it presses that
    assert saved(tab) == [[photographs[0].name, "cannot tell"]]


COLOURS = """e => {
    const colour = getComputedStyle(e).color;
    while (getComputedStyle(e).backgroundColor === "rgba(0, 0, 0, 0)") e = e.parentElement;
    return [colour, getComputedStyle(e).backgroundColor];
}"""


def test_two_hundred_images_and_a_thousand_classes(label_page, tmp_path):
    from PIL import Image

    rng = np.random.default_rng(0)
    pixels = rng.integers(
        0, 255, size=(90, 120, 3), dtype=np.uint8
    )  # more detail than photographs of this size have
    Image.fromarray(pixels).resize((960, 720), Image.Resampling.BICUBIC).save(
        tmp_path / "a.jpg", quality=95
    )
    inputs = [ToLabel(f"{i}.jpg", tmp_path / "a.jpg") for i in range(200)]
    tab = label_page(inputs, [f"class number {i}" for i in range(1000)])
    assert (tmp_path / "out" / "label.html").stat().st_size < 10_000_000
    assert tab.locator("#classes button").count() == 1000
    assert tab.locator("#image").evaluate("e => e.complete && e.naturalWidth") >= 384
    tab.keyboard.type("777")
    tab.keyboard.press("Enter")
    assert saved(tab) == [["0.jpg", "class number 777"]]


def test_an_image_takes_the_room_that_there_is(tmp_path):
    from PIL import Image

    noise = np.random.default_rng(0).integers(0, 255, size=(700, 900, 3), dtype=np.uint8)
    Image.fromarray(noise).save(tmp_path / "noise.png")
    Image.fromarray(noise[:28, :28]).save(tmp_path / "tiny.png")
    best, small = (image_within(tmp_path / "noise.png", room) for room in (10_000_000, 45_000))
    assert len(small) <= 45_000 < len(best)
    assert best.startswith("data:image/jpeg;base64,")
    assert image_within(tmp_path / "tiny.png", 45_000).startswith("data:image/png;base64,")
    assert image_within(tmp_path / "missing.png", 45_000) is None


@pytest.mark.parametrize(
    ("inputs", "classes", "message"),
    [
        ([], FEW, "needs inputs and classes"),
        ([ToLabel("a")], [], "needs inputs and classes"),
        ([ToLabel("a"), ToLabel("b"), ToLabel("a")], FEW, "'a' is to be labelled twice"),
        ([ToLabel("a")], ["b", "b", "1"], "two classes would have the label '1'"),
    ],
)
def test_what_cannot_be_labelled(tmp_path, inputs, classes, message):
    with pytest.raises(InputError, match=message):
        write_labelling_page(tmp_path / "label.html", inputs, classes)
    assert not list(tmp_path.iterdir())


def test_labels_mean_one_thing():
    assert label_texts(["cat", "cannot tell", "", "dog", "dog"]) == ["cat", "1", "2", "3", "4"]
