"""End to end on real digits, no frozen backbone, every method; and the partial set."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pseudocal.lab.adapt import METHODS, TrainingRun, train
from pseudocal.lab.adapt.tensors import load_tensors
from pseudocal.lab.data import Domain, digits, partial

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def domains() -> dict[str, Domain]:
    return digits("optdigits", "mnist")


@pytest.fixture(scope="module")
def source_only(domains: dict[str, Domain], tmp_path_factory: pytest.TempPathFactory) -> float:
    return accuracy(domains, "source-only", tmp_path_factory.mktemp("source"))


def accuracy(domains: dict[str, Domain], method: str, out: Path) -> float:
    target = domains["mnist"]
    run = TrainingRun(out, iterations=600)
    trained = train(
        domains["optdigits"], target.unlabelled(), run, method=method, backbone="digits", width=64
    )
    with np.load(trained.target) as outputs:
        return float((outputs["logits"].argmax(axis=1) == target.labels).mean())


@pytest.mark.parametrize("method", [method for method in METHODS if method != "source-only"])
def test_every_method_trains_end_to_end(
    domains, source_only: float, tmp_path: Path, method: str
) -> None:
    reached = accuracy(domains, method, tmp_path)
    assert reached > source_only + 0.05, f"{method} {reached:.3f}, source-only {source_only:.3f}"


def test_pada_finds_the_absent_classes(domains, tmp_path: Path) -> None:
    target = partial(domains["mnist"], domains["mnist"].classes[:5])
    gammas = []

    def look(progress) -> None:
        checkpoint = tmp_path / "resume.safetensors"
        if progress.done == 599:
            gammas.append(load_tensors(checkpoint)[0]["method.gamma"])

    run = TrainingRun(tmp_path, iterations=600, checkpoint_every=598, progress=look)
    train(domains["optdigits"], target.unlabelled(), run, method="pada", backbone="digits")
    (gamma,) = gammas
    assert (
        gamma[5:].mean() < gamma[:5].mean() / 3
    )  # single classes differ much, by seed and by number of threads
