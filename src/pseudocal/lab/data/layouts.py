"""How the benchmarks are laid out on disk: spellings of domains, names of lists, folders, classes.

`{d}` stands for a spelling of the domain. A tuple of two list names means that the domain is split
into two lists.
"""

from __future__ import annotations

from dataclasses import dataclass

from pseudocal.arrays import InputError

Patterns = tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Benchmark:
    """One benchmark as people have it on disk."""

    name: str
    classes: int
    domains: dict[str, tuple[str, ...]]  # name -> spellings
    default: tuple[str, ...]  # the domains that everyone has
    lists: Patterns
    published: tuple[str, ...] = ()  # folders of the lists in the repositories with them
    folders: tuple[str, ...] = ("{d}",)
    partial_lists: Patterns = ()
    partial: tuple[str, ...] = ()  # the classes of the partial set
    names: tuple[str, ...] = ()  # where the order of the classes is the same everywhere

    def spelled(self, name: str) -> str:
        """Our name of a domain, from any of its spellings."""
        for domain, spellings in self.domains.items():
            if name == domain or name in spellings:
                return domain
        raise InputError(
            f"expected a domain of {self.name} ({', '.join(self.domains)}), got {name!r}"
        )

    def shape(self, domain: str | None = None) -> str:
        """The layouts that are understood, for an error message."""
        spellings = self.domains[domain] if domain else ("<domain>",)
        names = [" with ".join(pattern) for pattern in self.lists] + [
            f"{each}/<class>/*.jpg" for each in self.folders
        ]
        spelt = f"; spelt {' or '.join(spellings)}" if len(spellings) > 1 else ""
        return "one of " + ", ".join(name.format(d=spellings[0]) for name in names) + spelt


LIST_PATTERNS: Patterns = (("{d}_list.txt",), ("{d}.txt",), ("image_list/{d}.txt",))
SSDA_LIST = "labeled_source_images_{d}.txt"

CALTECH_CLASSES = (
    *(
        "back_pack",
        "bike",
        "calculator",
        "headphones",
        "keyboard",
        "laptop_computer",
        "monitor",
        "mouse",
        "mug",
    ),
    "projector",
)
OFFICE_HOME_25 = (
    *(
        "Alarm_Clock",
        "Backpack",
        "Batteries",
        "Bed",
        "Bike",
        "Bottle",
        "Bucket",
        "Calculator",
        "Calendar",
        "Candles",
    ),
    *(
        "Chair",
        "Clipboards",
        "Computer",
        "Couch",
        "Curtains",
        "Desk_Lamp",
        "Drill",
        "Eraser",
        "Exit_Sign",
        "Fan",
    ),
    *("File_Cabinet", "Flipflops", "Flowers", "Folder", "Fork"),
)
VISDA_CLASSES = (
    *(
        "aeroplane",
        "bicycle",
        "bus",
        "car",
        "horse",
        "knife",
        "motorcycle",
        "person",
        "plant",
        "skateboard",
    ),
    *("train", "truck"),
)

BENCHMARKS = {
    "office-31": Benchmark(
        name="office-31",
        classes=31,
        domains={"amazon": ("amazon",), "dslr": ("dslr",), "webcam": ("webcam",)},
        default=("amazon", "dslr", "webcam"),
        lists=(
            *LIST_PATTERNS,
            ("{d}_31_list.txt",),
            ("{d}/label.txt",),
            (f"txt/office/{SSDA_LIST}",),
        ),
        published=("data/office", "data"),
        folders=("{d}/images", "{d}"),
        partial_lists=(("{d}_10_list.txt",),),
        partial=CALTECH_CLASSES,
    ),
    "office-home": Benchmark(
        name="office-home",
        classes=65,
        domains={
            "Art": ("Art", "art"),
            "Clipart": ("Clipart", "clipart"),
            "Product": ("Product", "product"),
            "RealWorld": ("RealWorld", "Real World", "Real_World", "Real", "real"),
        },
        default=("Art", "Clipart", "Product", "RealWorld"),
        lists=(
            *LIST_PATTERNS,
            ("{d}_train_list.txt", "{d}_val_list.txt"),
            ("{d}/label.txt",),
            (f"txt/office_home/{SSDA_LIST}",),
        ),
        published=("data/office-home", "data"),
        partial_lists=(("{d}_25_list.txt",), ("{d}_shared.txt",)),
        partial=OFFICE_HOME_25,
    ),
    "visda-2017": Benchmark(
        name="visda-2017",
        classes=12,
        domains={"train": ("train",), "validation": ("validation",), "test": ("test",)},
        default=("train", "validation"),
        lists=LIST_PATTERNS,
        published=("data/VISDA-C", "data/visda-2017"),
        partial_lists=(("{d}6_list.txt",),),
        partial=VISDA_CLASSES[:6],
        names=VISDA_CLASSES,  # the folders of the test images are not classes
    ),
    "domainnet-126": Benchmark(
        name="domainnet-126",
        classes=126,
        domains={
            "clipart": ("clipart",),
            "painting": ("painting",),
            "real": ("real",),
            "sketch": ("sketch",),
        },
        default=("clipart", "painting", "real", "sketch"),
        lists=(*LIST_PATTERNS, (f"txt/multi/{SSDA_LIST}",)),
        published=("data/DomainNet126", "data"),
    ),
    "imagenet-sketch": Benchmark(
        name="imagenet-sketch",
        classes=1000,
        domains={
            "imagenet": ("imagenet", "imagenet-train", "train"),
            "imagenet-val": ("imagenet-val", "val"),
            "sketch": ("sketch",),
        },
        default=("sketch",),
        lists=LIST_PATTERNS,
    ),
}
PARTIAL_CLASSES = {
    name: benchmark.partial for name, benchmark in BENCHMARKS.items() if benchmark.partial
}
