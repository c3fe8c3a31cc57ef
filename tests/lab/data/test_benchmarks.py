"""Every benchmark in every shape that people have it in, written small and read back."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path

import pytest
from PIL import Image

from pseudocal.arrays import InputError
from pseudocal.lab.data import PARTIAL_CLASSES, load, partial, relabel

NAMES = """
back_pack bike bike_helmet bookcase bottle calculator desk_chair desk_lamp desktop_computer file_cabinet headphones
keyboard laptop_computer letter_tray mobile_phone monitor mouse mug paper_notebook pen phone printer projector punchers
ring_binder ruler scissors speaker stapler tape_dispenser trash_can
-
Alarm_Clock Backpack Batteries Bed Bike Bottle Bucket Calculator Calendar Candles Chair Clipboards Computer Couch
Curtains Desk_Lamp Drill Eraser Exit_Sign Fan File_Cabinet Flipflops Flowers Folder Fork Glasses Hammer Helmet Kettle
Keyboard Knives Lamp_Shade Laptop Marker Monitor Mop Mouse Mug Notebook Oven Pan Paper_Clip Pen Pencil Postit_Notes
Printer Push_Pin Radio Refrigerator Ruler Scissors Screwdriver Shelf Sink Sneakers Soda Speaker Spoon TV Table
Telephone ToothBrush Toys Trash_Can Webcam
-
aeroplane bicycle bus car horse knife motorcycle person plant skateboard train truck
"""
OFFICE_31, OFFICE_HOME, VISDA = (names.split() for names in NAMES.split("-"))
DOMAINNET = [f"thing_{i:03}" for i in range(126)]
IMAGENET = [f"n{i:08}" for i in range(1000)]


def one_pixel() -> bytes:
    file = BytesIO()
    Image.new("RGB", (1, 1), (200, 100, 50)).save(file, "png")
    return file.getvalue()


PIXEL = one_pixel()


def write_images(folder: Path, classes: Sequence[str], each: int = 1) -> list[Path]:
    """`folder/<class>/0.jpg` for every class; returns the paths, class by class."""
    paths = [folder / name / f"{i}.jpg" for name in classes for i in range(each)]
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(PIXEL)
    return paths


def write_list(path: Path, images: Sequence[object], order: Sequence[str]) -> None:
    """`<image> <label>` lines, the label being the place of the image's folder in `order`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        "".join(f"{image} {order.index(Path(str(image)).parent.name)}\n" for image in images)
    )


def home_iii() -> list[str]:
    """The third order of Office-Home: a few classes first, TV at 56."""
    first = ["Drill", "Exit_Sign", "Bottle", "Glasses", "Computer"]
    rest = [name for name in OFFICE_HOME if name not in first]
    rest.remove("TV")
    return [*first, *rest[:51], "TV", *rest[51:]]


HOME_I = sorted(OFFICE_HOME, key=str.lower)
HOME_III = home_iii()
CLASSES = {
    "office-31": OFFICE_31,
    "office-home": OFFICE_HOME,
    "visda-2017": VISDA,
    "domainnet-126": DOMAINNET,
    "imagenet-sketch": IMAGENET,
}
OFFICE = ("amazon", "dslr", "webcam")
NET = ("clipart", "painting", "real", "sketch")
HOME = ("Art", "Clipart", "Product")

