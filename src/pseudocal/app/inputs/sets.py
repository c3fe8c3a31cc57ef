"""Sets of unlabelled inputs: images, arrays, tables and texts, and threads that read them ahead."""

from __future__ import annotations

import io
import math
import os
import sys
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Generator, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pseudocal.app.inputs.choices import JSONL, read_choices
from pseudocal.app.inputs.images import IMAGE_SUFFIXES, decode_image, size_of_image
from pseudocal.app.inputs.preprocessing import Preprocessing
from pseudocal.app.inputs.tables import (
    ARRAYS,
    REAL,
    TABLES,
    check_finite,
    check_regular,
    chosen_columns,
    read_array,
    read_columns,
    read_sparse,
    read_table,
    read_text,
)
from pseudocal.arrays import InputError, Inputs, Predictor
from pseudocal.batches import Batch, take
from pseudocal.extras import MissingExtraError, require
from pseudocal.predictors import Deferred, as_predictor
from pseudocal.skipped import Skipped, one_line
from pseudocal.stored import ChangedFileError

if TYPE_CHECKING:
    from PIL.Image import Image

# bytes: a larger array is not checked when it is opened, only while the model reads it
CHECKED_AT_ONCE = 2**31
BATCHES_AHEAD = 2
MEASURED = 100  # images whose size is looked up before a run
# the column of a table, if the user names none; the lines of a text file are called so too
USUAL_COLUMN = "text"
NO_INPUTS = ("file", "label")  # columns that name the inputs and say what they are


class InputSet(ABC):
    """Inputs of a model, by number, from 0."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def read(self, i: int) -> NDArray[Any]:
        """Input i, ready for the model."""

    def name(self, i: int) -> str:
        """The user's name for input i: its number, unless it is a file."""
        return str(i)

    def image_file(self, i: int) -> Path | None:
        """The image file of input i; None if it is not an image file."""
        return None


@dataclass(frozen=True)
class ArraySet(InputSet):
    """Rows of an array, which may stay in its file, named by their number.

    >>> ArraySet(np.array([[1, 2], [3, 4]])).read(1)
    array([3., 4.], dtype=float32)
    """

    array: Any  # the inputs, `(n, ...)`, or a sparse matrix of them
    dtype: str = "float32"  # the dtype of the model's inputs
    mixed: bool = True  # whether pairs of rows are mixed, so that integers become floats

    def __len__(self) -> int:
        return int(self.array.shape[0])

    def read(self, i: int) -> NDArray[Any]:
        """Read row i in the dtype of the model, if it is sparse with all its zeros."""
        row: NDArray[Any]
        if hasattr(self.array, "tocsr"):
            row = self.array[[i]].toarray()[0]
        else:
            row = np.asarray(self.array[i])
        if self.mixed and not np.issubdtype(self.dtype, np.floating):
            return row.astype(np.float32)
        return row.astype(self.dtype)

    def cast(self) -> str:
        """Say it if whole numbers become floats: pixels from 0 to 255 are often wanted from 0 to 1.

        >>> ArraySet(np.array([[1, 255]], dtype=np.uint8)).cast(), ArraySet(np.ones((1, 2))).cast()
        (', but that uint8 becomes float32: nothing is scaled', '')
        """
        if len(self) == 0 or self.array.dtype.kind not in "iu" or self.read(0).dtype.kind != "f":
            return ""
        return f", but that {self.array.dtype} becomes {self.read(0).dtype}: nothing is scaled"


@dataclass(frozen=True)
class FrameSet(InputSet):
    """Rows of a data frame, named by their number. A batch of them is a data frame."""

    frame: Any  # the columns that the model takes
    numeric: bool = False  # whether all columns are numbers, some of them missing

    def __len__(self) -> int:
        return len(self.frame)

    def read(self, i: int) -> NDArray[Any]:
        """Return row i as an array of objects; models get data frames from `rows`."""
        row: NDArray[Any] = self.frame.iloc[i].to_numpy(dtype=object)
        return row

    def rows(self, numbers: NDArray[np.intp]) -> Any:
        """Return the rows with these numbers as a data frame."""
        return take(self.frame, numbers)


@dataclass(frozen=True)
class TextSet(InputSet):
    """Texts, named by their number.

    >>> TextSet(["good", "bad"]).read(1)
    array('bad', dtype=object)
    """

    texts: list[str]
    column: str | None = None  # of a table; None for the lines of a file

    def __len__(self) -> int:
        return len(self.texts)

    def read(self, i: int) -> NDArray[Any]:
        """Return text i; a batch of texts is an array of Python strings."""
        return np.array(self.texts[i], dtype=object)


