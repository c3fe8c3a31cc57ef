"""State dicts in the layouts of others give the logits of the modules they came from.

The references are networks of transformers with random weights, and heads written out here after
each layout.
"""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from torch import Tensor, nn  # noqa: E402

from pseudocal.app import calibrate, refine  # noqa: E402
from pseudocal.app.models.files import open_model  # noqa: E402
from pseudocal.app.models.state_dicts import (  # noqa: E402
    import_backbone,
    import_classifier,
    open_state_dict,
    read_state_dict,
    with_temperature,
)
from pseudocal.arrays import InputError  # noqa: E402

CLASSES = 7


def moved(module: Any) -> Any:
    """Let no norm be the identity, so that one in the wrong place is noticed."""
    for part in module.modules():
        if isinstance(part, nn.BatchNorm1d | nn.BatchNorm2d | nn.LayerNorm):
            nn.init.normal_(part.weight, 1, 0.1)
            nn.init.normal_(part.bias, 0, 0.1)
        if isinstance(part, nn.BatchNorm1d | nn.BatchNorm2d):
            part.running_mean.normal_(0, 0.1)
            part.running_var.uniform_(0.5, 1.5)
    return module.eval()


class Body(nn.Module):
    """A ResNet of transformers up to its pooled features."""

    def __init__(self, *, deep: bool = True) -> None:
        super().__init__()
        basic = {} if deep else {"layer_type": "basic", "hidden_sizes": [64, 128, 256, 512]}
        self.net = transformers.ResNetModel(transformers.ResNetConfig(depths=[3, 4, 6, 3], **basic))
        self.width = 2048 if deep else 512

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x).pooler_output.flatten(1)

    def torchvision(self) -> dict[str, Tensor]:
        """The weights under torchvision's names."""
        named = {}
        for name, tensor in self.net.state_dict().items():
            name = name.replace("embedder.embedder.convolution", "conv1").replace(
                "embedder.embedder.normalization", "bn1"
            )
            name = re.sub(
                r"encoder\.stages\.(\d)\.layers\.", lambda m: f"layer{int(m[1]) + 1}.", name
            )
            name = name.replace("shortcut.convolution", "downsample.0").replace(
                "shortcut.normalization", "downsample.1"
            )
            name = re.sub(r"layer\.(\d)\.convolution", lambda m: f"conv{int(m[1]) + 1}", name)
            name = re.sub(r"layer\.(\d)\.normalization", lambda m: f"bn{int(m[1]) + 1}", name)
            named[name] = tensor
        return named


@pytest.fixture(scope="module")
def body() -> Body:
    torch.manual_seed(0)
    return moved(Body())


@pytest.fixture
def images() -> Tensor:
    torch.manual_seed(1)
    return torch.randn(3, 3, 64, 64)


