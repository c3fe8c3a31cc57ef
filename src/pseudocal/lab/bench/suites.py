"""The built-in suites: plain lists of tasks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import permutations
from typing import Any

from pseudocal.arrays import InputError
from pseudocal.calibrators import CALIBRATORS
from pseudocal.lab.bench import segmentation_tasks
from pseudocal.lab.bench.calibrators import ABLATION, COMPARED, ESTIMATORS, SWEEP, sees_labels
from pseudocal.lab.bench.task import Scenario, Suite, Task
from pseudocal.lab.segmentation.comparison import SEGMENTATION_CALIBRATORS
from pseudocal.lab.settings import preset_for

# Every calibrator of the library, after its variants: as released, and without a penalty.
LISTED = tuple(
    name
    for each in CALIBRATORS
    for name in (f"{each}-released", f"{each}-likelihood", each)
    if name in COMPARED and name != "tempscal-released"  # which differs in the fifth digit
)
# This package's estimators stand before the oracles.
ALL = (
    *(name for name in LISTED if not sees_labels(name)),
    *(name for name in ESTIMATORS if name not in LISTED),
    *(name for name in LISTED if sees_labels(name)),
)
SOURCE_FREE = tuple(
    name
    for name in ALL
    if COMPARED[name].estimator or not CALIBRATORS[COMPARED[name].calibrator].source_data
)
EMOJI = ("noto", "twemoji", "openmoji", "fluent")
OFFICE_HOME = ("Art", "Clipart", "Product", "RealWorld")
DOMAINNET = (
    *(("clipart", "sketch"), ("painting", "clipart"), ("painting", "real"), ("real", "clipart")),
    *(("real", "painting"), ("real", "sketch"), ("sketch", "painting")),
)
OFFICE_31 = (("amazon", "dslr"), ("amazon", "webcam"), ("dslr", "amazon"), ("webcam", "amazon"))
SIX = ("atdoc", "bnm", "mcc", "cdan", "safn", "mcd")  # the paper's closed-set methods
# The outer product of 256 features and 52 classes has 13,312 columns: too wide for seconds of CPU.
FROZEN = (("width", 256),)
SMALL: dict[str, tuple[tuple[str, Any], ...]] = {"cdan": (("randomised", 1024),)}


def resnet_settings(depth: int) -> tuple[tuple[str, Any], ...]:
    """Return the settings of the paper's network, fine-tuned from its ImageNet weights."""
    weights = f"microsoft/resnet-{depth}"
    return (
        ("backbone", f"resnet{depth}"),
        ("weights", weights),
        ("frozen", False),
        ("iterations", 10_000),
    )


@dataclass(frozen=True)
class SuitePlan:
    """How a suite's tasks are made: pairs of domains times methods times seeds."""

    about: str
    data: str
    pairs: tuple[tuple[str, str], ...]
    methods: tuple[str, ...]
    scenario: Scenario = "closed-set"
    calibrators: tuple[str, ...] = ALL
    settings: tuple[tuple[str, Any], ...] = ()
    # three pairs, two methods
    quick: tuple[tuple[tuple[str, str], ...], tuple[str, ...]] | None = None
    parts: tuple[SuitePlan, ...] = ()  # whose tasks come after its own, with its calibrators

    def suite(
        self,
        name: str,
        *,
        seeds: int | None = None,
        repeats: int | None = None,
        quick: bool = False,
        **changes: Any,
    ) -> Suite:
        """Make the suite with seeds 0 to `seeds` - 1; `changes` are settings of all tasks."""
        tasks = [
            task.of_seed(seed)
            for seed in range(seeds or 1)
            for task in self.tasks(quick=quick, **changes)
        ]
        calibrators = self.calibrators
        if calibrators in (ALL, SOURCE_FREE):
            calibrators = (*calibrators, *_of_plugins(self.scenario))
        name = f"{name}-quick" if quick else name
        return Suite(name, tuple(tasks), calibrators, self.about, repeats or 1)

    def tasks(self, *, quick: bool = False, **changes: Any) -> list[Task]:
        """Make the tasks of seed 0."""
        pairs = self.pairs
        methods = self.methods
        if quick:
            pairs, methods = self.quick or (pairs[:3], methods[:2])
        settings = {**dict(self.settings), **changes}
        small = SMALL if self.settings == FROZEN else {}
        own = [
            Task(
                self.data,
                *pair,
                self.scenario,
                method,
                **{
                    "options": small.get(method, ()),
                    "preset": preset_for(method, self.data),
                    **settings,
                },
            )
            for method in methods
            for pair in pairs
        ]
        others = [task for part in self.parts for task in part.tasks(quick=quick, **changes)]
        return [*own, *others][: 6 if quick else None]