@dataclass(frozen=True)
class ImageSet(InputSet):
    """Image files."""

    paths: list[Path]
    root: Path  # the folder that names are relative to
    preprocessing: Preprocessing

    def __len__(self) -> int:
        return len(self.paths)

    def name(self, i: int) -> str:
        """Return the path of image i, relative to the root if it is inside it."""
        path = self.paths[i]
        if path.is_relative_to(self.root):
            path = path.relative_to(self.root)
        # on Linux a name may be invalid Unicode
        return str(path).encode("utf-8", "replace").decode("utf-8")

    def decoded(self, i: int) -> Image:
        """Decode image i."""
        return decode_image(self.paths[i])

    def read(self, i: int) -> NDArray[Any]:
        """Decode and preprocess image i."""
        return self.preprocessing.array_of(self.decoded(i))

    def image_file(self, i: int) -> Path | None:
        """Return the file of image i."""
        return self.paths[i]

    @property
    def have_model_size(self) -> bool:
        """Whether all images of a sample already have the size that the model takes.

        How they are resized makes no difference then.
        """
        height, width = self.preprocessing.size
        if self.preprocessing.edge not in (None, min(height, width)):
            return False
        sample = np.unique(np.linspace(0, len(self) - 1, MEASURED).astype(int))
        try:
            return all(size_of_image(self.paths[i]) == (width, height) for i in sample)
        except (InputError, OSError):  # an unreadable image is reported when it is read
            return False


@dataclass(frozen=True)
class RemoteImageSet(InputSet):
    """Images at addresses that fsspec can reach, named by their address."""

    urls: list[str]
    preprocessing: Preprocessing

    def __len__(self) -> int:
        return len(self.urls)

    def name(self, i: int) -> str:
        """Return the address of image i."""
        return self.urls[i]

    def decoded(self, i: int) -> Image:
        """Fetch and decode image i."""
        with require("fsspec", "ray").open(self.urls[i], "rb") as file:
            content: bytes = file.read()
        return decode_image(io.BytesIO(content))

    def read(self, i: int) -> NDArray[Any]:
        """Fetch, decode and preprocess image i."""
        return self.preprocessing.array_of(self.decoded(i))


@dataclass(frozen=True)
class ImageViews(InputSet):
    """Images for several models that want them preprocessed differently.

    Each image is decoded once, and the arrays of all models are one row. Resizing, cropping and
    normalising are affine, apart from the rounding of pixels to whole numbers. A weighted sum of
    two rows is therefore the row of a weighted sum of two images: mixup samples are the same images
    for all models.
    """

    images: ImageSet | RemoteImageSet  # the images as the first model wants them
    # what happens to an image before each of the other models sees it
    others: tuple[Preprocessing, ...]

    def __len__(self) -> int:
        return len(self.images)

    def name(self, i: int) -> str:
        """Return the name of image i."""
        return self.images.name(i)

    def read(self, i: int) -> NDArray[Any]:
        """Decode image i once, and preprocess it for each model."""
        image = self.images.decoded(i)
        return np.concatenate([one.array_of(image).ravel() for one in self._preprocessings()])

    def of_first(self, rows: Inputs) -> Inputs:
        """The images as the first model wants them, from rows with all views."""
        shape = self.images.preprocessing.shape
        return rows[:, : math.prod(shape)].reshape(-1, *shape)

    def split(self, *models: Any) -> list[Any]:
        """The models as functions of rows with all views; those that workers open stay such."""
        predictors = list[Any]()
        start = 0
        for model, one in zip(models, self._preprocessings(), strict=True):
            make = partial(_view_predictor, model, start, one.shape)
            predictors.append(Deferred(make) if isinstance(model, Deferred) else make())
            start += math.prod(one.shape)
        return predictors

    def _preprocessings(self) -> tuple[Preprocessing, ...]:
        return (self.images.preprocessing, *self.others)


def _view_predictor(model: Any, start: int, shape: tuple[int, ...]) -> ViewPredictor:
    return ViewPredictor(as_predictor(model), start, shape)


@dataclass(frozen=True)
class ViewPredictor:
    """A model that takes one of the views of a row.

    >>> ViewPredictor(lambda x: x, 1, (2, 1))(np.array([[1.0, 2.0, 3.0]]))
    array([[[2.],
            [3.]]])
    """

    predict: Predictor
    start: int  # the first column of its view
    shape: tuple[int, ...]  # of the view

    def __call__(self, x: Inputs, /) -> Any:
        """Predict one batch of rows."""
        end = self.start + math.prod(self.shape)
        return self.predict(x[:, self.start : end].reshape(-1, *self.shape))


