from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from pseudocal.app.models.state_dicts import ARCHITECTURES
from pseudocal.arrays import InputError
from pseudocal.lab.adapt import BACKBONES, Choice, Network, TrainingRun, build_backbone, train
from pseudocal.lab.adapt.backbones import cached_features, compute_features
from pseudocal.lab.adapt.networks import (
    HEADS,
    Discriminator,
    NormKeepingDropout,
    QuickDropout,
    build_head,
)
from pseudocal.lab.adapt.weights import about_weights, paper_file, pretrained_classifier
from pseudocal.lab.data import Domain, Unlabelled


@pytest.mark.parametrize("kind", HEADS)
def test_heads_have_the_shapes_they_claim(kind: str) -> None:
    head = build_head(kind, 12, 6, 5).eval()
    x = torch.randn(3, 12)
    assert head(x).shape == (3, 5)
    assert head.bottleneck(x).shape == (3, head.width)
    assert (head.second_classifier is not None) == ("pair" in kind)


def test_weight_norm_starts_with_lengths_of_the_directions() -> None:
    classifier: Any = build_head("weightnorm", 12, 6, 5).classifier
    length, direction = (
        classifier.parametrizations.weight.original0,
        classifier.parametrizations.weight.original1,
    )
    torch.testing.assert_close(length[:, 0], direction.norm(dim=1))
    assert (classifier.bias == 0).all()


def test_the_dropout_of_afn_keeps_the_squared_norm() -> None:
    torch.manual_seed(0)
    x = torch.ones(1, 100_000)
    kept = NormKeepingDropout(0.5)(x)
    assert kept.square().sum().item() == pytest.approx(x.square().sum().item(), rel=0.02)
    assert torch.equal(NormKeepingDropout(0.5).eval()(x), x)


def test_discriminators_are_shallow_or_deep() -> None:
    assert len(Discriminator(4, width=3).layers) == 2
    assert len(Discriminator(4, width=3, deep=True).layers) == 3
    assert Discriminator(4, width=3, deep=True)(torch.randn(2, 4)).shape == (2,)


def test_unknown_names_are_answered_with_the_known_ones() -> None:
    with pytest.raises(InputError, match=r"expected a backbone among digits, .*, got 'alexnet'"):
        build_backbone("alexnet")
    with pytest.raises(InputError, match=r"expected a head among linear, .*, got 'cubic'"):
        build_head("cubic", 1, 1, 2)


def test_bytes_and_floats_give_the_same_features() -> None:
    backbone = build_backbone("digits").eval()
    images = torch.randint(0, 256, (3, 1, 16, 16), dtype=torch.uint8)
    assert torch.equal(backbone(images), backbone(images.float()))


def test_efficientnet_knows_imagenet() -> None:
    backbone: Any = build_backbone("efficientnet-lite0").eval()
    assert backbone.pretrained
    images = torch.randint(0, 256, (2, 3, 96, 96), dtype=torch.uint8)
    with torch.no_grad():
        features = backbone(images)
        assert features.shape == (2, backbone.width) == (2, 1280)
        by_hand = nn.functional.interpolate(images.float(), (128, 128), mode="bilinear")
        expected = backbone.trunk.net.extract_features((by_hand / 255 - 0.498) / 0.502).mean(
            dim=(2, 3)
        )
    torch.testing.assert_close(features, expected)
    assert not build_backbone(Choice("efficientnet-lite0", "random")).pretrained


def test_transformers_backbones_load_from_a_folder(tmp_path: Path) -> None:
    from transformers import ResNetConfig, ResNetModel, ViTConfig, ViTModel

    small = ResNetConfig(depths=[1, 1], hidden_sizes=[8, 16], embedding_size=8, layer_type="basic")
    tiny = ViTConfig(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        image_size=32,
    )
    for name, model, width in (
        ("resnet34", ResNetModel(small), 16),
        ("vit-b16", ViTModel(tiny), 16),
    ):
        model.save_pretrained(tmp_path / name)
        backbone = build_backbone(Choice(name, str(tmp_path / name), size=32)).eval()
        assert backbone.pretrained
        images = torch.zeros(2, 3, 40, 40, dtype=torch.uint8)
        assert backbone(images).shape == (2, width)
        again = build_backbone(Choice(name, "random", 32, backbone.choice.config)).eval()
        again.load_state_dict(backbone.state_dict())
        torch.testing.assert_close(again(images), backbone(images))


