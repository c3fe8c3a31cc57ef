from __future__ import annotations

import pytest

from pseudocal.arrays import InputError
from pseudocal.lab.adapt import METHODS
from pseudocal.lab.adapt.training import find_preset
from pseudocal.lab.bench import PLANS, Suite, Task, built_in
from pseudocal.lab.bench.calibrators import ABLATION, COMPARED, MixupVariant, find_compared
from pseudocal.lab.bench.published import ORIGINS, published
from pseudocal.lab.bench.suite_file import parse_suite, read_suite
from pseudocal.lab.data.layouts import BENCHMARKS
from pseudocal.lab.settings import DATA_PRESETS

TASK = {"data": "emoji", "source": "noto", "target": "fluent", "method": "mcc"}

SCENES = {"data": "scenes", "source": "noto", "target": "fluent", "method": "source-only"}


def test_every_setting_has_a_folder_of_its_own():
    tasks = [Task("emoji", "noto", "fluent"), Task("emoji", "noto", "fluent", seed=1)]
    tasks += [
        Task("emoji", "noto", "fluent", iterations=10),
        Task("emoji", "noto", "fluent", backbone="vit-b16"),
    ]
    assert len({task.folder for task in tasks}) == 4
    assert tasks[0].folder == Task("emoji", "noto", "fluent").folder


def test_seeds_of_one_group_share_their_ensemble():
    groups = [Task("emoji", "noto", "fluent", seed=seed).members() for seed in range(6)]
    assert groups[0] == groups[1] == groups[2]
    assert {task.seed for task in groups[3]} == {3, 4, 5}


def test_a_suite_survives_its_file():
    suite = built_in("emoji", seeds=2)
    assert Suite.from_dict(suite.to_dict()) == suite


@pytest.mark.parametrize("name", PLANS)
def test_built_in_suites(name):
    suite, quick, plans = (
        built_in(name),
        built_in(name, quick=True),
        (PLANS[name], *PLANS[name].parts),
    )
    assert (
        len(suite.tasks)
        == len(set(suite.tasks))
        == sum(len(plan.pairs) * len(plan.methods) for plan in plans)
    )
    assert len(quick.tasks) <= 6
    assert {"none", "oracle"} <= set(suite.calibrators)


@pytest.mark.parametrize("name", ["emoji", "emoji-groups"])
def test_the_emoji_suites_have_the_six_methods_nine_calibrators_and_the_oracle(name):
    suite = built_in(name, seeds=3, repeats=5)
    assert {task.data for task in suite.tasks} == {name}
    assert len(suite.tasks) == 12 * 7 * 3
    assert {task.seed for task in suite.tasks} == {0, 1, 2}
    assert suite.repeats == 5
    nine = {
        "none",
        "matrixscal",
        "vectorscal",
        "tempscal",
        "cpcs",
        "transcal",
        "mc-dropout",
        "ensemble",
        "pseudocal",
    }
    assert {"atdoc", "bnm", "mcc", "cdan", "safn", "mcd"} < {task.method for task in suite.tasks}
    ours = {"pseudocal-released", "agreement", "surrogate", "mean-estimate", "labels-50"}
    assert nine | ours | {"constant", "oracle"} <= set(suite.calibrators)


@pytest.mark.parametrize(
    "name", [name for name, plan in PLANS.items() if built_in(name).tasks[0].data in ORIGINS]
)
def test_the_paper_has_a_number_for_each_task_of_its_suites(name):
    suite = built_in(name)
    ours = published(suite.tasks, "ece")
    reference = "oracle-released" if "oracle-released" in suite.calibrators else "oracle"
    lacking = [
        task for task in suite.tasks for each in ("none", reference) if (each, task) not in ours
    ]
    assert not lacking
    assert all(0 < value < 1 for value in ours.values())
    assert all(0 < value < 1 for value in published(suite.tasks, "accuracy").values())


def test_published_numbers_stand_beside_the_baselines_as_released():
    suite = built_in("office-home")
    beside = {name for name, _ in published(suite.tasks, "ece")}
    assert beside <= set(suite.calibrators) | set(ABLATION)
    assert "vectorscal-released" in beside
    assert not beside & {
        "vectorscal",
        "vectorscal-likelihood",
        "matrixscal",
        "cpcs",
        "transcal",
        "oracle",
    }


def test_the_ablation_has_the_papers_tasks():
    tasks = built_in("paper-ablation").tasks
    for name in ("mocov2aug", "pseudocal-same", "pseudocal"):
        assert {task for each, task in published(tasks, "ece") if each == name} == set(tasks)
    assert len(published(tasks, "correspondence")) == len(tasks) == 9