def with_prefix(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {prefix + name: tensor for name, tensor in tensors.items()}


def check(tensors: dict[str, Any], expected: Tensor, images: Tensor, path: Path, head: str) -> None:
    torch.save(tensors, path)
    found = import_classifier(read_state_dict(path), "resnet50")
    calibrated = import_classifier(with_temperature(read_state_dict(path), 2.5), "resnet50")
    for network, logits in ((found.network, expected), (calibrated.network, expected / 2.5)):
        with torch.no_grad():
            np.testing.assert_allclose(
                network(images).numpy(), logits.detach().numpy(), rtol=1e-5, atol=1e-5
            )
    assert (found.head, found.classes) == (head, CLASSES)


def test_torchvision_and_timm(body, images, tmp_path) -> None:
    fc = nn.Linear(2048, CLASSES)
    tensors = body.torchvision() | with_prefix("fc.", fc.state_dict())
    check(
        {"state_dict": with_prefix("module.", tensors), "epoch": 3},
        fc(body(images)),
        images,
        tmp_path / "a.pth",
        "direct",
    )
    model = open_state_dict(tmp_path / "a.pth", architecture="resnet50")
    (tmp_path / "out").mkdir()
    assert model.export is not None
    assert model.export(2.5, tmp_path / "out", images.numpy()) == ["model.pth"]
    shipped = torch.load(tmp_path / "out" / "model.pth", weights_only=True)
    assert shipped.keys() == tensors.keys()
    torch.testing.assert_close(shipped["fc.weight"], tensors["fc.weight"] / 2.5)
    found = import_classifier(tensors, "resnet50")
    assert (
        found.about
        == f"{len(tensors)} tensors mapped, none missing, none left over; 7 classes, direct head"
    )


@pytest.mark.parametrize("name", ["target_{}_par_0.3.pt", "dine_{}.pt"])
def test_three_files_of_shot_and_dine(body, images, tmp_path, name) -> None:
    bottleneck, norm = nn.Linear(2048, 256), moved(nn.BatchNorm1d(256))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # that is how their files are made
        fc = torch.nn.utils.weight_norm(nn.Linear(256, CLASSES), name="weight")
    fc.weight_g.data.mul_(1.7)
    parts = {"bottleneck": bottleneck, "bn": norm}
    netb = {
        f"{key}.{n}": t for key, module in parts.items() for n, t in module.state_dict().items()
    }
    torch.save(netb, tmp_path / name.format("B"))
    torch.save(with_prefix("fc.", fc.state_dict()), tmp_path / name.format("C"))
    expected = fc(norm(bottleneck(body(images))))
    check(body.torchvision(), expected, images, tmp_path / name.format("F"), "weightnorm")


def test_atdoc(body, images, tmp_path) -> None:
    bottleneck, fc = nn.Linear(2048, 64), nn.Linear(64, CLASSES)
    head = {"1.bottleneck.weight": bottleneck.weight, "1.bottleneck.bias": bottleneck.bias}
    tensors = with_prefix("0.", body.torchvision()) | head | with_prefix("1.fc.", fc.state_dict())
    plain = {name: tensor.detach() for name, tensor in tensors.items()}
    check(plain, fc(bottleneck(body(images))), images, tmp_path / "BNM.pt", "linear")


@pytest.mark.parametrize("first", [0, 2])  # older versions pool and flatten first
def test_tllib(body, images, tmp_path, first) -> None:
    linear, norm, head = nn.Linear(2048, 64), moved(nn.BatchNorm1d(64)), nn.Linear(64, CLASSES)
    tensors = with_prefix("backbone.", body.torchvision()) | with_prefix(
        f"bottleneck.{first}.", linear.state_dict()
    )
    tensors |= with_prefix(f"bottleneck.{first + 1}.", norm.state_dict()) | with_prefix(
        "head.", head.state_dict()
    )
    tensors |= {
        "backbone.fc.weight": torch.zeros(1000, 2048),
        "backbone.fc.bias": torch.zeros(1000),
    }  # theirs, not used
    check(tensors, head(norm(linear(body(images))).relu()), images, tmp_path / "latest.pth", "relu")
    found = import_classifier(tensors, "resnet50")
    assert found.left == ("backbone.fc.weight", "backbone.fc.bias")
    assert "2 left over (backbone.fc.weight, backbone.fc.bias)" in found.about


class AfnBlock(nn.Module):
    """A block of AFN's head, with the names of PseudoCal's and TLlib's code."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.fc = nn.Linear(inputs, width)
        self.bn = nn.BatchNorm1d(width)

    def forward(self, x: Tensor) -> Tensor:
        return self.bn(self.fc(x)).relu()


def afn_bottleneck(blocks: int) -> nn.Sequential:
    """The first block is in a sequence of its own, the others are not."""
    first = nn.Sequential(AfnBlock(2048, 64))
    return moved(nn.Sequential(first, *(AfnBlock(64, 64) for _ in range(blocks - 1))))


def mcd_layers() -> nn.Sequential:
    """MCD's classifier of PseudoCal (`fc`) and of TLlib (`head`)."""
    layers = [
        *(nn.Dropout(0.5), nn.Linear(2048, 64), nn.BatchNorm1d(64), nn.ReLU()),
        *(nn.Dropout(0.5), nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU()),
        nn.Linear(64, CLASSES),
    ]
    return moved(nn.Sequential(*layers))


@pytest.mark.parametrize(("blocks", "head"), [(1, "afn"), (2, "afn-two")])
def test_safn_of_pseudocal_and_afn_of_tllib(body, images, tmp_path, blocks, head) -> None:
    bottleneck, fc = afn_bottleneck(blocks), nn.Linear(64, CLASSES)
    assert "0.0.fc.weight" in bottleneck.state_dict()
    expected = fc(bottleneck(body(images)))
    pseudocal = with_prefix("0.", body.torchvision())
    pseudocal |= with_prefix("1.bottleneck.", bottleneck.state_dict())
    pseudocal |= with_prefix("1.fc.", fc.state_dict())
    check(pseudocal, expected, images, tmp_path / "SAFN.pt", head)
    tllib = with_prefix("backbone.", body.torchvision())
    tllib |= {"backbone.fc.weight": torch.zeros(1000, 2048), "backbone.fc.bias": torch.zeros(1000)}
    tllib |= with_prefix("bottleneck.", bottleneck.state_dict())
    tllib |= with_prefix("head.", fc.state_dict())
    check(tllib, expected, images, tmp_path / "latest.pth", head)


def test_mcd_of_pseudocal_and_tllib(body, images, tmp_path) -> None:
    first, second = mcd_layers(), mcd_layers()
    expected = first(body(images))
    pseudocal = with_prefix("0.", body.torchvision()) | with_prefix("1.fc.", first.state_dict())
    check(pseudocal, expected, images, tmp_path / "MCD.pt", "three-layer")
    generator = body.torchvision()
    generator |= {"fc.weight": torch.zeros(1000, 2048), "fc.bias": torch.zeros(1000)}
    tllib = {
        "G": generator,
        "F1": with_prefix("head.", first.state_dict()),
        "F2": with_prefix("head.", second.state_dict()),
    }
    check(tllib, expected, images, tmp_path / "latest.pth", "three-layer")
    model = open_state_dict(tmp_path / "latest.pth", architecture="resnet50")
    (tmp_path / "out").mkdir()
    assert model.export is not None
    model.export(2.5, tmp_path / "out", images.numpy())
    exported = read_state_dict(tmp_path / "out" / "model.pth")
    theirs = first.state_dict()
    torch.testing.assert_close(exported["F1.head.8.bias"], theirs["8.bias"] / 2.5)
    torch.testing.assert_close(exported["F1.head.1.bias"], theirs["1.bias"])


def test_shot_on_imagenet_sketch_has_no_bottleneck(body, images, tmp_path) -> None:
    fc = nn.Linear(2048, CLASSES)
    torch.save(with_prefix("fc.", fc.state_dict()), tmp_path / "target_C_par_0.3.pt")
    path = tmp_path / "target_F_par_0.3.pt"
    check(body.torchvision(), fc(body(images)), images, path, "direct")
    narrow = nn.Linear(256, CLASSES)
    torch.save(with_prefix("fc.", narrow.state_dict()), tmp_path / "target_C_par_0.3.pt")
    with pytest.raises(InputError, match=r"takes 256 features.*2048.*bottleneck"):
        import_classifier(read_state_dict(path), "resnet50")


def test_resnet34_has_other_units(images) -> None:
    small = moved(Body(deep=False))
    backbone, normal = import_backbone(small.torchvision(), "resnet34")
    with torch.no_grad():
        np.testing.assert_allclose(
            backbone.eval()(images).numpy(), small(images).numpy(), rtol=1e-5, atol=1e-5
        )
    assert normal[0] == (0.485, 0.456, 0.406)


def test_what_does_not_fit_is_named(body, tmp_path) -> None:
    tensors = body.torchvision()
    with pytest.raises(
        InputError,
        match=r"layer1\.0\.conv1\.weight has shape .*, but \(64, 64, 3, 3\) in resnet34",
    ):
        import_backbone(tensors, "resnet34")
    with pytest.raises(
        InputError,
        match=r"are missing in the state dict, first layer3\.6",
    ):
        import_backbone(tensors, "resnet101")
    with pytest.raises(InputError, match=r"not part of .*, the first layer3\.6\.conv1\.weight"):
        import_backbone(tensors | {"layer3.6.conv1.weight": torch.zeros(1)}, "resnet50")
    with pytest.raises(InputError, match="has no weights of a classifier"):
        import_classifier(tensors, "resnet50")
    with pytest.raises(
        InputError,
        match="expected resnet34, resnet50, resnet101, vit-b16, got 'vgg'",
    ):
        import_backbone(tensors, "vgg")
    with pytest.raises(InputError, match="no such file"):
        read_state_dict(tmp_path / "nothing.pth")


class Evil:
    def __reduce__(self):
        return (Path.touch, (Path("touched"),))


@pytest.mark.parametrize("suffix", ["pth", "safetensors"])
def test_a_damaged_file_is_an_input_error(tmp_path, suffix) -> None:
    path = tmp_path / f"model.{suffix}"
    path.write_bytes(b"\x10" + bytes(7) + b"no header of tensors")
    with pytest.raises(InputError, match=rf"model.{suffix} is damaged or holds more than tensors"):
        open_model(str(path), architecture="resnet50")


def test_a_pickle_runs_nothing(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save({"fc.weight": Evil()}, tmp_path / "evil.pth")
    with pytest.raises(InputError, match=r"save model\.state_dict"):
        read_state_dict(tmp_path / "evil.pth")
    assert not (tmp_path / "touched").exists()


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["timm", "torchvision"])
def test_vit(layout, tmp_path) -> None:
    torch.manual_seed(0)
    config: Any = transformers.ViTConfig(layer_norm_eps=1e-6, num_labels=CLASSES)
    net: Any = moved(transformers.ViTForImageClassification(config))
    nn.init.normal_(net.vit.embeddings.position_embeddings)
    tensors = {}
    for name, tensor in net.state_dict().items():
        layer = re.fullmatch(r"vit\.(?:encoder\.)?layers?\.(\d+)\.(.*)", name)
        ours = NAMES.get(name.removeprefix("vit.")) if layer is None else LAYERS.get(layer[2])
        if ours is not None:
            tensors[f"blocks.{layer[1]}.{ours}" if layer else ours] = tensor
    for i in range(12):
        for kind in ("weight", "bias"):
            parts = [tensors.pop(f"blocks.{i}.{part}.{kind}") for part in ("q", "k", "v")]
            tensors[f"blocks.{i}.attn.qkv.{kind}"] = torch.cat(parts)
    if layout == "torchvision":
        tensors = {torchvision_name(name): tensor for name, tensor in tensors.items()}
    torch.save(tensors, tmp_path / "vit.pth")
    found = import_classifier(read_state_dict(tmp_path / "vit.pth"), "vit-b16")
    images = torch.randn(2, 3, 224, 224)
    with torch.no_grad():
        np.testing.assert_allclose(
            found.network(images).numpy(), net(images).logits.numpy(), rtol=1e-5, atol=1e-5
        )
    assert found.normal[0][0] == (0.5 if layout == "timm" else 0.485)


NAMES = {
    "embeddings.cls_token": "cls_token",
    "embeddings.position_embeddings": "pos_embed",
    "embeddings.patch_embeddings.projection.weight": "patch_embed.proj.weight",
    "embeddings.patch_embeddings.projection.bias": "patch_embed.proj.bias",
    "layernorm.weight": "norm.weight",
    "layernorm.bias": "norm.bias",
    "classifier.weight": "head.weight",
    "classifier.bias": "head.bias",
}
LAYERS = {
    f"{theirs}.{kind}": f"{ours}.{kind}"
    for kind in ("weight", "bias")
    for theirs, ours in {
        "attention.q_proj": "q", "attention.k_proj": "k", "attention.v_proj": "v", "attention.o_proj": "attn.proj",
        "layernorm_before": "norm1", "layernorm_after": "norm2", "mlp.fc1": "mlp.fc1", "mlp.fc2": "mlp.fc2",
    }.items()
}  # fmt: skip


def torchvision_name(name: str) -> str:
    name = name.replace("cls_token", "class_token").replace("pos_embed", "encoder.pos_embedding")
    name = name.replace("patch_embed.proj", "conv_proj").replace("head.", "heads.head.")
    name = re.sub(r"^norm\.", "encoder.ln.", name)
    name = re.sub(r"blocks\.(\d+)\.", r"encoder.layers.encoder_layer_\1.", name)
    name = re.sub(r"\.norm([12])\.", r".ln_\1.", name)
    name = re.sub(r"attn\.qkv\.(weight|bias)", r"self_attention.in_proj_\1", name)
    return (
        name.replace("attn.proj", "self_attention.out_proj")
        .replace("mlp.fc1", "mlp.0")
        .replace("mlp.fc2", "mlp.3")
    )


def test_a_run_of_a_state_dict_is_refined(tmp_path) -> None:
    torch.manual_seed(0)
    body = moved(Body(deep=False))
    head = nn.Linear(body.width, CLASSES)
    images = torch.randn(24, 3, 32, 32)
    with torch.no_grad():  # every class is predicted for some images
        features = body(images)
        head.weight.mul_(10 / features.std(dim=0).mean())
        head.bias.sub_(head(features).mean(dim=0))
    path = tmp_path / "a.pth"
    torch.save(body.torchvision() | with_prefix("fc.", head.state_dict()), path)
    np.save(tmp_path / "images.npy", images.numpy())
    out = tmp_path / "out"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        calibrate(str(path), tmp_path / "images.npy", out, architecture="resnet34")
        wrong = (np.load(out / "logits.npy").argmax(1) + np.arange(24) % 2) % CLASSES
        labels = "".join(f"{i},{label}\n" for i, label in enumerate(wrong))
        (tmp_path / "labels.csv").write_text(f"file,label\n{labels}")
        result = refine(out, tmp_path / "labels.csv", sampling="random")
    temperature = result.calibration.temperature
    assert temperature > 1
    (exported,) = out.glob("*model.pth")
    logits, uncalibrated = (
        open_model(str(each), architecture="resnet34").predict(images.numpy())
        for each in (exported, path)
    )
    np.testing.assert_allclose(logits, uncalibrated / temperature, rtol=1e-3, atol=1e-3)