def holds_images(data: str) -> bool:
    """Whether `data` names a folder or a list of images, rather than an array or a table.

    >>> holds_images("-"), holds_images("features.parquet")
    (True, False)
    """
    return Path(data).suffix.lower() not in ARRAYS | TABLES or Path(data).is_dir()


def check_found(data: str) -> None:
    """Refuse data that is neither a folder, nor a regular file, nor "-"."""
    if data != "-" and not Path(data).is_dir():
        check_regular(Path(data), "a folder, a list of paths, an array or a table")


def open_rows(
    data: str,
    *,
    dtype: str | None = None,
    columns: Iterable[str] | None = None,
    field: str | None = None,
) -> ArraySet:
    """Open an array or a table.

    Args:
        data: the name of the file.
        dtype: the dtype of the model's inputs; None for float64 from a table and float32 from an
            array.
        columns: the feature columns of a table, in the order the model expects; None for all.
        field: the name of the array to use if an .npz file holds several.

    """
    check_found(data)
    path = Path(data)
    if path.suffix.lower() in TABLES:
        return ArraySet(read_table(path, columns), dtype or "float64")
    matrix = read_sparse(path) if field is None else None
    if matrix is not None:
        return ArraySet(matrix, dtype or "float64")
    array = read_array(path, field)
    if array.ndim < 2 or len(array) == 0 or array.dtype.kind not in REAL:
        raise InputError(
            f"expected an array with one input per row, got {array.dtype} of shape {array.shape} "
            f"in {path}"
        )
    if array.nbytes < CHECKED_AT_ONCE:
        check_finite(array, path)
    return ArraySet(array, dtype or "float32")


def open_images(data: str, preprocessing: Preprocessing) -> ImageSet:
    """Open a folder of images, or a list of them: a text file, or "-" for standard input."""
    check_found(data)
    path = Path(data)
    if path.is_dir():
        found = sorted(
            p
            for p in path.rglob("*")
            if p.suffix.lower() in IMAGE_SUFFIXES
            and not any(part.startswith(".") for part in p.relative_to(path).parts)
            and p.is_file()
        )
        if not found:
            suffixes = ", ".join(sorted(IMAGE_SUFFIXES))
            raise InputError(f"the folder {data} has no images ({suffixes})")
        return ImageSet(found, path, preprocessing)
    if path.suffix.lower() in IMAGE_SUFFIXES:
        raise InputError(
            f"{data} is one image: give a folder or a list of images, since pairs are mixed"
        )
    base = Path.cwd() if data == "-" else path.parent
    try:
        text = sys.stdin.read() if data == "-" else path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        name = "standard input" if data == "-" else data
        raise InputError(f"expected a list of paths, got {name}, which is not text") from error
    listed = [base / line for line in text.splitlines() if line.strip()]
    if not listed:
        raise InputError(f"the list of images {data} is empty: write one path per line")
    return ImageSet(listed, base, preprocessing)


def open_frame(path: Path, columns: Iterable[str] | None) -> FrameSet | None:
    """Open a table as a data frame; None if all of its values are numbers.

    Text, categories, dates and missing values are as pandas reads them.
    """
    table = chosen_columns(path, columns)
    numeric = all(column.dtype.kind in REAL for column in table.values())
    if numeric and not any(np.isnan(column).any() for column in table.values()):
        return None
    pandas = require("pandas", "sklearn")
    if path.suffix.lower() == ".csv":
        frame = pandas.read_csv(path, encoding="utf-8-sig", index_col=False)
        frame.columns = [str(name).strip() for name in frame.columns]
    else:
        arrow = require("pyarrow.parquet", "parquet").read_table(path)
        frame = arrow.to_pandas(ignore_metadata=True)
    rows = len(next(iter(table.values())))
    if len(frame) != rows or not set(table) <= set(frame.columns):
        raise InputError(f"pandas reads {path} as another table: save it as Parquet")
    return FrameSet(frame[list(table)], numeric)


def open_texts(path: Path, column: str | None) -> TextSet:
    """Open a column of a table, or a text file with one text per line.

    Without a name, the column is `text`, or the only one that holds texts.
    """
    described = read_descriptions(path)
    is_table = path.suffix.lower() in TABLES
    if column is None or not is_table:
        column = _usual_column(described)
    if column not in described:
        raise InputError(
            f"{path} has no column {column!r}, only {', '.join(described)}",
            setting="text",
            value="NAME",
        )
    texts = ["" if text is None else text for text in described[column]]
    other = next((text for text in texts if not isinstance(text, str)), None)
    if other is not None:
        raise InputError(f"expected texts in column {column!r} of {path}, got {other!r}")
    return TextSet(texts, column if is_table else None)