# data set, the images' folders, how a domain's list is called (its image paths relative to root),
# the domains' names
FOLDERS = [
    ("office-31", {name: f"{name}/images" for name in OFFICE}),
    ("office-31", {name: name for name in OFFICE}),
    *(
        ("office-home", {name: name for name in HOME} | {"RealWorld": real})
        for real in ("RealWorld", "Real World", "Real_World", "Real")
    ),
    ("office-home", {name: name.lower() for name in HOME} | {"RealWorld": "real"}),
    ("visda-2017", {"train": "train", "validation": "validation"}),
    ("domainnet-126", {name: name for name in NET}),
    ("imagenet-sketch", {"sketch": "sketch"}),
    ("imagenet-sketch", {"imagenet": "train", "imagenet-val": "val", "sketch": "sketch"}),
]
LISTS = [
    *(
        ("office-31", {name: (f"{name}/images", pattern.format(name)) for name in OFFICE})
        for pattern in (
            "{}_list.txt",
            "data/office/{}_list.txt",
            "{}_31_list.txt",
            "{}/label.txt",
            "image_list/{}.txt",
            "txt/office/labeled_source_images_{}.txt",
        )
    ),
    *(
        (
            "office-home",
            {
                ours: (real, pattern.format(real))
                for ours, real in zip((*HOME, "RealWorld"), theirs, strict=True)
            },
        )
        for pattern, theirs in (
            ("{}_list.txt", (*HOME, "RealWorld")),
            ("data/office-home/{}_list.txt", (*HOME, "RealWorld")),
            ("{}.txt", (*HOME, "Real_World")),
            ("{}.txt", (*HOME, "Real World")),
            ("image_list/{}.txt", (*HOME, "Real_World")),
            ("txt/office_home/labeled_source_images_{}.txt", (*HOME, "Real")),
            ("{}.txt", ("art", "clipart", "product", "real")),
        )
    ),
    *(
        ("visda-2017", {name: (name, pattern.format(name)) for name in ("train", "validation")})
        for pattern in (
            "{}_list.txt",
            "data/VISDA-C/{}_list.txt",
            "data/visda-2017/{}_list.txt",
            "image_list/{}.txt",
        )
    ),
    *(
        ("domainnet-126", {name: (name, pattern.format(name)) for name in NET})
        for pattern in (
            "{}_list.txt",
            "data/DomainNet126/{}_list.txt",
            "txt/multi/labeled_source_images_{}.txt",
            "data/txt/multi/labeled_source_images_{}.txt",
        )
    ),
    (
        "imagenet-sketch",
        {"imagenet": ("train", "imagenet_list.txt"), "sketch": ("sketch", "sketch_list.txt")},
    ),
    (
        "imagenet-sketch",
        {
            "imagenet": ("train", "image_list/imagenet-train.txt"),
            "imagenet-val": ("val", "image_list/imagenet-val.txt"),
            "sketch": ("sketch", "image_list/sketch.txt"),
        },
    ),
]


@pytest.mark.parametrize(("dataset", "folders"), FOLDERS)
def test_folders_are_read(tmp_path: Path, dataset: str, folders: dict[str, str]) -> None:
    for folder in folders.values():
        write_images(tmp_path / folder, CLASSES[dataset])
    domains = load(dataset, *folders, root=tmp_path)
    assert list(domains) == list(folders)
    for domain in domains.values():
        assert domain.classes == tuple(CLASSES[dataset])
        assert domain.labels.tolist() == list(range(len(CLASSES[dataset])))
    assert domain.inputs[:2].shape == (2, 3, 224, 224)


@pytest.mark.parametrize(("dataset", "files"), LISTS)
def test_lists_are_read_and_win_over_folders(
    tmp_path: Path, dataset: str, files: dict[str, tuple[str, str]]
) -> None:
    order = CLASSES[dataset][::-1]  # no folder order gives this
    for folder, file in files.values():
        base = tmp_path / ("multi" if "/multi/" in file else "")  # SSDA's paths begin below multi/
        images = write_images(base / folder, order)
        write_list(tmp_path / file, [image.relative_to(base) for image in images], order)
    if dataset == "visda-2017":  # its order is the same everywhere: another is refused
        with pytest.raises(
            InputError, match=r"got label 0 for 'truck' in .* and for 'aeroplane' in the benchmark"
        ):
            load(dataset, *files, root=tmp_path)
        return
    domains = load(dataset, *files, root=tmp_path)
    assert list(domains) == list(files)
    for domain in domains.values():
        assert domain.classes == tuple(order)
        assert domain.labels.tolist() == list(range(len(order)))
    assert domain.inputs[:2].shape == (2, 3, 224, 224)


@pytest.mark.parametrize(
    "pattern",
    ["{}_list.txt", "data/VISDA-C/{}_list.txt", "data/visda-2017/{}_list.txt", "image_list/{}.txt"],
)
def test_visda_lists_and_its_test_set_in_trunks(tmp_path: Path, pattern: str) -> None:
    for name in ("train", "validation"):
        write_list(tmp_path / pattern.format(name), write_images(tmp_path / name, VISDA), VISDA)
    trunks = write_images(tmp_path / "test", ["trunk00", "trunk01"], each=12)
    lines = [f"{path} {number % 12}\n" for number, path in enumerate(trunks)]
    (tmp_path / pattern.format("test")).write_text("".join(lines))
    domains = load("visda-2017", "train", "validation", "test", root=tmp_path)
    assert {domain.classes for domain in domains.values()} == {tuple(VISDA)}
    assert domains["test"].labels.tolist() == 2 * list(range(12))
    assert list(load("visda-2017", root=tmp_path)) == ["train", "validation"]