def test_calibrators_with_settings_of_their_own():
    given = [
        "none",
        {"name": "vectorscal", "penalty": 0.1},
        {"name": "pseudocal", "lam": 0.7, "labels": "soft"},
    ]
    suite = parse_suite({"tasks": [TASK], "calibrators": given}, "mine")
    assert suite.calibrators == (
        "none",
        "vectorscal, penalty=0.1",
        "pseudocal, lam=0.7, labels=soft",
    )
    ridge, mixup_samples = (find_compared(name) for name in suite.calibrators[1:])
    assert (ridge.calibrator, dict(ridge.settings)) == ("vectorscal", {"penalty": 0.1})
    assert mixup_samples.mixup_variant == MixupVariant(lam=0.7, labels="soft")
    assert find_compared("transcal, reference=true").settings == (("reference", True),)


def test_the_table_of_calibrators_makes_no_entries():
    assert find_compared("tempscal") is COMPARED["tempscal"]
    assert "vectorscal, penalty=0.1" not in COMPARED
    with pytest.raises(KeyError):
        COMPARED["vectorscal, penalty=0.1"]
    # the name of a calibrator whose plugin is not loaded is its title
    assert find_compared("of-a-plugin").title == "of-a-plugin"


@pytest.mark.parametrize(
    ("calibrator", "message"),
    [
        (
            {"name": "vectorscal", "lam": 0.6},
            "expected settings of vectorscal among .*penalty.*, got 'lam'",
        ),
        ({"name": "oracle", "by": "ece"}, "expected settings of oracle among none, got 'by'"),
        ({"name": "cutmix", "lam": 0.6}, "expected settings of cutmix among none, got 'lam'"),
        (
            {"name": "pseudocal", "labels": "a/b"},
            "expected labels as a number, true, false or a word, got 'a/b'",
        ),
        ({"lam": 0.6}, "expected a calibrator among none, .*, got None"),
    ],
)
def test_settings_that_a_calibrator_does_not_have_are_refused(calibrator, message):
    with pytest.raises(InputError, match=message):
        parse_suite({"tasks": [TASK], "calibrators": [calibrator]}, "mine")


STREETS = {
    "data": "street-scenes",
    "source": "gta5",
    "target": "cityscapes",
    "method": "source-only",
}


def test_a_file_may_name_street_scenes():
    (task,) = parse_suite(
        {"tasks": [{**STREETS, "weights": "random", "options": {"height": 64}}]}, "mine"
    ).tasks
    assert (task.backbone, dict(task.options)["height"], dict(task.options)["batch"]) == (
        "deeplab",
        64,
        2,
    )
    assert not task.augments
    assert dict(task.training.options) == {
        "batch": 2,
        "lr": 2.5e-3,
        "height": 64,
        "backbone_scale": 0.1,
    }
    with pytest.raises(
        InputError, match="expected weights for deeplab: a state dict of a ResNet-101"
    ):
        parse_suite({"tasks": [STREETS]}, "mine")
    with pytest.raises(
        InputError, match="expected gta5 or synthia as the source and cityscapes as the target, got"
    ):
        parse_suite(
            {"tasks": [{**STREETS, "weights": "random", "source": "cityscapes", "target": "gta5"}]},
            "mine",
        )


def test_ours_has_none():
    assert published(built_in("emoji").tasks, "ece") == {}


def test_a_file_names_every_source_with_every_target_and_method(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(
        'calibrators = ["none", "pseudocal"]\nseeds = 2\n[[tasks]]\ndata = "emoji"\nsource = ["noto", "fluent"]\n'
        'target = ["fluent", "openmoji"]\nmethod = ["mcc", "bnm"]\nwidth = 64\n[tasks.options]\nweight = 0.5\n'
    )
    suite = read_suite(path)
    assert suite.name == "mine"
    assert suite.calibrators == ("none", "pseudocal")
    assert len(suite.tasks) == 3 * 2 * 2
    assert {task.width for task in suite.tasks} == {64}
    assert {task.options for task in suite.tasks} == {(("weight", 0.5),)}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            {"task": [TASK]},
            "expected a key of a suite among calibrators, seeds, .*, got 'task'",
        ),
        ({}, "expected tasks, one or more tables"),
        ({"tasks": [TASK], "seeds": 0}, "expected seeds as an integer of at least 1, got 0"),
        (
            {"tasks": [TASK], "calibrators": ["platt"]},
            "expected a calibrator among none, .*, got 'platt'",
        ),
        ({"tasks": [TASK], "calibrators": "none"}, "expected a list of names, got 'none'"),
        (
            {"tasks": [{**TASK, "epochs": 3}]},
            "expected a key of a task among data, .*, got 'epochs'",
        ),
        ({"tasks": [{**TASK, "method": "mcx"}]}, "expected a method among .*, got 'mcx'"),
        ({"tasks": [{**TASK, "preset": "best"}]}, "expected a preset of mcc among .*, got 'best'"),
        ({"tasks": [{**TASK, "options": {"wait": 1}}]}, "expected options among .*, got 'wait'"),
        ({"tasks": [{**TASK, "data": "emojis"}]}, "expected a data set among .*, got 'emojis'"),
        ({"tasks": [{**TASK, "backbone": "vgg"}]}, "expected a backbone among .*, got 'vgg'"),
        ({"tasks": [{**TASK, "iterations": "many"}]}, "expected iterations to be int, got 'many'"),
        ({"tasks": [{**TASK, "width": True}]}, "expected width to be int, got True"),
        (
            {"tasks": [{**TASK, "scenario": "open-set"}]},
            "expected a scenario among .*, got 'open-set'",
        ),
        (
            {"tasks": [{**TASK, "target": "noto"}]},
            "expected a source and a target that differ, got 'noto' twice",
        ),
        ({"tasks": [SCENES, TASK]}, "expected scenes in a suite of their own, got"),
        (
            {"tasks": [SCENES], "calibrators": ["vectorscal"]},
            "expected a calibrator among none, .*, got 'vectorscal'",
        ),
        (
            {"tasks": [{**SCENES, "method": "mcc"}]},
            "expected source-only, closed-set for segmentation, got mcc",
        ),
        (
            {"tasks": [{**SCENES, "frozen": True}]},
            "expected a key of a task of segmentation among .*, got 'frozen'",
        ),
        (
            {"tasks": [{**SCENES, "backbone": "vit-b16"}]},
            "expected a network among unet, .*, got 'vit-b16'",
        ),
        (
            {"tasks": [{**SCENES, "weights": "hub"}]},
            "expected settings of unet among width, levels, got 'weights'",
        ),
        (
            {"tasks": [{**SCENES, "options": {"weight": 1}}]},
            "expected options among batch, .*, got 'weight'",
        ),
        (
            {"tasks": [{**SCENES, "options": {"pixels_per_image": 0.5}}]},
            "expected pixels_per_image, a number above zero, got 0.5",
        ),
        (
            {"tasks": [{"data": "emoji"}]},
            "expected data, source, target and method in each task, got no source",
        ),
    ],
)
def test_mistakes_in_a_file_are_named(content, message):
    with pytest.raises(InputError, match=message):
        parse_suite(content, "mine")