def _of_plugins(scenario: Scenario) -> list[str]:
    """List the calibrators of plugins that a scenario has the data for."""
    added = [name for name in CALIBRATORS if name not in COMPARED]
    if scenario == "source-free":
        return [name for name in added if not CALIBRATORS[name].source_data]
    return added


TRAINED = (("backbone", "digits"), ("width", 256), ("iterations", 600))
SEGMENTERS: dict[str, tuple[tuple[str, Any], ...]] = {  # by data set
    "scenes": (
        *(("runner", "segmentation"), ("backbone", "unet"), ("iterations", 250)),
        ("options", tuple(segmentation_tasks.OPTIONS["scenes"].items())),
    ),
    "street-scenes": (
        *(("runner", "segmentation"), ("backbone", "deeplab"), ("iterations", 100_000)),
        ("options", tuple(segmentation_tasks.OPTIONS["street-scenes"].items())),
    ),
}
QUICK_EMOJI = (
    (("noto", "openmoji"), ("twemoji", "openmoji"), ("openmoji", "noto")),
    ("source-only", "mcc"),
)

PLANS: dict[str, SuitePlan] = {
    "digits": SuitePlan(
        "three kinds of digits, a small network trained end to end",
        "digits",
        tuple(permutations(("mnist", "optdigits", "fonts"), 2)),
        ("source-only", "mcc", "bnm"),
        settings=TRAINED,
    ),
    "emoji": SuitePlan(
        "four vendors' emoji, heads on a frozen EfficientNet-Lite0, closed set",
        "emoji",
        tuple(permutations(EMOJI, 2)),
        ("source-only", *SIX),
        settings=FROZEN,
        quick=QUICK_EMOJI,
    ),
    "emoji-groups": SuitePlan(
        "the emoji with 8 classes, nearly as accurate as the paper's models, closed set",
        "emoji-groups",
        tuple(permutations(EMOJI, 2)),
        ("source-only", *SIX),
        settings=FROZEN,
        quick=QUICK_EMOJI,
    ),
    "emoji-partial": SuitePlan(
        "the target has half of the classes",
        "emoji",
        tuple(permutations(EMOJI, 2)),
        ("atdoc", "mcc", "pada"),
        "partial-set",
        settings=FROZEN,
    ),
    "emoji-source-free": SuitePlan(
        "SHOT sees a source model, DINE its outputs alone",
        "emoji",
        tuple(permutations(EMOJI, 2)),
        ("shot", "dine"),
        "source-free",
        SOURCE_FREE,
        settings=FROZEN,
    ),
    "emoji-ablation": SuitePlan(
        "other mixup variants instead of mixup",
        "emoji",
        tuple(permutations(EMOJI, 2)),
        ("mcc",),
        calibrators=("none", *ABLATION, "pseudocal", "oracle"),
        settings=FROZEN,
    ),
    "emoji-lambda": SuitePlan(
        "the sweep over lambda, with hard and soft labels",
        "emoji",
        tuple(permutations(EMOJI, 2)),
        ("source-only", "mcc", "bnm"),
        calibrators=("none", *SWEEP, "oracle"),
        settings=FROZEN,
    ),
    "scenes": SuitePlan(
        "segmentation: a small U-Net trained on one vendor's scenes, calibrated on another's",
        "scenes",
        tuple(permutations(EMOJI, 2)),  # the first three, the quick suite, share their segmenters
        ("source-only",),
        calibrators=SEGMENTATION_CALIBRATORS,
        settings=SEGMENTERS["scenes"],
    ),
    "office31": SuitePlan(
        "the paper's Office-31", "office-31", OFFICE_31, SIX, settings=resnet_settings(50)
    ),
    "office-home": SuitePlan(
        "the paper's Office-Home",
        "office-home",
        tuple(permutations(OFFICE_HOME, 2)),
        SIX,
        settings=resnet_settings(50),
    ),
    "office-home-partial": SuitePlan(
        "the paper's Office-Home, 25 classes in the target",
        "office-home",
        tuple(permutations(OFFICE_HOME, 2)),
        ("atdoc", "mcc", "pada"),
        "partial-set",
        settings=resnet_settings(50),
    ),
    "visda": SuitePlan(
        "the paper's VisDA, synthetic to real",
        "visda-2017",
        (("train", "validation"),),
        SIX,
        settings=resnet_settings(101),
    ),
    "domainnet126": SuitePlan(
        "the paper's DomainNet-126", "domainnet-126", DOMAINNET, SIX, settings=resnet_settings(34)
    ),
    "domainnet126-vit": SuitePlan(
        "the paper's ViT-B/16 on DomainNet-126, by ECE, NLL and Brier score",
        "domainnet-126",
        (("clipart", "sketch"),),
        ("mcc",),
        settings=(("backbone", "vit-b16"), ("frozen", False), ("iterations", 10_000)),
    ),
    "domainnet126-source-free": SuitePlan(
        "the paper's DomainNet-126, source-free",
        "domainnet-126",
        DOMAINNET,
        ("shot", "dine"),
        "source-free",
        SOURCE_FREE,
        settings=resnet_settings(34),
    ),
    "domainnet126-shot": SuitePlan(
        "SHOT on DomainNet-126 with the source-based rows of the paper's appendix",
        "domainnet-126",
        DOMAINNET,
        ("shot",),
        "source-free",
        settings=resnet_settings(34),
    ),
    "imagenet-sketch": SuitePlan(
        "the paper's ImageNet to ImageNet-Sketch, source-free, from the pretrained network's own "
        "classifier",
        "imagenet-sketch",
        (("imagenet", "sketch"),),
        ("shot", "dine"),
        "source-free",
        SOURCE_FREE,
        settings=(*resnet_settings(50), ("preset", "imagenet")),
    ),
    "street-scenes": SuitePlan(
        "the paper's segmentation: GTA5 and SYNTHIA to Cityscapes, DeepLab-v2 on ResNet-101",
        "street-scenes",
        (("gta5", "cityscapes"), ("synthia", "cityscapes")),
        ("source-only",),
        calibrators=SEGMENTATION_CALIBRATORS,
        settings=SEGMENTERS["street-scenes"],
    ),
}
MCD_31 = replace(PLANS["office31"], pairs=OFFICE_31[2:], methods=("mcd",))
BNM_HOME = replace(
    PLANS["office-home"], pairs=(("Clipart", "Product"), ("Product", "RealWorld")), methods=("bnm",)
)
CDAN_NET = replace(PLANS["domainnet126"], pairs=(("real", "clipart"),), methods=("cdan",))
SHOT_SKETCH = replace(PLANS["imagenet-sketch"], methods=("shot",))
DINE_NET = replace(
    PLANS["domainnet126-source-free"], pairs=(("real", "clipart"),), methods=("dine",)
)
PADA_HOME = replace(
    PLANS["office-home-partial"],
    pairs=(("Art", "Clipart"), ("RealWorld", "Art")),
    methods=("pada",),
)
PLANS |= {
    "paper-ablation": replace(
        MCD_31,
        about="the paper's ablation and correspondence rates: nine tasks of four data sets, "
        "below one root",
        calibrators=("none", *ABLATION, "pseudocal", "oracle-released", "oracle"),
        parts=(BNM_HOME, CDAN_NET, SHOT_SKETCH, DINE_NET, PADA_HOME),
    ),
    "paper-lambda": replace(
        CDAN_NET,
        about="the paper's sweep over lambda: DomainNet-126 and partial Office-Home, "
        "below one root",
        calibrators=("none", *SWEEP, "oracle-released", "oracle"),
        parts=(
            replace(DINE_NET, methods=("shot",)),
            replace(PADA_HOME, pairs=(("Art", "Clipart"),), methods=("mcc", "pada")),
        ),
    ),
}


def built_in(
    name: str,
    *,
    seeds: int | None = None,
    repeats: int | None = None,
    quick: bool = False,
    **changes: Any,
) -> Suite:
    """Make a built-in suite.

    >>> suite = built_in("emoji", seeds=3)
    >>> pairs = {task.pair for task in suite.tasks}
    >>> len(suite.tasks), len(pairs), len({task.method for task in suite.tasks})
    (252, 12, 7)
    >>> len(built_in("emoji", quick=True).tasks)
    6

    Args:
        name: a name in `PLANS`.
        seeds: the number of seeds, starting at 0; None for one.
        repeats: how often calibrators that draw random numbers are fitted; None for once.
        quick: whether to take a few pairs of domains and methods only.
        **changes: settings to change in all tasks, such as `backbone` and `weights`.

    """
    if name not in PLANS:
        raise InputError(f"expected a suite among {', '.join(PLANS)}, or a TOML file, got {name!r}")
    return PLANS[name].suite(name, seeds=seeds, repeats=repeats, quick=quick, **changes)