@pytest.mark.parametrize("order", [HOME_I, OFFICE_HOME, HOME_III], ids=["i", "ii", "iii"])
def test_office_home_in_its_three_orders(tmp_path: Path, order: list[str]) -> None:
    for name in (*HOME, "RealWorld"):
        write_list(tmp_path / f"{name}_list.txt", write_images(tmp_path / name, OFFICE_HOME), order)
    domains = load("office-home", root=tmp_path)
    assert (
        domains["Art"].classes.index("TV")
        == {0: 63, 1: 58, 2: 56}[[HOME_I, OFFICE_HOME, HOME_III].index(order)]
    )
    part = partial(domains["Art"], PARTIAL_CLASSES["office-home"])
    assert {part.classes[label] for label in part.labels} == set(OFFICE_HOME[:25])
    assert relabel(domains["Art"], OFFICE_HOME).labels.tolist() == list(range(65))


@pytest.mark.parametrize(
    ("one", "other"), [(HOME_I, OFFICE_HOME), (HOME_I, HOME_III), (OFFICE_HOME, HOME_III)]
)
def test_office_home_lists_of_two_orders_are_not_mixed(
    tmp_path: Path, one: list[str], other: list[str]
) -> None:
    write_list(tmp_path / "Art_list.txt", write_images(tmp_path / "Art", OFFICE_HOME), one)
    write_list(tmp_path / "Clipart.txt", write_images(tmp_path / "Clipart", OFFICE_HOME), other)
    with pytest.raises(
        InputError,
        match=r"expected one label order .* in .*Clipart.txt and for .* in .*Art_list.txt",
    ):
        load("office-home", "Art", "Clipart", root=tmp_path)
    assert load("office-home", "Clipart", root=tmp_path)["Clipart"].classes == tuple(other)


def test_office_home_folders_can_ignore_case(tmp_path: Path) -> None:
    write_images(tmp_path / "Art", OFFICE_HOME)
    assert (
        load("office-home", "Art", root=tmp_path, ignore_case=True)["Art"].classes.index("TV") == 63
    )
    assert load("office-home", "Art", root=tmp_path)["Art"].classes.index("TV") == 58


def test_transcal_cuts_a_domain_into_two_lists(tmp_path: Path) -> None:
    images = write_images(tmp_path / "Real World", OFFICE_HOME)
    write_list(tmp_path / "Real_World_train_list.txt", images[:40], OFFICE_HOME)
    write_list(tmp_path / "Real_World_val_list.txt", images[40:], OFFICE_HOME)
    assert len(load("office-home", "Real World", root=tmp_path)["RealWorld"]) == 65


@pytest.mark.parametrize(
    ("dataset", "source", "target", "listed"),
    [
        ("office-31", "amazon_31_list.txt", "webcam_10_list.txt", "webcam"),
        ("office-home", "Art_list.txt", "Clipart_25_list.txt", "Clipart"),
        ("office-home", "Art.txt", "Clipart_shared.txt", "Clipart"),
        ("visda-2017", "train_list.txt", "validation6_list.txt", "validation"),
    ],
)
def test_partial_lists_keep_the_whole_label_space(
    tmp_path: Path, dataset: str, source: str, target: str, listed: str
) -> None:
    classes, shared = CLASSES[dataset], PARTIAL_CLASSES[dataset]
    absent = [
        f"elsewhere/{name}/1.jpg" for name in classes
    ]  # the source's images need not be there
    write_list(tmp_path / source, absent, classes)
    write_list(tmp_path / target, write_images(tmp_path / listed, shared), classes)
    domain = load(dataset, listed, root=tmp_path, partial=True)[listed]
    assert domain.classes == tuple(classes)
    assert {classes[label] for label in domain.labels} == set(shared)


@pytest.mark.parametrize("dataset", ["office-31", "office-home", "visda-2017"])
def test_partial_set_is_cut_from_folders_where_there_is_no_partial_list(
    tmp_path: Path, dataset: str
) -> None:
    name = {"office-31": "webcam", "office-home": "Clipart", "visda-2017": "validation"}[dataset]
    write_images(tmp_path / name, CLASSES[dataset], each=2)
    domain = load(dataset, name, root=tmp_path, partial=True)[name]
    assert len(domain) == 2 * len(PARTIAL_CLASSES[dataset])
    assert domain.classes == tuple(CLASSES[dataset])


