"""PseudoCal: calibrate a model with nothing but itself and unlabelled target data."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Literal

import numpy as np

from pseudocal.arrays import Batch, InputError, Labelled, Logits, Predictor
from pseudocal.batches import fitting, is_array, is_stream, shuffled, streamed
from pseudocal.calibrators.calibration import Calibration
from pseudocal.calibrators.collected import Collected, Settled
from pseudocal.calibrators.divided import Executor, collect_in_blocks
from pseudocal.calibrators.second_opinion import find_mistakes
from pseudocal.calibrators.trust import DistrustWarning, Trust, judge
from pseudocal.maps import check_pixels, predicted, sampled
from pseudocal.predictors import Checked, as_predictor
from pseudocal.scaling import TemperatureScaling
from pseudocal.synthesis import Pairs, Strategy, mixup, pairs_anywhere, pairs_within
from pseudocal.synthesis.mixup import check_share


@dataclass(frozen=True)
class PseudoCal:
    """Mix target inputs that the model tells apart, fit a temperature on the mixes, use it on the real ones.

    Settings only; `fit` does the work and returns a `Calibration`.

    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(1000, 2)) + 2 * rng.integers(0, 2, size=(1000, 1))
    >>> model = lambda x: np.stack([np.zeros(len(x)), 9 * (x.sum(axis=1) - 2)], axis=1)  # far too sure of itself
    >>> calibration = PseudoCal().fit(model, x)
    >>> calibration
    Calibration(pseudocal: T = ... in [...], from ... rows)
    >>> calibration.temperature > 3
    True

    `lam` is the larger share of a mix. `labels` are "hard", the predicted class of the larger share, or "soft", the
    class of the largest mixed probability. `epochs` repeats the pass with new pairs. `tolerance` stops as soon as the
    standard error of log T is below it: 0.02 takes some thousand mixes, the fewer the more classes there are, however
    large the data. `memory` bounds, in bytes, what is held at a time. An array of images whose every pixel gets a class
    is cut into batches that fit, of two at least; batches of a stream are taken as they come. `pairing` draws
    the partners of a stream of batches from "anywhere" in what was seen so far, so that a sorted stream does no harm,
    or from the same "batch", as the paper does. `binary` says that the model gives one logit per row, which stands for
    the two columns (0, z). `pixels` is how many random pixels of each image count where the model labels every pixel,
    None for all. `estimator` is "mixes", the paper's, or "agreement", which needs a second opinion and matches the
    mean confidence to the accuracy that the agreement of the two models implies. `on_distrust` says what to do with a
    temperature that should not be applied: "warn", or give the "identity", a temperature of one.
    """

    lam: float = 0.65
    labels: Literal["hard", "soft"] = "hard"
    epochs: int = 1
    seed: int = 0
    memory: int = 2**29
    tolerance: float | None = None
    pairing: Literal["anywhere", "batch"] = "anywhere"
    binary: bool = False
    pixels: int | None = 20_000
    estimator: Literal["mixes", "agreement"] = "mixes"
    on_distrust: Literal["warn", "identity"] = "warn"

    def __post_init__(self) -> None:
        check_share(self.lam)
        if self.labels not in ("hard", "soft"):
            raise InputError(f"expected labels 'hard' or 'soft', got {self.labels!r}")
        if self.pairing not in ("anywhere", "batch"):
            raise InputError(f"expected pairing 'anywhere' or 'batch', got {self.pairing!r}")
        if self.estimator not in ("mixes", "agreement"):
            raise InputError(f"expected estimator 'mixes' or 'agreement', got {self.estimator!r}")
        if self.on_distrust not in ("warn", "identity"):
            raise InputError(f"expected on_distrust 'warn' or 'identity', got {self.on_distrust!r}")
        if self.epochs < 1:
            raise InputError(f"expected at least one epoch, got {self.epochs}")
        if self.seed < 0:
            raise InputError(f"expected a seed that is not negative, got {self.seed}")
        if self.memory < 2**16:
            raise InputError(f"expected memory of at least 65536 bytes, got {self.memory}")
        if self.tolerance is not None and not self.tolerance > 0:
            raise InputError(f"expected a positive tolerance, got {self.tolerance}")
        check_pixels(self.pixels)

    def fit(
        self,
        model: Any,
        data: Any,
        *,
        second_opinion: Any = None,
        batch_size: int = 128,
        strategy: Strategy | None = None,
        watch: Callable[[Labelled], object] | None = None,
        executor: Executor | None = None,
    ) -> Calibration:
        """Calibrate `model` on unlabelled target `data`.

        The model is a callable from a batch to logits, a torch module, or a scikit-learn classifier; it gives `(n,
        classes)`, or `(n, classes, height, width)` if it labels every pixel. The data is an array of inputs (cut into
        batches of `batch_size`, or of as many images as fit into `memory` where every pixel gets a class), or any
        iterable of batches such as a DataLoader; labels in it are never looked at. `second_opinion` is another model
        of the same classes, best one that was trained in the same way from another seed: it tells how far to trust the
        answer. `strategy` synthesises in the place of mixup, as in the paper's ablation. `watch` is shown each batch
        of mixes, for whoever draws or keeps them. `executor` spreads the work, such as
        `pseudocal.distributed.RayExecutor(workers=8)`; the data is then an array, or a list of blocks such as
        `pseudocal.app.inputs.shards("s3://bucket/*.parquet")`, and the model may be the name of a model file.
        """
        settings: dict[str, Any] = {}
        if executor is None:
            model = as_predictor(model)
            batch_size = fitting(model, data, batch_size, self.memory)
            settings["batch_size"] = batch_size if is_array(data) else None
            collected = self.collect(
                model, data, second_opinion=second_opinion, batch_size=batch_size, strategy=strategy, watch=watch
            )
        elif watch is None:
            collected, record = collect_in_blocks(
                self,
                model,
                data,
                executor,
                second_opinion=second_opinion,
                batch_size=batch_size,
                strategy=strategy,
            )
            settings |= record
        else:
            raise InputError("expected no watch with an executor, since the mixes stay with the workers, got one")
        if strategy is not None:  # it has a share and labels of its own
            settings |= {"lam": None, "labels": None, "strategy": _name(strategy)}
        return self.conclude(collected, settings)

    def collect(
        self,
        model: Any,
        data: Any,
        *,
        second_opinion: Any = None,
        batch_size: int = 128,
        strategy: Strategy | None = None,
        watch: Callable[[Labelled], object] | None = None,
        part: int | None = None,
        pair_rng: np.random.Generator | None = None,
    ) -> Collected:
        """The first half of `fit`: pass over the data, or over one part of it, and keep what a fit will need.

        Each part of a divided target draws its own numbers, which depend on the seed and on `part` alone; those that
        pair its inputs come from `pair_rng` if there is one.
        """
        if second_opinion is None and self.estimator == "agreement":
            raise InputError("expected a second opinion, whose agreement the temperature is to come from, got none")
        if second_opinion is not None and strategy is not None:
            raise InputError(f"expected mixup, whose mistakes a second opinion is asked about, got {_name(strategy)}")
        predict = Checked(as_predictor(model), binary=self.binary)
        second = None if second_opinion is None else Checked(as_predictor(second_opinion), binary=self.binary)
        rng = np.random.default_rng(self.seed if part is None else (self.seed, part))
        own_rng, keep_rng, draw_rng, real_rng = rng.spawn(4)
        collected = Collected(self.memory * 3 // 4, keep_rng)
        synthesise = strategy or partial(mixup, lam=self.lam, labels=self.labels, pixels=self.pixels)
        settled = Settled(self.tolerance)

        def met(x: Batch) -> Any:
            """What is remembered of real inputs; of maps the predicted classes are enough, unless labels are soft."""
            said = predict(x)
            collected.meet(tuple(x.shape[1:]))
            if collected.epochs == 1:
                collected.inputs += len(said)
            if said.ndim == 2:
                if collected.epochs == 1:
                    collected.add_real(_real(said, x, second))
                return said
            if strategy is not None or second is not None:
                what = "a second opinion" if strategy is None else _name(strategy)
                raise InputError(f"expected mixup alone for a model that labels every pixel, got {what}")
            classes = predicted(said)
            if collected.epochs == 1:
                collected.add_real(sampled(said, classes, self.pixels, real_rng))
            return said if self.labels == "soft" else classes

        for pairs in self._pairs(met, data, batch_size, pair_rng or own_rng, collected):
            mixes = synthesise(predict, pairs, rng=draw_rng)
            collected.add_mixes(mixes, pairs=len(pairs))
            if second is not None and len(mixes):
                collected.add_mistakes(find_mistakes(second, pairs, mixes, self.lam))
            if watch is not None and len(mixes):
                watch(mixes)
            if settled(collected):
                break
        collected.forward_passes = predict.rows + (second.rows if second is not None else 0)
        return collected

    def conclude(self, collected: Collected, settings: dict[str, Any] | None = None) -> Calibration:
        """The second half of `fit`: a calibration from what was collected, here or in many places."""
        settings = asdict(self) | (settings or {})
        if collected.mixes.seen == 0:
            raise InputError(_why_no_mixes(collected, settings.get("strategy")))
        scaling, agreement = collected.temperature(), collected.agreement
        if self.estimator == "agreement" and agreement is not None and not agreement.empty:
            scaling = agreement.temperature(collected.real.labelled)
        if settings.get("strategy"):  # made to be compared, not to be applied
            return Calibration("pseudocal", scaling, settings, collected.counts)
        trust = judge(collected.real.labelled, scaling, mixes=collected.mixes.seen, agreement=agreement)
        return Calibration("pseudocal", self._heeded(scaling, trust), settings, collected.counts, trust=trust)

    def _heeded(self, scaling: TemperatureScaling, trust: Trust) -> TemperatureScaling:
        """The temperature, or one in its place, or a warning, as `on_distrust` has it."""
        if trust.verdict != "do not apply":
            return scaling
        if self.on_distrust == "identity":
            return TemperatureScaling(1.0, rows=scaling.rows)
        warnings.warn(f"this calibration should not be applied: {trust.reasons[0]}", DistrustWarning, stacklevel=4)
        return scaling

    def _pairs(
        self, met: Predictor, data: Any, batch_size: int, rng: np.random.Generator, collected: Collected
    ) -> Iterator[Pairs]:
        """Pairs of target inputs, `epochs` times over; what the model says of each input is collected once."""
        if batch_size < 2:
            raise InputError(f"expected a batch size of at least 2, got {batch_size}")
        if not is_array(data) and not is_stream(data):
            hint = ": pass its .inputs" if hasattr(data, "inputs") else ""
            raise InputError(f"expected an array of inputs or an iterable of batches, got {type(data).__name__}{hint}")
        if self.epochs > 1 and isinstance(data, Iterator):
            raise InputError(
                "expected data that can be read again for each epoch, got an iterator: pass a list or a loader"
            )

        for epoch in range(1, self.epochs + 1):
            collected.epochs = epoch
            if is_array(data):
                yield from pairs_within(met, shuffled(data, batch_size, rng), rng=rng)
            elif self.pairing == "batch":
                yield from pairs_within(met, streamed(data), rng=rng)
            else:
                yield from pairs_anywhere(met, streamed(data), rng=rng, memory=self.memory // 4)


def _real(said: Logits, x: Batch, second: Predictor | None) -> Labelled:
    """Real inputs with the class that a second opinion gives each, or else the model's own."""
    other = said if second is None else second(x)
    if other.shape != said.shape:
        raise InputError(f"expected a second opinion on {said.shape[1]} classes, got {other.shape[1]}")
    return Labelled(said, other.argmax(axis=1))