def test_a_state_dict_gives_its_weights_and_is_rebuilt_without_its_file(tmp_path: Path) -> None:
    torch.manual_seed(0)
    theirs = ARCHITECTURES["resnet34"]()
    file = tmp_path / "resnet34-b627a593.pth"
    torch.save(
        {**theirs.state_dict(), "fc.weight": torch.zeros(1000, 512), "fc.bias": torch.zeros(1000)},
        file,
    )
    backbone = build_backbone(Choice("resnet34", str(file))).eval()
    images = torch.randint(0, 256, (2, 3, 224, 224), dtype=torch.uint8)
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    with torch.no_grad():
        expected = theirs.eval()((images / 255 - mean[:, None, None]) / std[:, None, None])
        torch.testing.assert_close(backbone(images), expected)
        file.rename(tmp_path / "theirs.pth.tar")  # as many of these checkpoints are called
        renamed = build_backbone(Choice("resnet34", str(tmp_path / "theirs.pth.tar"))).eval()
        torch.testing.assert_close(renamed(images), expected)
        (tmp_path / "theirs.pth.tar").unlink()
        again = build_backbone(Choice("resnet34", "random", None, backbone.choice.config)).eval()
        again.load_state_dict(backbone.state_dict())
        torch.testing.assert_close(again(images), expected)
    assert backbone.pretrained
    assert about_weights("resnet34", str(file)).endswith("(torchvision's V1, the paper's)")


def test_weights_are_never_random_in_silence(monkeypatch) -> None:
    with pytest.raises(
        InputError,
        match=r"got none: pass a state dict, such as torchvision's resnet50-0676ba61\.pth",
    ):
        build_backbone("resnet50")
    assert about_weights("resnet50", "random") == "resnet50: random weights"
    assert "the paper's are torchvision's V1" in about_weights("resnet50", "microsoft/resnet-50")
    monkeypatch.setattr("socket.create_connection", None)  # nobody asks: the variable says so
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(
        InputError, match=r"got nobody/resnet, which is not: .*resnet50-0676ba61\.pth"
    ):
        build_backbone(Choice("resnet50", "nobody/resnet"))


def test_a_folder_of_another_network_is_refused(tmp_path: Path) -> None:
    from transformers import ViTConfig, ViTModel

    tiny = ViTConfig(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        image_size=32,
    )
    ViTModel(tiny).save_pretrained(tmp_path / "vit")
    with pytest.raises(
        InputError,
        match=r"expected the tensors of resnet34 in .*vit, got \d+ missing, the first emb",
    ):
        build_backbone(Choice("resnet34", str(tmp_path / "vit")))
    with pytest.raises(InputError, match=r"got 2 missing, the first classifier\.bias"):
        pretrained_classifier(Choice("vit-b16", str(tmp_path / "vit")))
    with pytest.raises(InputError, match=r"which has none: .*resnet34-b627a593\.pth"):
        build_backbone(Choice("resnet34", str(tmp_path)))


def test_a_hub_that_does_not_answer_is_not_waited_for(monkeypatch) -> None:
    def refused(address, timeout):
        assert timeout <= 3
        raise OSError("no network")

    monkeypatch.setattr("socket.create_connection", refused)
    monkeypatch.setattr("pseudocal.lab.adapt.weights.getproxies", dict)
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    with pytest.raises(
        InputError, match="expected weights that are on this machine, got nobody/resnet"
    ):
        build_backbone(Choice("resnet34", "nobody/resnet"))