def _usual_column(described: dict[str, Any]) -> str:
    """The column of texts of a table, if the user names none.

    >>> _usual_column({"stars": np.array([5]), "review": np.array(["Nice."], dtype=object)})
    'review'
    """
    others = [name for name in described if str(name).strip().lower() not in NO_INPUTS]
    # the lines of a file are a list, a column of a table is an array
    texts = [
        name
        for name in others
        if isinstance(described[name], list) or described[name].dtype.kind in "OU"
    ]
    if USUAL_COLUMN not in described and len(texts) == 1:
        return texts[0]
    return USUAL_COLUMN


def read_lines(path: Path, what: str = "a text file") -> list[str]:
    """Read the lines of a text file in UTF-8; line breaks at its end do not count."""
    text = read_text(path, what).rstrip("\r\n")
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    if lines == [""]:
        raise InputError(f"expected {what}, got {path}, which is empty")
    if "\0" in text:
        raise InputError(f"expected {what}, got {path}, which is not text")
    return lines


def read_descriptions(path: Path) -> dict[str, Any]:
    """Read the columns of a table by name, or the lines of a text file as `text`.

    Of a JSONL file of multiple-choice questions: the question and its options.
    """
    if path.suffix.lower() == JSONL:
        return dict(read_choices(path).columns)
    if path.suffix.lower() in TABLES:
        return read_columns(path)
    return {"text": read_lines(path)}


def refuse_texts(data: str) -> None:
    """Refuse a text file whose first line is no path: it may hold texts."""
    path = Path(data)
    if data == "-" or not path.is_file() or path.suffix.lower() in IMAGE_SUFFIXES:
        return
    first = read_lines(path, "a text file of paths")[0]
    found = os.path.exists(path.parent / first)  # also of a line that is too long for a path
    if not found and Path(first).suffix.lower() not in IMAGE_SUFFIXES:
        raise InputError(
            f"expected a list of images, one path per line, got {path}, which begins with "
            f"{first[:60]!r}; if these are texts, name them",
            setting="text",
            value='"text"',
        )


def read_batches(
    inputs: InputSet, batches: Sequence[Batch], *, workers: int, unreadable: Skipped
) -> Generator[Batch, None, None]:
    """Yield the batches with their inputs, read ahead in threads.

    Inputs that cannot be read are left out.

    >>> from pseudocal.batches import unread_batches
    >>> inputs = ArraySet(np.arange(6).reshape(3, 2))
    >>> batches = unread_batches(np.array([2, 0, 1]), batch_size=2)
    >>> for batch in read_batches(inputs, batches, workers=1, unreadable=Skipped(3)):
    ...     print(batch.rows, batch.inputs.tolist())
    [2 0] [[4.0, 5.0], [0.0, 1.0]]
    [1] [[2.0, 3.0]]
    """
    if isinstance(inputs, FrameSet):
        for unread in batches:
            yield replace(unread, inputs=inputs.rows(unread.rows))
        return
    pool = ThreadPoolExecutor(workers, thread_name_prefix="pseudocal-read")
    stacker = ThreadPoolExecutor(1, thread_name_prefix="pseudocal-stack")
    waiting: deque[Future[Batch]] = deque()
    try:
        for batch in [*batches, *[None] * BATCHES_AHEAD]:
            if batch is not None:
                rows = [pool.submit(inputs.read, int(i)) for i in batch.rows]
                waiting.append(stacker.submit(_gather, inputs, batch, rows, unreadable))
            if waiting and (batch is None or len(waiting) > BATCHES_AHEAD):
                read = waiting.popleft().result()
                if len(read.rows):
                    yield read
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
        stacker.shutdown(wait=True, cancel_futures=True)


def _gather(
    inputs: InputSet, batch: Batch, futures: list[Future[NDArray[Any]]], unreadable: Skipped
) -> Batch:
    """Fill a batch with those of its inputs that could be read."""
    read = []
    for i, future in zip(batch.rows, futures, strict=True):
        try:
            read.append((i, future.result()))
        except (MissingExtraError, ChangedFileError):
            raise
        except Exception as error:  # a remote store may raise anything
            unreadable.add(inputs.name(int(i)), one_line(error))
    shapes = {x.shape for _, x in read}
    if len(shapes) > 1:
        raise InputError(f"inputs have different shapes, {sorted(shapes)}: resize them")
    rows = np.array([i for i, _ in read], dtype=np.intp)
    stacked = np.stack([x for _, x in read]) if read else None
    return Batch(batch.number, rows, stacked)
