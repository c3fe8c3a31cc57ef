"""PseudoCal: calibrate a model with nothing but the model and unlabelled target data.

`PseudoCal.steps` is the method: predict a batch, pair its inputs, mix the pairs, predict the mixup
samples. `fit` is a fold over the steps, and `conclude` fits T to what they add up to. The mixup of
two inputs with different predicted classes is `mixup` in `mixup/mixup.py`; `mixup/pairs.py` draws
the pairs. What second opinions say of a batch is `_SecondOpinions`, at the end of this file.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Literal

import numpy as np

from pseudocal.arrays import (
    InputError,
    Inputs,
    Labelled,
    Logits,
    Maps,
    Predictor,
    check_choice,
    check_pixels_per_image,
)
from pseudocal.batches import (
    DEFAULT_BATCH_SIZE,
    MISSING,
    Batch,
    batches_of,
    columns_not_mixed,
    count,
    fitting,
    is_array,
    is_stream,
)
from pseudocal.calibrators.agreement import Consensus, Opinion, Suspects
from pseudocal.calibrators.calibration import Calibration
from pseudocal.calibrators.confidence import confidences, match_confidence, mean_confidence
from pseudocal.calibrators.evidence import Evidence, Step, count_opinions
from pseudocal.calibrators.executors import Executor, collect_in_blocks
from pseudocal.calibrators.surrogate import Surrogate, SurrogateBatch, SurrogateCollector
from pseudocal.calibrators.trust import (
    AccuracyEstimate,
    Trust,
    consensus_from,
    judge,
    too_close,
    warn_if_unreliable,
)
from pseudocal.calibrators.wording import Reason, ReasonCode
from pseudocal.maps import predicted, sampled
from pseudocal.mixup import AnywhereBefore, Pairing, Pairs, Strategy, WithinBatch
from pseudocal.mixup.mixup import check_lam, mixup
from pseudocal.predictors import (
    Checked,
    as_predictor,
    check_same_classes,
    models_in,
    second_logits,
)
from pseudocal.randomness import Streams
from pseudocal.scaling import TemperatureScaling

SAMPLES = 5 / 8  # of the memory, for logits of mixup samples and of inputs
PARTNERS = 1 / 4  # of the memory, for earlier inputs of a stream; the rest is for working copies
# of the memory, on top of it, for a surrogate that is fitted on the logits of a second model
SURROGATE_OF_SECOND = 1 / 4
# bytes for each pair of features of a surrogate: with so many classes that they do not fit, a second
# model brings none
BYTES_OF_PAIR = 120
ENOUGH_MIXUP_SAMPLES = 1000  # the partners that were drawn then move the temperature by some 3%
MOST_EPOCHS = 16  # a target of a dozen inputs has few different pairs


@dataclass(frozen=True)
class PseudoCal:
    """Mix target inputs with different predicted classes, and fit a temperature on the mixup samples.

    This class holds the settings; `fit` does the work and returns a `Calibration`.

    >>> rng = np.random.default_rng(0)
    >>> x = 3 * np.eye(3)[rng.integers(3, size=1000)] + rng.normal(size=(1000, 3))
    >>> calibration = PseudoCal().fit(lambda x: 9 * x, x)  # an overconfident model
    >>> calibration
    Calibration(pseudocal: T = ... in [...], from ... rows, verdict: caution)
    >>> calibration.temperature > 3
    True

    Attributes:
        lam: The weight of the larger input, between 0.5 and 1.
        labels: "hard", the predicted class of the input with the larger weight, or "soft", the
            class of the largest mixed probability.
        epochs: How often each input is mixed, each time with a new partner. The paper uses 1. None
            is as many as a small array needs (`epochs_for`), and 1 otherwise.
        seed: The seed of the order, the pairs and the samples.
        memory: The most bytes that `fit` keeps of the target, with its working copies: five eighths
            for the samples of logits, a quarter for partners from earlier batches of a stream, an
            eighth for sorting and fitting. A full sample is a uniform sample of all rows. Not
            included are the data, the model, about eight copies of the inputs and logits of one
            batch, and a surrogate, which has its own limit (a quarter of this beside a second
            model). For a segmentation model, batches of an array are made small enough for these
            copies to fit into `memory` too, down to two images. Batches of a stream are used
            unchanged. With an executor, each process has this limit.
        tolerance: Stop as soon as the standard error of log T is below this. 0.02 takes some
            thousand mixup samples, however large the data; None uses all data.
        pairing: For a stream: draw partners from "anywhere" in the batches seen so far, which is
            safe for sorted streams, or from the same "batch", as in the paper. None is "anywhere",
            and "batch" in a run of the application, which shuffles its inputs.
        binary: Whether the model returns one logit z per input, which stands for the two logits (0,
            z).
        pixels_per_image: For a segmentation model: how many pixels of each image to sample; None
            for all.
        estimator: "mixup", as in the paper; "agreement", which needs a second opinion and
            matches the mean confidence to the accuracy estimated from the models' agreement; or
            "auto", which is "agreement" with a usable second opinion and "mixup" without one. With
            two classes, or if the confidence is close to the estimated accuracy, "auto" applies
            nothing (T = 1): label about 50 inputs.
        on_unreliable: What to do with a temperature that should not be applied: "warn", or return
            the "identity", T = 1, and keep the other as `Calibration.refused`. None means "warn",
            and "identity" in a run of the application.

    """

    lam: float = 0.65
    labels: Literal["hard", "soft"] = "hard"
    epochs: int | None = None
    seed: int = 0
    memory: int = 2**29
    tolerance: float | None = None
    pairing: Literal["anywhere", "batch"] | None = None
    binary: bool = False
    pixels_per_image: int | None = 20_000
    estimator: Literal["auto", "mixup", "agreement"] = "auto"
    on_unreliable: Literal["warn", "identity"] | None = None

    def __post_init__(self) -> None:
        check_lam(self.lam)
        check_choice("labels", self.labels, "hard", "soft")
        check_choice("pairing", self.pairing or "anywhere", "anywhere", "batch")
        check_choice("estimator", self.estimator, "auto", "mixup", "agreement")
        check_choice("on_unreliable", self.on_unreliable or "warn", "warn", "identity")
        if self.epochs is not None and self.epochs < 1:
            raise InputError(f"expected at least one epoch, got {self.epochs}")
        if self.seed < 0:
            raise InputError(f"expected a seed of at least 0, got {self.seed}")
        if self.memory < 2**16:
            raise InputError(f"expected memory of at least 65536 bytes, got {self.memory}")
        if self.tolerance is not None and not self.tolerance > 0:
            raise InputError(f"expected a positive tolerance, got {self.tolerance}")
        check_pixels_per_image(self.pixels_per_image)

    def fit(
        self,
        model: Any,
        data: Any,
        *,
        second_opinion: Any = None,
        batch_size: int = DEFAULT_BATCH_SIZE,
        strategy: Strategy | None = None,
        executor: Executor | None = None,
    ) -> Calibration:
        """Calibrate `model` on unlabelled target `data`.

        Args:
            model: A callable from a batch to logits, a torch module, or a scikit-learn classifier.
                It returns `(n, classes)`, or `(n, classes, height, width)` for segmentation.
            data: An array of inputs, or an iterable of batches such as a DataLoader; labels in it
                are ignored. With an executor: an array, or a list of blocks such as
                `pseudocal.app.shards("s3://bucket/*.parquet")`. A table with texts, categories,
                dates or missing values is not mixed: T = 1, with a warning, until labels refine it.
            second_opinion: Another model with the same classes, ideally trained in the same way
                with another seed, a `Surrogate` if there is none, or a list of them. The accuracy,
                the temperature and the verdict are estimated from their agreement.
            batch_size: The number of inputs of an array that are predicted together; fewer for a
                segmentation model if they do not fit into `memory`.
            strategy: Replaces mixup, as in the paper's ablation.
            executor: Distributes the work, such as `pseudocal.distributed.RayExecutor(workers=8)`.

        """
        unmixed = columns_not_mixed(data)
        if unmixed:
            self._check(data, second_opinion, batch_size, strategy)
            useless = {
                "second opinion": bool(models_in(second_opinion)),
                "strategy": strategy is not None,
                "executor": executor is not None,
            }
            passed = [name for name, given in useless.items() if given]
            if passed:
                raise InputError(
                    f"expected no {' and no '.join(passed)} for a table that cannot be mixed "
                    f"(columns {_columns(unmixed)}): leave it out, and pass about 50 labels to "
                    "Calibration.refined"
                )
            return self._fit_unmixed(model, data, unmixed, batch_size)
        models = (model, second_opinion)
        settings = dict[str, Any]()
        if executor is None:
            model = as_predictor(model)
            batch_size = fitting(model, data, batch_size, self.memory)
            settings["batch_size"] = batch_size if is_array(data) else None
            evidence = self.collect(
                model, data, second_opinion=second_opinion, batch_size=batch_size, strategy=strategy
            )
        else:
            evidence, settings = collect_in_blocks(
                self, models, data, executor, batch_size=batch_size, strategy=strategy
            )
        if strategy is not None:  # it has its own weight and labels
            settings |= {"lam": None, "labels": None, "strategy": _name(strategy)}
        calibration = self.conclude(evidence, settings)
        if self.on_unreliable != "identity":
            warn_if_unreliable(calibration.trust)
        return calibration

    def _fit_unmixed(
        self, model: Any, table: Any, columns: dict[str, str], batch_size: int
    ) -> Calibration:
        """T = 1 for a table that cannot be mixed, to be refined with labels."""
        evidence = self.empty_evidence()
        order = Streams(self.seed).order()
        batches = batches_of(table, batch_size, order)
        for step in unmixed_steps(_checked(model, self.binary), batches):
            evidence.add(step)
        kept = ("seed", "on_unreliable")
        settings = {name: getattr(self, name) for name in kept} | {"batch_size": batch_size}
        why = Reason(ReasonCode.TABLES_NOT_MIXED)
        calibration = unmixed_calibration(evidence, settings, why)
        fill_in = FILL_IN if set(columns.values()) == {MISSING} else ""
        warnings.warn(
            f"T = 1, nothing was fitted. These columns cannot be mixed: {_columns(columns)}. "
            f"{fill_in}Label about 50 rows, chosen by pseudocal.rows_to_label, and pass them to "
            "Calibration.refined",
            UserWarning,
            stacklevel=3,
        )
        return calibration

    def collect(
        self,
        model: Any,
        data: Any,
        *,
        second_opinion: Any = None,
        batch_size: int = DEFAULT_BATCH_SIZE,
        strategy: Strategy | None = None,
        part: int | None = None,
    ) -> Evidence:
        """The first half of `fit`: fold the steps into evidence.

        The arguments are those of `steps`.
        """
        evidence = self.empty_evidence(part)
        for step in self.steps(
            model,
            data,
            second_opinion=second_opinion,
            batch_size=batch_size,
            strategy=strategy,
            part=part,
        ):
            evidence.add(step)
            if evidence.converged(self.tolerance):
                break
        return evidence

    def epochs_for(self, total: int) -> int:
        """How often each of `total` inputs is mixed.

        The temperature from m mixup samples varies by about 1 / sqrt(m) with the partners that were
        drawn. So fewer than 1,000 inputs are mixed several times, up to 1,000 mixup samples.

        >>> PseudoCal().epochs_for(150), PseudoCal().epochs_for(5000)
        (7, 1)
        >>> PseudoCal(epochs=1).epochs_for(150)
        1
        """
        if self.epochs is not None:
            return self.epochs
        return min(MOST_EPOCHS, math.ceil(ENOUGH_MIXUP_SAMPLES / max(1, total)))

    def empty_evidence(self, part: int | None = None) -> Evidence:
        """Empty evidence of bounded size, to which steps are added; `part` is as in `steps`."""
        return Evidence(int(self.memory * SAMPLES), Streams(self.seed, part))

    def steps(
        self,
        model: Any,
        data: Any,
        *,
        second_opinion: Any = None,
        batch_size: int = DEFAULT_BATCH_SIZE,
        strategy: Strategy | None = None,
        part: int | None = None,
        total: int | None = None,
    ) -> Iterator[Step]:
        """The method, batch by batch.

        Predict the inputs, pair them, mix the pairs, predict the mixup samples.

        Args:
            model: The model, as in `fit`.
            data: The data, as in `fit`.
            second_opinion: Another model or a list of them, as in `fit`.
            batch_size: The batch size, as in `fit`.
            strategy: Replaces mixup, as in `fit`.
            part: The number of the block if `data` is a block of the target; each has its own
                random numbers.
            total: The number of inputs of the whole target if it is known and `data` does not show
                it: a stream or a block.

        """
        self._check(data, second_opinion, batch_size, strategy)
        streams = Streams(self.seed, part)
        predict = _checked(model, self.binary)
        second = _SecondOpinions.of(self, predict, second_opinion, streams)
        make_mixup = strategy or partial(
            mixup, lam=self.lam, labels=self.labels, pixels_per_image=self.pixels_per_image
        )
        epochs = self._epochs(data, strategy, part, total)
        pairing = self._pairing(data, streams)
        for batch in batches_of(data, batch_size, streams.order()):
            counted = predict.rows + second.rows
            logits = predict(batch.inputs)
            others = second.logits(batch.inputs, logits)
            outputs = self._remembered(logits, strategy)
            real = self._real(logits, outputs, streams.real(batch.number))
            second.check(real)
            classes = _classes(others)
            # each pair of images gives thousands of pixels
            repeats = 1 if self.epochs is None and logits.ndim > 2 else epochs
            del logits  # a map is large: let it go before the mixup samples are predicted
            for epoch in range(repeats):
                pairs = pairing.of(batch, outputs, classes, epoch)
                rng = streams.mixup_variant(batch.number, epoch)
                mixup_samples = make_mixup(predict, pairs, rng=rng) if len(pairs) else NO_MIXUP
                said = second.say(batch, real, others, pairs, mixup_samples, epoch)
                opinions, surrogate_samples = said
                passes = predict.rows + second.rows - counted
                counted += passes
                yield Step(
                    rows=batch.rows,
                    shape=tuple(batch.inputs.shape[1:]),
                    real=real,
                    pairs=len(pairs),
                    mixup_samples=mixup_samples,
                    opinions=opinions,
                    passes=passes,
                    epoch=epoch,
                    surrogate_samples=surrogate_samples,
                    second_logits=others if epoch == 0 else (),
                )
            pairing.keep(batch, outputs, classes)

    def conclude(self, evidence: Evidence, settings: dict[str, Any] | None = None) -> Calibration:
        """The second half of `fit`: a calibration from the evidence.

        Args:
            evidence: The evidence, collected here or merged from several workers.
            settings: Further settings for the record of the run.

        """
        settings = asdict(self) | {"epochs": evidence.epochs} | (settings or {})
        if evidence.mixup_samples.seen == 0:
            raise InputError(evidence.why_no_mixup_samples(settings.get("strategy")))
        found = {"mixup": evidence.temperature()}
        real = evidence.real.labelled
        classes = real.logits.shape[1]
        if settings.get("strategy"):  # for comparison only, so it gets no verdict
            settings["estimator"] = "mixup"
            return Calibration(
                "pseudocal", found["mixup"], settings, evidence.counts, classes=classes
            )
        agreements = evidence.agreements
        consensus = consensus_from(agreements, real)
        if consensus is not None:
            found[consensus.estimator] = match_confidence(
                real.logits, consensus.accuracy, consensus.error
            )
        used = self._used(consensus, real)
        settings["estimator"] = used
        if used == "none":
            found["none"] = TemperatureScaling(1.0, rows=found["mixup"].rows)
        trust = judge(
            real,
            found,
            used,
            mixup_samples=evidence.mixup_samples.seen,
            agreements=agreements,
            consensus=consensus,
        )
        estimates = {
            name: each.temperature
            for name, each in found.items()
            if name != "none" and not each.bound
        }
        fitted = Calibration(
            "pseudocal",
            found[used],
            settings,
            evidence.counts,
            trust=trust,
            estimates=estimates,
            classes=classes,
        )
        return fitted.without_refused()

    def _used(self, consensus: Consensus | None, real: Labelled) -> str:
        """The estimator whose temperature is applied; "none" is T = 1.

        That is "mixup" on request. Without a usable second opinion it is "mixup" too, except with
        two classes: then nothing can be checked without labels, and temperatures from mixup samples
        made calibration worse on average in our tests. With a usable one, temperatures that are too
        near to 1 for the estimate to tell whether they help are applied on request only.
        """
        if self.estimator == "mixup":
            return "mixup"
        if consensus is None:
            return "none" if real.logits.shape[1] == 2 else "mixup"
        if self.estimator == "auto" and too_close(consensus, mean_confidence(real, 1.0)):
            return "none"
        return consensus.estimator

    def _check(
        self, data: Any, second_opinion: Any, batch_size: int, strategy: Strategy | None
    ) -> None:
        """Reject invalid arguments before the first forward pass."""
        if not models_in(second_opinion) and self.estimator == "agreement":
            raise InputError(
                f"expected a second opinion for the estimator 'agreement', got {second_opinion}"
            )
        if models_in(second_opinion) and strategy is not None:
            raise InputError(
                f"expected no strategy together with a second opinion, got {_name(strategy)}"
            )
        if any(second is Surrogate for second in models_in(second_opinion)):
            raise InputError(
                "expected Surrogate() or Surrogate(features) as a second opinion, got the class "
                "Surrogate"
            )
        surrogates = [each for each in models_in(second_opinion) if isinstance(each, Surrogate)]
        if len(surrogates) > 1:
            raise InputError(
                f"expected at most one surrogate among the second opinions, got {len(surrogates)}"
            )
        if batch_size < 2:
            raise InputError(f"expected a batch size of at least 2, got {batch_size}")
        if not is_array(data) and not is_stream(data):
            hint = ": pass its .inputs" if hasattr(data, "inputs") else ""
            raise InputError(
                "expected an array of inputs or an iterable of batches, got "
                f"{type(data).__name__}{hint}"
            )

    def _epochs(
        self, data: Any, strategy: Strategy | None, part: int | None, total: int | None
    ) -> int:
        """How often each input is mixed: once if the size of the target is not known."""
        if total is None and part is None and is_array(data):
            total = count(data)
        if self.epochs is None and (total is None or strategy is not None):
            return 1
        return self.epochs_for(total or 0)

    def _pairing(self, data: Any, streams: Streams) -> Pairing:
        """An array is shuffled as a whole, so partners within a batch are as good as any."""
        if is_array(data) or self.pairing == "batch":
            return WithinBatch(streams)
        return AnywhereBefore(int(self.memory * PARTNERS), streams.past())

    def _remembered(self, logits: Logits | Maps, strategy: Strategy | None) -> Any:
        """What pairing keeps of the logits.

        For maps, only the predicted classes unless labels are soft.
        """
        if logits.ndim > 2 and strategy is not None:
            raise InputError(f"expected mixup for a segmentation model, got {_name(strategy)}")
        return predicted(logits) if logits.ndim > 2 and self.labels == "hard" else logits

    def _real(self, logits: Logits | Maps, outputs: Any, rng: np.random.Generator) -> Labelled:
        """Real rows (or sampled pixels), labelled with the predicted class."""
        if logits.ndim > 2:
            return sampled(
                logits,
                outputs if outputs.ndim == 3 else predicted(logits),
                self.pixels_per_image,
                rng,
            )
        return Labelled(logits, logits.argmax(axis=1))


@dataclass(frozen=True)
class _SecondOpinions:
    """What is asked beside the model, if anything: second models, surrogates, or both.

    Attributes:
        lam: The weight of the larger input of a mixup sample.
        models: The second models.
        surrogates: The surrogates that were passed.
        of_second: A surrogate whose features are the logits of the first second model. It is used
            if there is a second model, and no surrogate was passed.
        of_second_memory: The most bytes that it may take.

    """

    lam: float
    models: list[Checked]
    surrogates: list[SurrogateCollector]
    of_second: SurrogateCollector | None
    of_second_memory: int

    @classmethod
    def of(
        cls, method: PseudoCal, predict: Checked, second_opinion: Any, streams: Streams
    ) -> _SecondOpinions:
        given = models_in(second_opinion)
        models = [_checked(one, method.binary) for one in given if not isinstance(one, Surrogate)]
        check_same_classes(predict, models)
        surrogates = [
            SurrogateCollector(one, streams) for one in given if isinstance(one, Surrogate)
        ]
        memory = max(2**16, int(method.memory * SURROGATE_OF_SECOND))
        of_second = None
        if models and not surrogates:
            of_second = SurrogateCollector(Surrogate(memory=memory), streams)
        return cls(method.lam, models, surrogates, of_second, memory)

    @property
    def rows(self) -> int:
        """How many inputs and mixup samples they predicted."""
        asked: list[Checked | SurrogateCollector] = [*self.models, *self.surrogates]
        return sum(each.rows for each in asked)

    def check(self, real: Labelled) -> None:
        """Refuse a surrogate for rows that are pixels."""
        if self.surrogates:
            SurrogateCollector.check(real)

    def logits(self, inputs: Inputs, logits: Logits | Maps) -> list[Logits]:
        """The logits of each second model, for inputs that the model has predicted."""
        return second_logits(self.models, inputs, logits)

    def say(
        self,
        batch: Batch,
        real: Labelled,
        others: list[Logits],
        pairs: Pairs,
        mixup_samples: Labelled,
        epoch: int,
    ) -> tuple[list[Opinion], list[SurrogateBatch]]:
        """What each second model says of a batch, and what each surrogate learns from it.

        Args:
            batch: The inputs.
            real: The model's logits for them.
            others: The logits of each second model for them.
            pairs: The pairs that were mixed.
            mixup_samples: The mixup samples, with the model's logits.
            epoch: How often the batch was paired before.

        """
        if not self.models and not self.surrogates:
            return [], []
        suspects = Suspects.of(pairs, mixup_samples, self.lam)
        said = [suspects.predicted_by(model) for model in self.models]
        opinions = count_opinions(others, real, suspects, said)
        sample = (batch, real, suspects, epoch)
        learned = [surrogate.batch_sample(*sample) for surrogate in self.surrogates]
        classes = real.logits.shape[1]
        has_room = classes > 2 and BYTES_OF_PAIR * classes**2 <= self.of_second_memory
        if self.of_second and has_room:
            learned.append(self.of_second.batch_sample(*sample, given=(others[0], said[0])))
        return opinions, learned


COLUMNS_SHOWN = 8
FILL_IN = "Fill in missing values before fit, or do this. "
NO_MIXUP = Labelled(np.empty((0, 2)), np.empty(0, dtype=np.intp))


def unmixed_steps(predict: Predictor, batches: Iterable[Batch]) -> Iterator[Step]:
    """Steps for inputs that cannot be mixed, such as texts: they are predicted only.

    Args:
        predict: The model.
        batches: The inputs.

    """
    for batch in batches:
        logits = predict(batch.inputs)
        if logits.ndim != 2:
            raise InputError(
                f"expected one class for each input that cannot be mixed, got logits {logits.shape}"
            )
        yield Step(
            batch.rows,
            shape=tuple(batch.inputs.shape[1:]),
            real=Labelled(logits, logits.argmax(axis=1)),
            pairs=0,
            mixup_samples=NO_MIXUP,
            opinions=(),
            passes=count(batch.inputs),
        )


def unmixed_calibration(evidence: Evidence, settings: dict[str, Any], why: Reason) -> Calibration:
    """Conclude from steps without mixup samples: T = 1, and a verdict of caution.

    Args:
        evidence: What the steps add up to.
        settings: The settings for the record of the run.
        why: Why nothing was mixed.

    """
    logits = evidence.real.labelled.logits
    confidence = float(confidences(logits).mean())
    known = {"confidence before": confidence, "confidence after": confidence, "mixup_samples": 0.0}
    reasons = (why, Reason(ReasonCode.NOTHING_FITTED))
    trust = Trust("caution", reasons, AccuracyEstimate(confidence, 0.0, 1.0), known)
    return Calibration(
        "none",
        TemperatureScaling(1.0),
        settings,
        evidence.counts,
        trust=trust,
        classes=logits.shape[1],
    )


def _checked(model: Any, binary: bool) -> Checked:
    return model if isinstance(model, Checked) else Checked(as_predictor(model), binary=binary)


def _classes(others: list[Logits]) -> Any:
    """The class that each second opinion predicts for each input, `(n, opinions)`.

    None without any.
    """
    return np.stack([logits.argmax(axis=1) for logits in others], axis=1) if others else None


def _columns(unmixed: dict[str, str]) -> str:
    """The columns that cannot be mixed, with the reason of each.

    >>> _columns({"city": "text", "soil": "missing values"})
    'city (text), soil (missing values)'
    """
    shown = [f"{name} ({why})" for name, why in unmixed.items()]
    more = len(shown) - COLUMNS_SHOWN
    return ", ".join(shown[:COLUMNS_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _name(strategy: Strategy) -> str:
    """The name of a strategy in the record of a run."""
    named = strategy.func if isinstance(strategy, partial) else strategy
    return getattr(named, "__name__", type(named).__name__)
