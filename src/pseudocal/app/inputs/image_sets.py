"""Image files and addresses as inputs of one model, or of several that want them differently.

For several models each image is decoded once, and the arrays of all are one row.

Resizing, cropping and normalising are affine, apart from the rounding of pixels to whole numbers.
So a weighted sum of two such rows is the row of the weighted sum of two images: mixup samples are
mixup samples of images, for both models the same.
"""

from __future__ import annotations

import io
import math
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pseudocal.app.inputs.addresses import fetched
from pseudocal.app.inputs.images import decode_image
from pseudocal.app.inputs.preprocessing import Preprocessing
from pseudocal.arrays import Inputs, Predictor
from pseudocal.predictors import Deferred, as_predictor

if TYPE_CHECKING:
    from PIL.Image import Image


@dataclass(frozen=True)
class ImageSet:
    """Image files.

    Attributes:
        paths: the files.
        root: the folder that names are relative to.
        preprocessing: what happens to an image before the model sees it.

    """

    paths: list[Path]
    root: Path
    preprocessing: Preprocessing

    def __len__(self) -> int:
        return len(self.paths)

    def name(self, i: int) -> str:
        """Return the path of image i, relative to the root if it is inside it."""
        path = self.paths[i]
        relative = path.relative_to(self.root) if path.is_relative_to(self.root) else path
        return (
            str(relative).encode("utf-8", "replace").decode("utf-8")
        )  # on Linux a name may be invalid Unicode

    def decoded(self, i: int) -> Image:
        """Decode image i."""
        return decode_image(self.paths[i])

    def read(self, i: int) -> NDArray[Any]:
        """Decode and preprocess image i."""
        return self.preprocessing.array_of(self.decoded(i))

    def image_file(self, i: int) -> Path | None:
        """Return the file of image i."""
        return self.paths[i]


@dataclass(frozen=True)
class RemoteImageSet:
    """Images at addresses that fsspec can reach, named by their address.

    Attributes:
        urls: the addresses.
        preprocessing: what happens to an image before the model sees it.

    """

    urls: list[str]
    preprocessing: Preprocessing

    def __len__(self) -> int:
        return len(self.urls)

    def name(self, i: int) -> str:
        """Return the address of image i."""
        return self.urls[i]

    def decoded(self, i: int) -> Image:
        """Fetch and decode image i."""
        return decode_image(io.BytesIO(fetched(self.urls[i])))

    def read(self, i: int) -> NDArray[Any]:
        """Fetch, decode and preprocess image i."""
        return self.preprocessing.array_of(self.decoded(i))

    def image_file(self, i: int) -> Path | None:
        """Return None: there is no local file."""
        return None


@dataclass(frozen=True)
class ImageViews:
    """Images that are preprocessed for several models.

    Attributes:
        image_files: the images as the first model wants them.
        others: what happens to an image before each of the other models sees it.

    """

    image_files: ImageSet | RemoteImageSet
    others: tuple[Preprocessing, ...]

    def __len__(self) -> int:
        return len(self.image_files)

    def name(self, i: int) -> str:
        """Return the name of image i."""
        return self.image_files.name(i)

    def read(self, i: int) -> NDArray[Any]:
        """Decode image i once, and preprocess it for each model."""
        image = self.image_files.decoded(i)
        return np.concatenate(
            [one.array_of(image).ravel() for one in (self.image_files.preprocessing, *self.others)]
        )

    def image_file(self, i: int) -> Path | None:
        """Return the file of image i."""
        return self.image_files.image_file(i)

    def split(self, *models: Any) -> list[Any]:
        """Return the models as functions of rows with all views.

        Models that workers open stay such.

        Args:
            models: the model that takes the first view, then the others.

        """
        viewed = list[Any]()
        start = 0
        for model, one in zip(models, (self.image_files.preprocessing, *self.others), strict=True):
            view = partial(_viewed, model, start, one.shape)
            viewed.append(Deferred(view) if isinstance(model, Deferred) else view())
            start += math.prod(one.shape)
        return viewed


def _viewed(model: Any, start: int, shape: tuple[int, ...]) -> ViewPredictor:
    return ViewPredictor(as_predictor(model), start, shape)


@dataclass(frozen=True)
class ViewPredictor:
    """A model that takes one of the views of a row.

    >>> ViewPredictor(lambda x: x, 1, (2, 1))(np.array([[1.0, 2.0, 3.0]]))
    array([[[2.],
            [3.]]])

    Attributes:
        predict: the model.
        start: the first column of its view.
        shape: the shape of the view.

    """

    predict: Predictor
    start: int
    shape: tuple[int, ...]

    def __call__(self, x: Inputs, /) -> Any:
        """Predict one batch of rows."""
        return self.predict(
            x[:, self.start : self.start + math.prod(self.shape)].reshape(-1, *self.shape)
        )
