"""A surrogate: a second opinion made from the predictions of the only model there is.

A surrogate is a ridge regression from features of another kind, such as those of a pretrained
encoder, to the classes that the model predicts. There are five folds of inputs. Each input gets a
class from a surrogate that has not seen it, and each mixup sample one from a surrogate that has
seen neither of its two inputs. Where the surrogate agrees, the prediction follows from the
features; where it does not, the model is probably wrong. Whole groups of inputs to which the model
gives the same wrong name look right to the surrogate: it learns the name.

Beside a second model, a surrogate is made from the logits of that model, which are known already.

A pass over the target collects `SurrogateSample`: features of the inputs, and of the mixup samples
that the model predicts as a class of neither input. They are bounded samples that merge. Which rows
are kept, and their folds, follow from their numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from os import PathLike
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pseudocal.arrays import InputError, Inputs, Labelled, Logits, Predictor, as_numpy
from pseudocal.batches import Batch, count
from pseudocal.calibrators.agreement import Opinion, Suspects, certain_errors, count_mistakes
from pseudocal.calibrators.confidence import below_top
from pseudocal.calibrators.folded_ridge import SURROGATE_FOLDS, FoldedRidge, UnitRows
from pseudocal.mixup.pairs import Classes
from pseudocal.predictors import Deferred, as_predictor
from pseudocal.randomness import Streams, row_keys
from pseudocal.reservoir import Reservoir, Sample, check_sample

ROWS_SHARE = 3 / 4  # of the memory is for the inputs, the rest for mixup samples
FROM_SECOND = 2.0  # stands for scaled columns that are the logits of a second model
LEAST_LOGIT = -50.0  # below the largest one
KEY_RANGE = 2.0**63  # keys of rows are below
PACKED = ("surrogate_samples", "surrogate_rows", "surrogate_mixup")


@dataclass(frozen=True)
class Surrogate:
    """A second opinion without a second model: it learns the model's predictions from other features.

    >>> rng = np.random.default_rng(0)
    >>> x = 3 * np.eye(3)[rng.integers(3, size=900)] + rng.normal(size=(900, 3))
    >>> from pseudocal import PseudoCal
    >>> calibration = PseudoCal().fit(lambda x: 9 * x, x, second_opinion=Surrogate())
    >>> calibration.trust.verdict, 0.8 < calibration.trust.estimated_accuracy.value < 1
    ('caution', True)

    Attributes:
        features: Turns a batch of inputs into features `(n, d)`: a function, a torch module,
            something with a method `transform`, or a `Deferred` that makes one. A
            pretrained encoder other than the model's own is best. None uses the inputs themselves,
            each column divided by its standard deviation.
        memory: The most bytes of features that are kept. With more inputs, the surrogates learn
            from a uniform sample.

    """

    features: Any = None
    memory: int = 2**29

    def __post_init__(self) -> None:
        if self.memory < 2**16:
            raise InputError(f"expected memory of at least 65536 bytes, got {self.memory}")


class SurrogateBatch(NamedTuple):
    """What a surrogate learns from one batch. The groups of rows are the keys of the inputs.

    Attributes:
        rows: The features of the inputs, labelled with the model's classes; the keys have shape
            `(n,)`.
        mixup_samples: The features of mixup samples that the model predicts as a class of neither
            input, labelled with that class; the keys of both inputs have shape `(n, 2)`.
        surrogate: The settings.
        from_second: Whether the features are the logits of a second model.

    """

    rows: Labelled
    mixup_samples: Labelled
    surrogate: Surrogate
    from_second: bool = False


NO_ROWS = Labelled(np.empty((0, 1), dtype=np.float32), np.empty(0, dtype=np.int64))


class SurrogateCollector:
    """Collects what a surrogate learns from a pass over the target.

    Args:
        surrogate: The settings.
        streams: The random streams, from which the keys of rows follow.

    """

    def __init__(self, surrogate: Surrogate, streams: Streams) -> None:
        self.rows = 0  # inputs and mixup samples whose features were computed
        self._surrogate, self._streams = surrogate, streams
        self._encode = as_encoder(surrogate.features)

    @staticmethod
    def check(real: Labelled) -> None:
        """Refuse rows that are pixels."""
        if real.groups is not None:
            raise InputError("expected a classifier for a surrogate, got a segmentation model")

    def batch_sample(
        self,
        batch: Batch,
        real: Labelled,
        suspects: Suspects,
        epoch: int = 0,
        *,
        given: tuple[Logits, Logits | None] | None = None,
    ) -> SurrogateBatch:
        """What a surrogate learns from one batch.

        Args:
            batch: The inputs.
            real: Their logits, labelled with the predicted class.
            suspects: The mixup samples that the model predicts as a class of neither input.
            epoch: The number of the pass over the data; the inputs are learned in the first.
            given: The logits of a second model for the inputs and the suspects, which are the
                features then.

        """
        of_inputs, of_suspects = (None, None) if given is None else given
        rows = NO_ROWS
        if epoch == 0:
            rows = Labelled(
                self._features(batch.inputs, of_inputs),
                real.labels,
                groups=row_keys(self._streams, batch.rows),
            )
        mixup_samples = NO_ROWS
        pairs = suspects.pairs
        if suspects.inputs is not None and pairs.ids is not None:
            parents = np.stack([pairs.ids[pairs.first], pairs.ids[pairs.second]], axis=1)
            mixup_samples = Labelled(
                self._features(suspects.inputs, of_suspects),
                suspects.predicted,
                pairs.weights,
                row_keys(self._streams, parents),
            )
        return SurrogateBatch(rows, mixup_samples, self._surrogate, given is not None)

    def _features(self, x: Inputs, known: Logits | None) -> NDArray[np.float32]:
        if known is not None:
            return logit_features(known)
        found = feature_rows(self._encode(x), count(x))
        self.rows += len(found)
        return found


def ready(second: Any) -> Any:
    """A second opinion that is ready to be asked, once for many blocks.

    A predictor, or a surrogate with its encoder.
    """
    if not isinstance(second, Surrogate):
        return as_predictor(second)
    return (
        replace(second, features=second.features.make())
        if isinstance(second.features, Deferred)
        else second
    )


def as_encoder(features: Any) -> Predictor:
    """A function from a batch to features.

    >>> as_encoder(None)(np.ones((2, 3, 4))).shape
    (2, 12)

    Args:
        features: As in `Surrogate`.

    """
    if isinstance(features, Deferred):
        return as_encoder(features.make())
    if features is None:
        return _as_they_are
    if isinstance(features, str | PathLike):
        raise InputError(
            "expected a function, a torch module or something with a method `transform` as the "
            f"features of a surrogate, got {str(features)!r}: open a file with "
            "pseudocal.app.model_file"
        )
    if hasattr(features, "transform") and not callable(features):
        return features.transform  # type: ignore[no-any-return]
    return as_predictor(features)


def _as_they_are(x: Inputs) -> Any:
    return x if hasattr(x, "toarray") else as_numpy(x, "inputs").reshape(count(x), -1)


def feature_rows(output: Any, n: int) -> NDArray[np.float32]:
    """Features as rows: maps `(n, d, height, width)` and tokens `(n, tokens, d)` are averaged.

    >>> feature_rows(np.ones((2, 5, 3, 3)), 2).shape, feature_rows(np.ones((2, 7, 5)), 2).shape
    ((2, 5), (2, 5))

    Args:
        output: The output of an encoder.
        n: The number of inputs.

    """
    dense = output.toarray() if hasattr(output, "toarray") else as_numpy(output, "features")
    if dense.ndim < 2 or dense.ndim > 4 or len(dense) != n:
        raise InputError(
            f"expected a row of features for each of {n} inputs, got shape {dense.shape}"
        )
    if dense.ndim == 4:
        dense = dense.mean(axis=(2, 3))
    elif dense.ndim == 3:
        dense = dense.mean(axis=1)
    found = np.ascontiguousarray(dense, dtype=np.float32)
    if not np.isfinite(found).all():
        raise InputError("expected finite features, got NaN or infinite ones")
    return found


def logit_features(logits: Logits) -> NDArray[np.float32]:
    """Logits as features: without what is the same for all classes, and finite.

    >>> logit_features(np.array([[2.0, 0.0, -np.inf], [9.0, 7.0, 7.0]])).round(1)
    array([[ 17.3,  15.3, -32.7],
           [  1.3,  -0.7,  -0.7]], dtype=float32)

    Args:
        logits: The logits of a second model, of shape `(n, classes)`.

    """
    below = np.maximum(below_top(logits), LEAST_LOGIT)
    found: NDArray[np.float32] = (below - below.mean(axis=1, keepdims=True)).astype(np.float32)
    return found


def check_surrogate(packed: Mapping[str, NDArray[Any]], classes: int) -> None:
    """Refuse what `SurrogateSample.pack` could not have returned."""
    numbers = packed[PACKED[0]]
    if numbers.dtype != np.float64 or numbers.shape != (6,):
        raise InputError(f"{PACKED[0]} is {numbers.dtype} of shape {numbers.shape}, not 6 numbers")
    memory, scaled, rows_seen, rows_ceiling, mixup_seen, mixup_ceiling = numbers.tolist()
    whole = [float(n).is_integer() and 0 <= n <= 2**53 for n in (memory, rows_seen, mixup_seen)]
    if not all(whole) or memory < 2**16 or scaled not in (0.0, 1.0, FROM_SECOND):
        raise InputError(f"{PACKED[0]} is {numbers.tolist()}")
    rows = Sample(packed.get(PACKED[1]), int(rows_seen), rows_ceiling)
    mixup = Sample(packed.get(PACKED[2]), int(mixup_seen), mixup_ceiling)
    check_sample(rows, PACKED[1], columns=None, classes=classes, groups=[()])
    check_sample(mixup, PACKED[2], columns=None, classes=classes, groups=[(2,)])
    if rows.rows is None or mixup.rows is None:
        return
    if mixup.rows.dtype["logits"] != rows.rows.dtype["logits"]:
        raise InputError(
            "the inputs and the mixup samples of the surrogate have different features"
        )


class SurrogateSample:
    """All a surrogate learns from a pass, in bounded memory.

    Two parts merge into what one pass over both would have kept.

    Args:
        memory: The most bytes to keep.
        scaled: Whether columns are divided by their standard deviation.
        from_second: Whether the features are the logits of a second model.

    """

    def __init__(self, memory: int, *, scaled: bool, from_second: bool = False) -> None:
        self.from_second = from_second
        self._memory, self._scaled = memory, scaled
        rng = np.random.default_rng(0)  # draws nothing: all rows come with their keys
        self._rows = Reservoir(int(memory * ROWS_SHARE), rng)
        self._mixup = Reservoir(memory - int(memory * ROWS_SHARE), rng)

    @classmethod
    def of(cls, batch_sample: SurrogateBatch) -> SurrogateSample:
        """An empty sample, for a surrogate with these settings."""
        surrogate = batch_sample.surrogate
        return cls(
            surrogate.memory,
            scaled=surrogate.features is None,
            from_second=batch_sample.from_second,
        )

    @classmethod
    def like(cls, packed: Mapping[str, NDArray[Any]]) -> SurrogateSample:
        """An empty sample, with the settings of a packed one."""
        memory, scaled = packed[PACKED[0]][:2].tolist()
        return cls(int(memory), scaled=bool(scaled), from_second=scaled == FROM_SECOND)

    def add(self, batch_sample: SurrogateBatch) -> None:
        """Add one batch. A mixup sample is kept as long as both of its inputs are."""
        for reservoir, part in (
            (self._rows, batch_sample.rows),
            (self._mixup, batch_sample.mixup_samples),
        ):
            if len(part):
                keys = part.groups.reshape(len(part), -1).max(axis=1)  # type: ignore[union-attr]
                reservoir.add(part, keys / KEY_RANGE)

    def pack(self) -> dict[str, NDArray[Any]]:
        """The sample as plain arrays, to be sent to another process."""
        parts = self._rows.sample, self._mixup.sample
        numbers = [
            self._memory,
            FROM_SECOND if self.from_second else float(self._scaled),
            *(n for part in parts for n in (part.seen, part.ceiling)),
        ]
        rows = {
            name: part.rows
            for name, part in zip(PACKED[1:], parts, strict=True)
            if part.rows is not None
        }
        return {PACKED[0]: np.array(numbers, dtype=np.float64), **rows}

    def merge(self, packed: Mapping[str, NDArray[Any]]) -> None:
        """Merge the sample of another part of the target.

        Args:
            packed: What `pack` returned.

        """
        numbers = packed[PACKED[0]][2:].tolist()
        for i, reservoir in enumerate((self._rows, self._mixup)):
            reservoir.merge_sample(
                Sample(packed.get(PACKED[i + 1]), int(numbers[2 * i]), numbers[2 * i + 1])
            )

    def opinion(self, classes: int) -> Opinion:
        """What the surrogates say, counted as the opinion of a second model is.

        Args:
            classes: The number of classes.

        """
        rows = self._rows.labelled
        order = np.argsort(_keys(rows))
        keys = _keys(rows)[order]
        unit = UnitRows.fitted(rows.logits, order, scaled=self._scaled)
        ridge = FoldedRidge.fitted(
            unit, rows.logits, rows.labels, order, keys % SURROGATE_FOLDS, classes
        )
        own = rows.labels[order]
        its = ridge.classes(rows.logits, order, keys[:, None] % SURROGATE_FOLDS)
        opinion = count_classes(own, its, classes)
        if self._mixup.seen == 0:
            return opinion
        mixup_samples = self._mixup.labelled
        at, first, second = _with_parents(_keys(mixup_samples), keys)
        at = at[certain_errors(mixup_samples.labels[at], [its[first], its[second]])]
        same = (
            ridge.classes(mixup_samples.logits, at, _keys(mixup_samples)[at] % SURROGATE_FOLDS)
            == mixup_samples.labels[at]
        )
        weights = None if mixup_samples.weights is None else mixup_samples.weights[at]
        return opinion + count_mistakes(mixup_samples.labels[at], same, classes, weights)


def count_classes(own: Classes, its: Classes, classes: int) -> Opinion:
    """Count on which inputs an opinion agrees that has classes but no confidences.

    >>> count_classes(np.array([0, 0, 2]), np.array([0, 1, 2]), classes=3).agreed.tolist()
    [1.0, 0.0, 1.0]
    """
    inputs, agreed = (
        np.bincount(own, of_one, classes).astype(np.float64) for of_one in (None, own == its)
    )
    return Opinion(inputs, agreed, np.full(classes, np.nan), *np.zeros((3, classes)))


def _keys(rows: Labelled) -> NDArray[np.int64]:
    assert rows.groups is not None
    return rows.groups


def _with_parents(
    of_mixup: NDArray[np.int64], keys: NDArray[np.int64]
) -> Iterator[NDArray[np.intp]]:
    """The mixup samples whose two inputs were kept, in order of their keys, and the two inputs."""
    order = np.lexsort(of_mixup.T)
    places = np.minimum(np.searchsorted(keys, of_mixup[order]), len(keys) - 1)
    kept = (keys[places] == of_mixup[order]).all(axis=1)
    yield order[kept]
    yield from places[kept].T