def test_the_classifier_that_pretrained_weights_come_with(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    small = {
        "embedding_size": 4,
        "hidden_sizes": [4, 4, 4, 8],
        "depths": [1, 1, 1, 1],
        "layer_type": "basic",
    }
    model = transformers.ResNetForImageClassification(
        transformers.ResNetConfig(**small, num_labels=7)
    )
    model.save_pretrained(tmp_path)
    found = pretrained_classifier(Choice("resnet50", str(tmp_path)))
    assert torch.equal(found.weight, model.classifier[1].weight)
    images = np.random.default_rng(0).integers(0, 256, (6, 3, 224, 224)).astype(np.uint8)
    target, run = (
        Unlabelled("sketch", images),
        TrainingRun(tmp_path / "run", iterations=1, frozen=False),
    )
    source = Domain("imagenet", images[:0], np.zeros(0, int), tuple("abcdefg"))
    choice = Choice("resnet50", str(tmp_path))
    trained = train(source, target, run, method="shot", preset="imagenet", backbone=choice)
    kept = trained.load().head.classifier.state_dict()["weight"]
    assert torch.equal(kept, model.classifier[1].state_dict()["weight"])
    assert not (tmp_path / "run" / "source").exists()
    with pytest.raises(
        InputError, match="expected pretrained weights of 3 classes for resnet50, got 7"
    ):
        train(
            replace(source, classes=tuple("abc")),
            target,
            run,
            method="dine",
            preset="imagenet",
            backbone=choice,
        )
    with pytest.raises(
        InputError, match="expected weights with a linear classifier for resnet50, got random"
    ):
        pretrained_classifier(Choice("resnet50", "random"))


def test_a_folder_of_state_dicts_has_one_for_each_backbone(tmp_path: Path) -> None:
    (tmp_path / "resnet34-b627a593.pth").touch()
    assert paper_file("resnet34", str(tmp_path)) == str(tmp_path / "resnet34-b627a593.pth")
    assert paper_file("resnet50", str(tmp_path)) == str(tmp_path)
    assert about_weights("resnet34", str(tmp_path)).endswith("(torchvision's V1, the paper's)")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "width"),
    [("resnet34", 512), ("resnet50", 2048), ("resnet101", 2048), ("vit-b16", 768)],
)
def test_transformers_backbones_at_random(name: str, width: int) -> None:
    backbone = build_backbone(Choice(name, "random")).eval()
    assert name in BACKBONES
    assert not backbone.pretrained
    assert backbone(torch.zeros(1, 3, 64, 64, dtype=torch.uint8)).shape == (1, width)


def test_features_are_cached_by_what_they_depend_on(tmp_path: Path) -> None:
    torch.manual_seed(0)
    backbone = build_backbone("digits")
    images = np.random.default_rng(0).integers(0, 256, (70, 1, 16, 16)).astype(np.uint8)
    first = cached_features(backbone, images, cache=tmp_path)
    assert np.array_equal(first, compute_features(backbone, images))
    (file,) = tmp_path.iterdir()
    np.save(file, first + 1)  # what a second look finds is the file, not a second computation
    assert np.array_equal(cached_features(backbone, images, cache=tmp_path), first + 1)
    images[3, 0, 2, 2] ^= 1
    cached_features(backbone, images, cache=tmp_path)
    with torch.no_grad():
        next(backbone.parameters()).add_(1e-3)
    cached_features(backbone, images, cache=tmp_path)
    assert len(list(tmp_path.iterdir())) == 3


def test_a_failed_computation_leaves_no_file(tmp_path: Path) -> None:
    def broken(done: int, total: int) -> None:
        raise KeyboardInterrupt

    images = np.zeros((3, 1, 16, 16), np.uint8)
    with pytest.raises(KeyboardInterrupt):
        cached_features(build_backbone("digits"), images, cache=tmp_path, tick=broken)
    assert not list(tmp_path.iterdir())


def test_the_whole_network_is_the_head_on_cached_features(tmp_path: Path) -> None:
    backbone: Any = build_backbone("efficientnet-lite0").eval()
    head = build_head("linear", backbone.width, 32, 5).eval()
    images = np.random.default_rng(0).integers(0, 256, (6, 3, 96, 96)).astype(np.uint8)
    features = cached_features(backbone, images, cache=tmp_path)
    with torch.no_grad():
        whole = Network(backbone, head)(torch.from_numpy(images))
        torch.testing.assert_close(whole, head(torch.from_numpy(features)), atol=1e-4, rtol=0)


def test_quick_dropout_drops_as_many_and_keeps_the_mean() -> None:
    torch.manual_seed(0)
    x = torch.ones(100, 1000)
    for p in (0.5, 0.1):
        kept = QuickDropout(p)(x)
        assert set(kept.unique().tolist()) == {0.0, (x[0, 0] / (1 - p)).item()}
        assert (kept == 0).float().mean().item() == pytest.approx(p, abs=0.005)
        assert torch.equal(QuickDropout(p).eval()(x), x)
