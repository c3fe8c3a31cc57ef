"""Segmentation networks.

Public checkpoints load, training learns, a killed training ends where a whole one does.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
import torch
from PIL import Image

from pseudocal import InputError
from pseudocal.lab.data import Scenes, streets
from pseudocal.lab.segmentation import (
    DeepLab,
    SegmenterRun,
    build_segmenter,
    load_deeplab,
    load_segmenter,
    train_segmenter,
)
from pseudocal.lab.segmentation.comparison import (
    SEGMENTATION_CALIBRATORS,
    compare_ensemble,
    compare_on_scenes,
)
from pseudocal.predictors import as_predictor

SHALLOW = (1, 1, 1, 1)

RGB_MEAN = torch.tensor([0.485, 0.456, 0.406])[:, None, None]


def published(classes: int, heads: tuple[str, ...], prefix: str = "") -> dict[str, torch.Tensor]:
    """Tensors of the names and shapes that AdaptSegNet's and ADVENT's checkpoints have, of a shallow network."""
    rng = torch.Generator().manual_seed(0)
    tensors: dict[str, tuple[int, ...]] = {"conv1.weight": (64, 3, 7, 7)}
    norms = {"bn1": 64}
    for number, (before, width) in enumerate(
        [(64, 64), (256, 128), (512, 256), (1024, 512)], start=1
    ):
        block = f"layer{number}.0."
        shapes = {
            "conv1": (width, before, 1, 1),
            "conv2": (width, width, 3, 3),
            "conv3": (4 * width, width, 1, 1),
        }
        tensors |= {f"{block}{name}.weight": shape for name, shape in shapes.items()}
        tensors[f"{block}downsample.0.weight"] = (4 * width, before, 1, 1)
        norms |= {
            f"{block}bn1": width,
            f"{block}bn2": width,
            f"{block}bn3": 4 * width,
            f"{block}downsample.1": 4 * width,
        }
    for name, width in norms.items():
        tensors |= {
            f"{name}.{part}": (width,) for part in ("weight", "bias", "running_mean", "running_var")
        }
    for head in heads:
        width = 1024 if head == "layer5" and len(heads) > 1 else 2048
        for k in range(4):
            tensors |= {
                f"{head}.conv2d_list.{k}.weight": (classes, width, 3, 3),
                f"{head}.conv2d_list.{k}.bias": (classes,),
            }
    return {
        prefix + name: torch.rand(shape, generator=rng) * 0.05 for name, shape in tensors.items()
    }


@pytest.mark.parametrize(
    ("heads", "prefix"),
    [
        (("layer5", "layer6"), ""),
        (("layer5",), ""),
        (("layer6",), "module."),
        (("layer5",), "Scale."),
    ],
)
def test_public_checkpoints_load(heads, prefix, tmp_path):
    tensors = published(5, heads, prefix)
    torch.save(tensors, tmp_path / "deeplab.pth")
    network = load_deeplab(tmp_path / "deeplab.pth", depths=SHALLOW)
    last = tensors[f"{prefix}{heads[-1]}.conv2d_list.3.weight"]
    torch.testing.assert_close(network.layer6.conv2d_list[3].weight.data, last)
    assert network(torch.zeros(1, 3, 33, 41)).shape == (1, 5, 5, 6)
    assert not network.training


def test_a_new_head_above_the_weights_of_a_resnet(tmp_path):
    tensors = published(5, ())
    torch.save(tensors | {"fc.weight": torch.zeros(1000, 2048)}, tmp_path / "resnet.pth")
    network: Any = build_segmenter(
        "deeplab", 3, weights=str(tmp_path / "resnet.pth"), depths=SHALLOW
    )
    torch.testing.assert_close(
        network.layer1[0].conv1.weight.data, tensors["layer1.0.conv1.weight"]
    )
    images = torch.rand(2, 3, 20, 20) * 255
    theirs = (images / 255 - RGB_MEAN) / torch.tensor([0.229, 0.224, 0.225])[
        :, None, None
    ]  # torchvision's input
    ours = images.flip(1) - RGB_MEAN.flip(0) * 255
    expected = torch.nn.functional.conv2d(theirs, tensors["conv1.weight"])
    torch.testing.assert_close(
        torch.nn.functional.conv2d(ours, network.conv1.weight), expected, rtol=1e-4, atol=1e-4
    )
    torch.testing.assert_close(
        network.mean, RGB_MEAN.flip(0) * 255, rtol=0, atol=1.0
    )  # theirs, to a grey level
    assert network(torch.zeros(1, 3, 33, 41)).shape == (1, 3, 5, 6)
    with pytest.raises(InputError, match=r"got \d+ missing: layer1\.1"):
        build_segmenter("deeplab", 3, weights=str(tmp_path / "resnet.pth"))


def test_the_weights_that_adaptsegnet_starts_from_are_taken_as_they_are(tmp_path):
    tensors = published(5, ("layer5",), "Scale.")
    torch.save(tensors, tmp_path / "init.pth")
    network = build_segmenter("deeplab", 3, weights=str(tmp_path / "init.pth"), depths=SHALLOW)
    torch.testing.assert_close(network.conv1.weight.data, tensors["Scale.conv1.weight"])


def test_only_two_branches_count_if_asked():
    tensors = published(3, ("layer6",))
    x = torch.rand(1, 3, 33, 33) * 255
    outputs = {}
    for change in (False, True):
        if change:
            tensors |= {
                name: t + 1
                for name, t in tensors.items()
                if name.startswith(("layer6.conv2d_list.2", "layer6.conv2d_list.3"))
            }
        for branches in (2, 4):
            with torch.no_grad():
                outputs[branches, change] = load_deeplab(
                    tensors, branches=branches, depths=SHALLOW
                )(x)
    torch.testing.assert_close(outputs[2, False], outputs[2, True])
    assert not torch.allclose(outputs[4, False], outputs[4, True])
    with pytest.raises(InputError, match="expected 4 branches"):
        DeepLab(3, branches=3)


def test_the_whole_network_is_resnet_101_at_an_eighth():
    with torch.device("meta"):
        network = DeepLab(19)
    names = set(network.state_dict())
    assert {
        "layer3.22.conv3.weight",
        "layer4.2.bn3.running_var",
        "layer6.conv2d_list.3.bias",
    } <= names
    assert (
        sum(name.endswith(("conv1.weight", "conv2.weight", "conv3.weight")) for name in names)
        == 100
    )
    assert [network.layer3[5].conv2.dilation, network.layer4[1].conv2.dilation] == [(2, 2), (4, 4)]
    assert network(torch.empty(1, 3, 65, 129, device="meta")).shape == (1, 19, 9, 17)
    assert not any(p.requires_grad for name, p in network.named_parameters() if ".bn" in name)


def test_other_files_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"layer5 or layer6.conv2d_list"):
        load_deeplab({"conv1.weight": torch.zeros(1)})
    tensors = published(3, ("layer6",))
    del tensors["layer2.0.conv1.weight"]
    with pytest.raises(InputError, match=r"1 missing and 0 unknown: layer2.0.conv1.weight"):
        load_deeplab(tensors, depths=SHALLOW)
    tensors = published(3, ("layer6",)) | {
        "layer6.conv2d_list.0.weight": torch.zeros(3, 1024, 3, 3)
    }
    with pytest.raises(
        InputError,
        match=r"layer6.conv2d_list.0.weight of shape \(3, 2048, .* got \(3, 1024, 3, 3\)$",
    ):
        load_deeplab(tensors, depths=SHALLOW)
    torch.save({"state_dict": object}, tmp_path / "code.pth")
    torch.save({"state_dict": {"epoch": 3}}, tmp_path / "numbers.pth")
    torch.save(published(3, ("layer6",)), tmp_path / "cut.pth")
    (tmp_path / "cut.pth").write_bytes((tmp_path / "cut.pth").read_bytes()[:5000])
    (tmp_path / "junk.pth").write_text("junk")
    (tmp_path / "empty.pth").touch()
    for name in ("code", "numbers", "cut", "junk", "empty"):
        with pytest.raises(
            InputError, match=r"^expected a checkpoint of tensors only, .*got .*pth"
        ) as caught:
            load_deeplab(tmp_path / f"{name}.pth")
        assert "\n" not in str(caught.value)
        assert "weights_only" not in str(caught.value)
    with pytest.raises(InputError, match="no such file"):
        load_deeplab(tmp_path / "nowhere.pth")


def colours(n: int, seed: int, name: str = "colours") -> Scenes:
    """Images of two halves; the class is the brightest channel."""
    rng = np.random.default_rng(seed)
    halves = rng.integers(0, 256, size=(n, 3, 1, 2))
    image_files = halves.repeat(12, axis=2).repeat(8, axis=3).astype(np.uint8)
    masks = image_files.argmax(axis=1).astype(np.uint8)
    masks[:, 0] = 255
    return Scenes(name, image_files, masks, ("red", "green", "blue"))


SMALL = {"width": 4, "levels": 2}


def test_training_learns_and_a_second_start_returns_what_is_finished(tmp_path):
    trained = train_segmenter(
        colours(40, 0), SegmenterRun(tmp_path, iterations=60, batch=8), settings=SMALL
    )
    new = colours(20, 1)
    said = as_predictor(trained.load())(new.inputs).argmax(axis=1)
    counted = new.masks != 255
    assert (said == new.masks)[counted].mean() > 0.8
    assert (
        train_segmenter(
            colours(40, 0), SegmenterRun(tmp_path, iterations=60, batch=8), settings=SMALL
        )
        == trained
    )
    with pytest.raises(InputError, match="iterations 60"):
        train_segmenter(
            colours(40, 0), SegmenterRun(tmp_path, iterations=61, batch=8), settings=SMALL
        )
    with pytest.raises(InputError, match="a finished training"):
        load_segmenter(tmp_path / "nowhere")


def test_settings_out_of_range_are_named(tmp_path):
    for name in ("iterations", "checkpoint_every", "batch"):
        with pytest.raises(InputError, match=f"expected {name} of at least 1, got 0"):
            SegmenterRun(tmp_path, **cast(Any, {name: 0}))
    with pytest.raises(InputError, match=r"expected a batch of at most the 8 scenes of .*, got 9"):
        train_segmenter(colours(8, 0), SegmenterRun(tmp_path, batch=9))


class Lazy:
    """Rows that someone else decodes."""

    def __init__(self, rows):
        self.rows = rows
        self.shape = rows.shape

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, rows):
        return self.rows[rows]


def lazy(n: int, seed: int) -> Scenes:
    made = colours(n, seed)
    return replace(made, inputs=Lazy(made.inputs), masks=Lazy(made.masks))


@pytest.mark.parametrize("make", [colours, lazy])
def test_a_model_of_other_data_is_not_returned(make, tmp_path):
    trained = train_segmenter(
        make(8, 0), SegmenterRun(tmp_path, iterations=1, batch=8), settings=SMALL
    )
    other = replace(make(8, 0), masks=make(8, 1).masks)
    for source in (make(8, 1), other, make(8, 0)[::-1], make(9, 0)):
        with pytest.raises(
            InputError, match=r"expected the settings that .* \(source .*, got source"
        ):
            train_segmenter(source, SegmenterRun(tmp_path, iterations=1, batch=8), settings=SMALL)
    assert (
        train_segmenter(make(8, 0), SegmenterRun(tmp_path, iterations=1, batch=8), settings=SMALL)
        == trained
    )


def test_a_model_of_other_files_is_not_returned(tmp_path):
    for root, seed in (("a", 0), ("b", 1)):
        rng = np.random.default_rng(seed)
        for i in range(4):
            for kind, array in (
                ("images", rng.integers(256, size=(8, 16, 3))),
                ("labels", rng.integers(9, size=(8, 16))),
            ):
                (tmp_path / root / kind).mkdir(parents=True, exist_ok=True)
                Image.fromarray(array.astype(np.uint8)).save(tmp_path / root / kind / f"{i}.png")
    small: dict[str, Any] = {
        "run": SegmenterRun(tmp_path / "out", iterations=1, batch=2),
        "settings": SMALL,
    }
    trained = train_segmenter(streets("gta5", tmp_path / "a", size=(8, 16)), **small)
    for other in (
        streets("gta5", tmp_path / "a", size=(16, 32)),
        streets("gta5", tmp_path / "b", size=(8, 16)),
        streets("gta5", tmp_path / "a", size=(8, 16), classes=16),
    ):
        with pytest.raises(InputError, match="expected the settings that"):
            train_segmenter(other, **small)
    shutil.copytree(tmp_path / "a", tmp_path / "moved")
    assert train_segmenter(streets("gta5", tmp_path / "moved", size=(8, 16)), **small) == trained


def test_a_killed_training_ends_where_a_whole_one_does(tmp_path):
    whole = train_segmenter(
        colours(20, 0),
        SegmenterRun(tmp_path / "whole", iterations=12, checkpoint_every=5, batch=8),
        settings=SMALL,
    ).load()

    class KilledError(Exception):
        pass

    def kill(progress):
        if progress.done == 8:
            raise KilledError

    with pytest.raises(KilledError):
        train_segmenter(
            colours(20, 0),
            SegmenterRun(
                tmp_path / "cut", iterations=12, checkpoint_every=5, progress=kill, batch=8
            ),
            settings=SMALL,
        )
    cut = train_segmenter(
        colours(20, 0),
        SegmenterRun(tmp_path / "cut", iterations=12, checkpoint_every=5, batch=8),
        settings=SMALL,
    ).load()
    for name, tensor in whole.state_dict().items():
        assert torch.equal(tensor, cut.state_dict()[name]), name


def test_a_segformer_trains_from_a_folder_and_comes_back_without_it(tmp_path):
    tiny = {
        "depths": [1] * 4,
        "hidden_sizes": [4, 8, 8, 8],
        "decoder_hidden_size": 8,
        "num_attention_heads": [1] * 4,
    }
    first: Any = build_segmenter("segformer", 5, config=tiny)
    first.backbone.net.save_pretrained(tmp_path / "hub")
    settings = {"weights": str(tmp_path / "hub")}
    large = replace(
        colours(8, 0),
        inputs=np.zeros((8, 3, 64, 64), np.uint8),
        masks=np.zeros((8, 64, 64), np.uint8),
    )
    run = SegmenterRun(tmp_path / "run", iterations=2, batch=4)
    trained = train_segmenter(large, run, network="segformer", settings=settings)
    (tmp_path / "hub" / "config.json").unlink()
    assert trained.load()(torch.zeros(1, 3, 64, 96)).shape == (1, 3, 16, 24)
    with pytest.raises(InputError, match="expected a network among unet, segformer, deeplab"):
        build_segmenter("vgg", 3)


def test_the_table_compares_every_method(tmp_path):
    members = [
        train_segmenter(
            colours(40, 0),
            SegmenterRun(tmp_path / str(seed), seed=seed, iterations=40, batch=8),
            settings=SMALL,
        ).load()
        for seed in (0, 1)
    ]
    cells = {
        c.method: c
        for c in [
            *compare_on_scenes(members[0], colours(20, 2), colours(20, 3)),
            compare_ensemble(members, colours(20, 3)),
        ]
    }
    assert set(cells) == set(SEGMENTATION_CALIBRATORS)
    best = min(cell.scores["nll"] for name, cell in cells.items() if name != "ensemble")
    assert cells["oracle"].scores["nll"] == pytest.approx(best, abs=1e-6)
    assert cells["none"].scores["accuracy"] == cells["pseudocal"].scores["accuracy"]
