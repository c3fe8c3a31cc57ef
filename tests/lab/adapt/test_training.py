from __future__ import annotations

import inspect
import json
import os
import signal
import subprocess
import sys
import textwrap
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from pseudocal.arrays import InputError
from pseudocal.files import OutputError, locked
from pseudocal.lab.adapt import (
    METHODS,
    Trained,
    TrainingProgress,
    TrainingRun,
    dine,
    load_network,
    shot,
    train,
)
from pseudocal.lab.adapt.method import SCHEDULES, Moment
from pseudocal.lab.adapt.runs import _step_seed, torch_threads
from pseudocal.lab.adapt.tensors import SOURCE, TARGET, batch_numbers
from pseudocal.lab.data import Domain, Unlabelled

RUN: dict[str, Any] = {"iterations": 12, "checkpoint_every": 5}
RUN_FIELDS = {field.name for field in fields(TrainingRun)}


def small(images, out: Path, *, method: str = "mcc", preset: str = "paper", **changes) -> Trained:
    """Train a small network on batches of 16; changes are those of the run, or of `train`."""
    source, target = images
    run = TrainingRun(
        out, **{**RUN, **{name: value for name, value in changes.items() if name in RUN_FIELDS}}
    )
    others = {name: value for name, value in changes.items() if name not in RUN_FIELDS}
    known = METHODS.get(method, {}).get(preset)
    chosen = preset if known is None else replace(known, batch=16)
    return train(
        source,
        target.unlabelled(),
        run,
        method=method,
        preset=chosen,
        backbone="digits",
        width=16,
        **others,
    )


def same_weights(a: Path, b: Path) -> bool:
    one, two = load_file(a / "model.safetensors"), load_file(b / "model.safetensors")
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


class KilledError(Exception):
    pass


def kill_at(stage: str, step: int):
    def progress(p: TrainingProgress) -> None:
        if (p.stage, p.done) == (stage, step):
            raise KilledError

    return progress


@pytest.mark.parametrize("method", METHODS)
def test_every_method_goes_on_where_it_was_stopped(images, tmp_path: Path, method: str) -> None:
    preset = "official" if method in ("cdan", "mcd") else "paper"  # the ones with dropout
    whole = small(images, tmp_path / "whole", method=method, preset=preset)
    with pytest.raises(KilledError):
        small(images, tmp_path / "cut", method=method, preset=preset, progress=kill_at(method, 8))
    assert (tmp_path / "cut" / "resume.safetensors").exists()
    again = small(images, tmp_path / "cut", method=method, preset=preset)
    assert same_weights(whole.out, again.out)
    assert not (again.out / "resume.safetensors").exists()