def test_partial_classes_are_those_of_the_papers() -> None:
    assert {name: len(classes) for name, classes in PARTIAL_CLASSES.items()} == {
        "office-31": 10,
        "office-home": 25,
        "visda-2017": 6,
    }
    assert [OFFICE_31.index(name) for name in PARTIAL_CLASSES["office-31"]] == [
        0,
        1,
        5,
        10,
        11,
        12,
        15,
        16,
        17,
        22,
    ]
    assert list(PARTIAL_CLASSES["office-home"]) == OFFICE_HOME[:25] == HOME_I[:25]


def test_lists_may_lie_elsewhere_with_someone_elses_prefix(tmp_path: Path) -> None:
    root, lists = tmp_path / "images", tmp_path / "repo" / "data" / "office-home"
    for name in HOME:
        images = [path.relative_to(root) for path in write_images(root / name, OFFICE_HOME)]
        write_list(
            lists / f"{name}_list.txt", [f"xxxxxx/office_home/{path}" for path in images], HOME_I
        )
    prefix = ("xxxxxx/office_home", str(root))
    assert len(load("office-home", *HOME, root=root, lists=lists, prefix=prefix)) == 3
    assert len(load("office-home", *HOME, root=root, lists=tmp_path / "repo", prefix=prefix)) == 3
    with pytest.raises(
        InputError, match=r"65 missing, the first .*xxxxxx/office_home/Art/Alarm_Clock/0.jpg"
    ):
        load("office-home", *HOME, root=root, lists=lists)


def test_list_relative_to_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = write_images(tmp_path / "data" / "office" / "amazon" / "images", OFFICE_31)
    lists = tmp_path / "lists"
    write_list(
        lists / "amazon_list.txt", [path.relative_to(tmp_path) for path in images], OFFICE_31
    )
    monkeypatch.chdir(tmp_path)
    root = tmp_path / "data" / "office"
    assert len(load("office-31", "amazon", root=root, lists=lists)["amazon"]) == 31


def test_missing_domain_is_named_with_the_layouts_and_what_is_there(tmp_path: Path) -> None:
    write_images(tmp_path / "Art", OFFICE_HOME)
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(InputError) as error:
        load("office-home", root=tmp_path)
    message = str(error.value)
    assert message.startswith(
        "expected the domain Clipart of office-home (one of Clipart_list.txt, Clipart.txt, "
    )
    assert "Clipart/<class>/*.jpg; spelt Clipart or clipart)" in message
    assert message.endswith(f"got in {tmp_path}: Art/, notes.txt")


@pytest.mark.parametrize("dataset", list(CLASSES))
def test_missing_root_is_named_with_the_layouts(tmp_path: Path, dataset: str) -> None:
    for root in (None, tmp_path / "absent"):
        with pytest.raises(
            InputError, match=rf"expected root, the folder of {dataset} \(one of .*, got {root}"
        ):
            load(dataset, root=root)
    with pytest.raises(InputError, match=f"expected the domain .* of {dataset} .* an empty folder"):
        load(dataset, root=tmp_path)
    with pytest.raises(InputError, match="expected lists, the folder of the list files"):
        load(dataset, root=tmp_path, lists=tmp_path / "absent")


def test_wrong_number_of_classes_is_refused(tmp_path: Path) -> None:
    write_images(tmp_path / "real", [f"thing_{i}" for i in range(345)])
    with pytest.raises(
        InputError, match=r"expected the 126 classes of domainnet-126.*got 345 labels up to 344"
    ):
        load("domainnet-126", "real", root=tmp_path)


def test_benchmark_list_without_class_folders_is_refused(tmp_path: Path) -> None:
    images = write_images(tmp_path, ["flat"], each=31)
    lines = [f"{path} {label}\n" for label, path in enumerate(images)]
    (tmp_path / "amazon_list.txt").write_text("".join(lines))
    with pytest.raises(InputError, match="in a folder named after its class"):
        load("office-31", "amazon", root=tmp_path)


def test_unknown_names_are_refused(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"expected a data set among digits, emoji, .*, got 'mnist'"
    ):
        load("mnist")
    with pytest.raises(InputError, match=r"call pseudocal\.lab\.data\.scenes"):
        load("scenes")
    with pytest.raises(
        InputError, match=r"expected a domain of office-home \(Art, .*\), got 'Sketch'"
    ):
        load("office-home", "Sketch", root=tmp_path)
    with pytest.raises(
        InputError, match="expected no options for emoji, which is built in, got root, crop"
    ):
        load("emoji", root=tmp_path, crop=3)