def _name(strategy: Strategy) -> str:
    """What to call a strategy in the record of a run."""
    named = strategy.func if isinstance(strategy, partial) else strategy
    return getattr(named, "__name__", type(named).__name__)


def _why_no_mixes(collected: Collected, strategy: str | None) -> str:
    rows, paired, real = collected.inputs, collected.pairs, collected.real
    maps = real.seen > 0 and real.labelled.groups is not None  # then what is real are pixels
    if paired == 0 and rows > 1 and len(collected.shapes) == rows:
        first = ", ".join(" x ".join(map(str, shape)) for shape in collected.shapes[:3])
        return (
            f"expected inputs of which two share a size, since those are paired, got {rows} of as many sizes "
            f"({first}{', ...' if rows > 3 else ''}): resize them to one size, or to a few"
        )
    if paired == 0 and rows > 1:
        return f"expected batches of at least two inputs to pair within them, got {rows} inputs in batches of one"
    if paired == 0:
        return f"expected at least two target inputs to mix, got {rows}"
    if strategy is not None:
        return f"expected at least one row from the strategy, got none of {paired} pairs"
    if maps:
        return (
            f"expected images that the model tells apart somewhere, got {rows} of which no two that were paired "
            "differ in the class of any pixel: are they different images?"
        )
    return (
        f"expected target inputs that the model tells apart, got one predicted class for all {rows}: "
        "a model that always says the same cannot be calibrated by mixing its inputs"
    )