def test_a_killed_process_ends_with_the_same_weights(images, tmp_path: Path) -> None:
    step = int(np.random.default_rng(0).integers(6, 30))  # any step will do
    np.savez(tmp_path / "data.npz", x=images[0].inputs, y=images[0].labels, t=images[1].inputs)
    script = f"""
        import os, signal, sys, numpy as np, torch
        from dataclasses import replace
        from pathlib import Path
        from pseudocal.lab.adapt import METHODS, TrainingRun, train
        from pseudocal.lab.data import Domain, Unlabelled
        torch.set_num_threads(1)
        data = np.load({str(tmp_path / "data.npz")!r})
        source = Domain("plain", data["x"], data["y"], {images[0].classes!r})
        kill = lambda p: p.done == {step} and os.kill(os.getpid(), signal.SIGKILL)
        run = TrainingRun(Path({str(tmp_path / "cut")!r}), iterations=30, checkpoint_every=5, progress=kill)
        preset = replace(METHODS["cdan"]["official"], batch=16)
        train(source, Unlabelled("flipped", data["t"]), run, method="cdan", preset=preset, backbone="digits", width=16)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == -signal.SIGKILL
    again = small(images, tmp_path / "cut", method="cdan", preset="official", iterations=30)
    whole = small(images, tmp_path / "whole", method="cdan", preset="official", iterations=30)
    assert same_weights(again.out, whole.out), f"killed at step {step}"


def test_seeds_decide_the_weights_and_nothing_outside_changes(images, tmp_path: Path) -> None:
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    one = small(images, tmp_path / "1", method="mcc")
    assert torch.equal(torch.random.get_rng_state(), before)
    torch.manual_seed(6)
    assert same_weights(one.out, small(images, tmp_path / "2", method="mcc").out)
    assert not same_weights(one.out, small(images, tmp_path / "3", method="mcc", seed=1).out)


def test_the_layout_of_images_in_memory_does_not_matter(images, tmp_path: Path) -> None:
    def loaded(domain: Domain) -> Domain:
        return replace(domain, inputs=np.array(domain.inputs, order="C"))

    def built(domain: Domain) -> Domain:
        return replace(
            domain, inputs=np.array(domain.inputs[:, 0])[:, None]
        )  # the new axis has stride 0

    assert (
        np.asarray(built(images[0]).inputs).strides != np.asarray(loaded(images[0]).inputs).strides
    )
    warm = small([loaded(domain) for domain in images], tmp_path / "warm", iterations=60)
    cold = small([built(domain) for domain in images], tmp_path / "cold", iterations=60)
    assert same_weights(warm.out, cold.out)


def test_files_of_a_run(images, tmp_path: Path) -> None:
    source, target = images
    trained = small(images, tmp_path, method="mcc", evaluate=target)
    with np.load(trained.target) as outputs:
        assert set(outputs) == {"logits", "features"}  # no labels
        assert outputs["logits"].shape == (len(target), 4)
        assert outputs["features"].shape == (len(target), 16)
        logits = outputs["logits"]
    _, held_out = source.split(0.8, seed=0)
    with np.load(trained.source_val) as outputs:
        assert np.array_equal(outputs["labels"], held_out.labels)
    with np.load(trained.source_train) as outputs:
        assert len(outputs["logits"]) == 64
    model = trained.load()
    with torch.no_grad():
        np.testing.assert_allclose(
            model(torch.from_numpy(target.inputs)).numpy(), logits, atol=1e-4
        )
    settings = json.loads((tmp_path / "run.json").read_text())
    assert settings["settings"]["seed"] == 0
    assert {"torch", "numpy", "python"} <= settings["versions"].keys()
    assert trained.curve[-1].step == 12
    assert trained.curve[-1].error == pytest.approx((logits.argmax(axis=1) != target.labels).mean())
    assert not list(tmp_path.glob(".*"))  # nothing written aside is left


def test_evaluation_changes_nothing(images, tmp_path: Path) -> None:
    with_curve = small(images, tmp_path / "1", evaluate=images[1])
    without = small(images, tmp_path / "2")
    assert with_curve.curve
    assert not without.curve
    assert same_weights(with_curve.out, without.out)


def test_a_preset_may_be_of_ones_own(images, tmp_path: Path) -> None:
    source, target = images
    own = replace(METHODS["mcc"]["paper"], width=16, batch=16)
    run = TrainingRun(tmp_path / "own", **RUN)
    trained = train(source, target.unlabelled(), run, method="mcc", preset=own, backbone="digits")
    assert same_weights(trained.out, small(images, tmp_path / "named").out)


def test_a_finished_run_is_not_repeated_and_another_is_refused(images, tmp_path: Path) -> None:
    first = small(images, tmp_path)
    assert small(images, tmp_path, progress=kill_at("mcc", 1)) == first
    with pytest.raises(
        InputError, match=r"expected the settings that .* was started with \(seed 0\), got seed 3"
    ):
        small(images, tmp_path, seed=3)


def test_a_second_training_in_a_folder_is_refused_and_leftovers_are_removed(
    images, tmp_path: Path
) -> None:
    (tmp_path / ".target.1.aside.npz").write_bytes(b"half")
    with (
        locked(tmp_path),
        pytest.raises(OutputError, match="expected an output folder that no other run writes to"),
    ):
        small(images, tmp_path)
    assert small(images, tmp_path).out == tmp_path
    assert not list(tmp_path.glob(".*"))


def test_what_a_run_left_that_was_killed_at_its_very_end_is_removed(images, tmp_path: Path) -> None:
    first = small(images, tmp_path)
    for name in ("resume.safetensors", ".result.1.aside.json"):
        (tmp_path / name).write_bytes(b"half")
    assert small(images, tmp_path) == first
    assert {path.name for path in tmp_path.iterdir()} == {
        *(f"{name}.npz" for name in ("source_train", "source_val", "target")),
        *("model.safetensors", "result.json", "run.json", "log.jsonl", "tensorboard"),
    }


def test_mistakes_are_named(images, tmp_path: Path) -> None:
    for changes, message in (
        ({"method": "magic"}, "expected a method among source-only, .*, got 'magic'"),
        ({"preset": "best"}, "expected a preset of mcc among paper, official, got 'best'"),
        (
            {"options": {"tau": 1}},
            "expected options among weight, temperature, ramp, smoothing, got 'tau'",
        ),
        ({"iterations": 0}, "expected iterations of at least 1, got 0"),
    ):
        with pytest.raises(InputError, match=message):
            small(images, tmp_path, **changes)
    with pytest.raises(InputError, match=r"expected a finished training with model.safetensors"):
        load_network(tmp_path)
    with pytest.raises(
        InputError,
        match=r"expected evaluation data with the classes of the source, bar 0, .* and 1 more, got a, b, c and 1 more",
    ):
        small(images, tmp_path, evaluate=replace(images[1], classes=("a", "b", "c", "d")))


def test_target_labels_and_source_data_have_no_way_in() -> None:
    signature = inspect.signature(train, eval_str=True)
    assert signature.parameters["target"].annotation is Unlabelled
    assert not hasattr(Unlabelled("x", np.zeros((1, 1, 2, 2), np.uint8)), "labels")
    for function in (shot, dine):
        annotations = [
            p.annotation for p in inspect.signature(function, eval_str=True).parameters.values()
        ]
        assert Domain not in annotations


def test_source_free_methods_by_themselves(images, tmp_path: Path) -> None:
    source, target = images
    run = TrainingRun(tmp_path / "source", iterations=12)
    preset = replace(METHODS["source-only"]["shot"], batch=16)
    model = train(
        source, target.unlabelled(), run, method="source-only", preset=preset, backbone="digits"
    ).load()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    run = TrainingRun(tmp_path / "shot", iterations=4, frozen=False)
    adapted = shot(model, target.unlabelled(), run, classes=source.classes).load()
    assert all(torch.equal(model.state_dict()[name], tensor) for name, tensor in before.items())
    changed = {n for n, t in adapted.state_dict().items() if not torch.equal(t, before[n])}
    assert changed
    assert not any("classifier" in name for name in changed)
    black_box = np.full((len(target), 4), 0.25)
    run = TrainingRun(tmp_path / "dine", iterations=4)
    assert dine(
        black_box, target.unlabelled(), run, classes=source.classes, backbone="digits"
    ).target.exists()
    with pytest.raises(InputError, match=r"expected probabilities of shape \(80, 4\)"):
        dine(black_box[:9], target.unlabelled(), run, classes=source.classes, backbone="digits")


def test_frozen_training_gives_a_whole_network(images, tmp_path: Path) -> None:
    rgb = [
        replace(domain, inputs=np.repeat(domain.inputs[:10], 3, axis=1), labels=domain.labels[:10])
        for domain in images
    ]
    threads: dict[str, int] = {}
    with torch_threads(2):
        trained = train(
            rgb[0],
            rgb[1].unlabelled(),
            TrainingRun(
                tmp_path / "run",
                iterations=5,
                cache=tmp_path / "cache",
                progress=lambda p: threads.update({p.stage: torch.get_num_threads()}),
            ),
            method="mcd",
            width=8,
        )
        assert torch.get_num_threads() == 2
    assert threads == {"features of plain": 2, "features of flipped": 2, "mcd": 1}
    assert len(list((tmp_path / "cache").iterdir())) == 2
    with torch.no_grad(), np.load(trained.target) as outputs:
        logits = trained.load()(torch.from_numpy(rgb[1].inputs))
        np.testing.assert_allclose(logits.numpy(), outputs["logits"], atol=1e-4)


def test_schedules_end_where_they_should() -> None:
    ends = {name: schedule(1.0) for name, schedule in SCHEDULES.items()}
    assert ends["inverse"] == pytest.approx(0.165560, abs=1e-6)
    assert ends["steep"] == pytest.approx(0.027410, abs=1e-6)
    assert ends["late"] == pytest.approx(0.101938, abs=1e-6)
    assert ends["constant"] == 1
    reversal = [Moment(t, 10_000).reversal for t in (1000, 5000, 10_000)]
    assert reversal == pytest.approx([0.462117, 0.986614, 0.999909], abs=1e-6)


def test_batches_cover_each_epoch_once() -> None:
    epoch = np.concatenate([batch_numbers(12, 4, 0, SOURCE, step) for step in (1, 2, 3)])
    assert sorted(epoch) == list(range(12))
    assert not np.array_equal(
        batch_numbers(12, 4, 0, SOURCE, 1), batch_numbers(12, 4, 0, SOURCE, 4)
    )
    assert not np.array_equal(
        batch_numbers(12, 4, 0, SOURCE, 1), batch_numbers(12, 4, 0, TARGET, 1)
    )
    assert len(batch_numbers(3, 36, 0, TARGET, 9)) == 3
    assert len({_step_seed(0, step) for step in range(1000)}) == 1000