def test_a_file_of_scenes_has_the_settings_of_the_built_in_suite():
    suite = parse_suite({"tasks": [{**SCENES, "source": ["noto", "twemoji"]}], "seeds": 2}, "mine")
    assert suite.calibrators == built_in("scenes").calibrators
    assert set(suite.tasks) <= set(built_in("scenes", seeds=2).tasks)
    assert len(suite.tasks) == 4


def test_an_unknown_suite_is_named():
    with pytest.raises(
        InputError, match=r"expected a suite among digits, .*, or a TOML file, got 'emojis'"
    ):
        built_in("emojis")


def test_digits_of_a_file_have_a_network_of_their_size():
    task = {"data": "digits", "source": "mnist", "target": "fonts", "method": "mcc"}
    (built,) = [
        t for t in built_in("digits").tasks if (t.pair, t.method) == ("mnist->fonts", "mcc")
    ]
    assert parse_suite({"tasks": [task]}, "mine").tasks == (built,)
    (other,) = parse_suite(
        {"tasks": [task | {"backbone": "efficientnet-lite0", "width": 64}]}, "mine"
    ).tasks
    assert (other.backbone, other.width) == ("efficientnet-lite0", 64)


@pytest.mark.parametrize(
    ("suite", "method", "options"),
    [
        ("office31", "mcd", {"weight": 10.0}),
        ("visda", "mcd", {"weight": 1.0}),
        ("office-home", "mcd", {"weight": 30.0}),
        ("domainnet126", "mcd", {"weight": 120.0}),
        ("visda", "safn", {"step": 0.3}),
        ("office-home", "safn", {}),
        ("imagenet-sketch", "shot", {"refreshes": 30}),
    ],
)
def test_presets_of_a_data_set_are_its_default(suite, method, options):
    tasks = [task for task in built_in(suite).tasks if task.method == method]
    assert tasks
    for task in tasks:
        preset = find_preset(method, task.preset)
        assert preset.options.items() >= options.items()
        assert ("step" in preset.options) == ("step" in options)


def test_every_preset_named_after_a_data_set_is_listed():
    found = {
        method: tuple(name for name in presets if name in BENCHMARKS)
        for method, presets in METHODS.items()
    }
    assert {method: names for method, names in found.items() if names} == DATA_PRESETS


def test_a_suite_file_takes_the_preset_of_its_data_set():
    table = {"data": "visda-2017", "source": "train", "target": "validation"}
    methods = {"method": ["mcd", "mcc"], "backbone": "resnet101"}
    chosen = parse_suite({"tasks": [table | methods]}, "mine")
    assert [task.preset for task in chosen.tasks] == ["visda-2017", "paper"]
    (own,) = parse_suite({"tasks": [table | {"method": "mcd", "preset": "paper"}]}, "mine").tasks
    assert own.preset == "paper"


def test_shot_from_imagenet_has_the_settings_of_its_script():
    preset = find_preset("shot", "imagenet")
    found = (preset.lr, preset.decay, preset.schedule, preset.backbone_scale, preset.batch)
    assert found == (1e-3, 5e-4, "constant", 1.0, 64)
    partial = find_preset("shot", "imagenet-partial")
    assert partial.options == {"refreshes": 30, "diversity": False, "threshold": 30}
