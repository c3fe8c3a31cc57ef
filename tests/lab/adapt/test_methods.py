"""Each method's distinguishing part: on it does what it is for, off it does not."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

from pseudocal.arrays import InputError
from pseudocal.lab.adapt.losses import domain_confusion, entropies, mcc, per_domain
from pseudocal.lab.adapt.method import Moment, Preset, Problem, SourceTargetBatch, TargetBatch
from pseudocal.lab.adapt.methods import METHODS
from pseudocal.lab.adapt.methods.atdoc import Centroids, Neighbourhood
from pseudocal.lab.adapt.methods.cdan import CDAN
from pseudocal.lab.adapt.methods.dine import Distil, FineTune
from pseudocal.lab.adapt.methods.shot import SHOT
from pseudocal.lab.adapt.networks import Network, build_head, reverse_gradient
from pseudocal.lab.adapt.tensors import Tensors, predict_tensors
from pseudocal.lab.data import Domain

CLASSES = 4


def paper(method: str) -> Preset:
    return METHODS[method]["paper"]


@pytest.fixture(scope="module")
def source_only(adapt, toy) -> float:
    """The accuracy without adaptation."""
    return adapt(paper("source-only"), toy.source, toy.target).accuracy


@pytest.mark.parametrize("method", ["mcc", "bnm", "cdan", "cdan+e", "atdoc", "atdoc-nc"])
def test_adaptation_beats_source_only(adapt, toy, source_only, method: str) -> None:
    assert source_only < 0.85
    assert adapt(paper(method), toy.source, toy.target, iterations=300).accuracy > source_only + 0.1


def test_mcc_lowers_class_confusion(adapt, toy) -> None:
    on, off = (adapt(paper("mcc"), toy.source, toy.target, weight=w) for w in (1.0, 0.0))
    assert mcc(on.logits).item() < 0.75 * mcc(off.logits).item()


def test_bnm_raises_the_nuclear_norm(adapt, toy) -> None:
    on, off = (adapt(paper("bnm"), toy.source, toy.target, weight=w) for w in (1.0, 0.0))
    norms = [torch.linalg.matrix_norm(outcome.p, "nuc").item() for outcome in (on, off)]
    assert norms[0] > 1.05 * norms[1]


def test_safn_raises_the_norms(adapt, toy) -> None:
    on, off = (adapt(paper("safn"), toy.source, toy.target, weight=w) for w in (0.05, 0.0))
    assert on.features.norm(dim=1).mean() > 1.3 * off.features.norm(dim=1).mean()


def test_mcd_third_step_is_what_adapts(adapt, toy) -> None:
    preset = Preset(paper("mcd").method, head="bottleneck-pair")
    on, off = (
        adapt(
            preset, toy.source, toy.target, generator_steps=n, weight=5.0, iterations=200
        ).accuracy
        for n in (4, 0)
    )
    assert on > off + 0.1


def test_mcd_moves_only_what_each_step_may_move() -> None:
    network = Network(nn.Identity(), build_head("bottleneck-pair", 8, 16, CLASSES))
    batch = pair()
    steps = list(paper("mcd").method(problem(16)).steps(network, batch, Moment(1, 10)))
    assert len(steps) == 6
    assert steps[0].only is None
    assert {id(p) for p in steps[1].only} == {id(p) for p in network.classifiers()}
    assert all(
        {id(p) for p in step.only} == {id(p) for p in network.generator()} for step in steps[2:]
    )


def test_pada_weighs_absent_classes_down(adapt, toy) -> None:
    present = toy.target.labels < 2
    target = toy.target.subset(present)
    on, off = (adapt(paper("pada"), toy.source, target, updates=n, sharpness=1.0) for n in (20, 0))
    assert on.method.gamma[2:].max() < on.method.gamma[:2].min() / 3
    assert (off.method.gamma == 1).all()


def test_pada_learns_weighted_classes_less() -> None:
    method = paper("pada").method(problem(8), smoothing=0.0, weight=0.0)
    network = Network(nn.Identity(), build_head("direct", 8, 8, CLASSES))
    batch = pair()
    method.gamma = torch.tensor([1.0, 0.0, 0.0, 0.0])
    loss = next(method.steps(network, batch, Moment(1, 10))).loss
    first = batch.labels == 0
    torch.testing.assert_close(
        loss, F.cross_entropy(network(batch.source[first]), batch.labels[first])
    )


def test_cdan_sees_what_only_the_condition_shows() -> None:
    # Both domains have the same features; only which class goes with which feature differs.
    features = torch.eye(2).repeat(50, 1)
    source_p, target_p = features, features.flip(1)

    def told_apart(*, conditional: bool) -> float:
        torch.manual_seed(0)
        method = CDAN(Problem(2, 2, Tensors(np.zeros((1, 2)))), conditional=conditional, hidden=16)
        optimiser = torch.optim.Adam(method.parameters(), lr=0.05)
        ones = torch.ones(len(features))
        for _ in range(60):
            judged, other = (
                method.discriminator(method.condition(features, p)) for p in (source_p, target_p)
            )
            loss = domain_confusion(judged, other, *per_domain(ones, ones))
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        return loss.item()

    assert told_apart(conditional=True) < 0.05
    assert told_apart(conditional=False) > 0.69


def test_cdan_reverses_the_gradient_and_detaches_the_condition() -> None:
    features, p = (
        torch.ones(1, 2, requires_grad=True),
        torch.tensor([[0.25, 0.75]], requires_grad=True),
    )
    seen = CDAN(problem(2, classes=2)).condition(features, p)
    reverse_gradient(seen, 0.5).sum().backward()
    assert p.grad is None
    torch.testing.assert_close(features.grad, torch.full((1, 2), -0.5))


def test_randomised_cdan_estimates_the_outer_product() -> None:
    torch.manual_seed(0)
    a, b = torch.randn(2, 1, 6)
    p, q = torch.tensor([[0.7, 0.2, 0.1]]), torch.tensor([[0.1, 0.3, 0.6]])
    method = CDAN(problem(6, classes=3), randomised=40_000, hidden=1)
    estimate = (method.condition(a, p) * method.condition(b, q)).sum()
    exact = (a * b).sum() * (p * q).sum()
    assert estimate.item() == pytest.approx(exact.item(), abs=0.1)


def test_cdan_e_weighs_sure_rows_up_and_plays_with_their_entropy() -> None:
    p = torch.tensor([[0.98, 0.02], [0.5, 0.5]], requires_grad=True)
    official, tllib, plain = (
        CDAN(problem(2, classes=2), entropy=e) for e in ("official", "tllib", None)
    )
    weights = official.row_weights(p, 0.5)
    assert weights[0] > 1.3 * weights[1] * 0.9
    torch.testing.assert_close(weights, tllib.row_weights(p, 0.5))
    assert (plain.row_weights(p, 0.5) == 1).all()
    reversed_, forward = (
        torch.autograd.grad(m.row_weights(p, 0.5).sum(), p)[0] for m in (official, tllib)
    )
    torch.testing.assert_close(reversed_, -0.5 * forward)


def test_atdoc_remembers_the_batch_as_it_is_after_the_step() -> None:
    network = Network(nn.Identity(), build_head("linear", 8, 16, CLASSES))
    method, batch = Neighbourhood(problem(16)), pair()
    untouched = method.memory[10:].clone()
    before = network.features(batch.target).detach()
    for step in method.steps(network, batch, Moment(5, 10)):
        step.loss.backward()
        with torch.no_grad():
            for parameter in network.parameters():
                parameter.sub_(0.5 * parameter.grad)
    after = F.normalize(network.features(batch.target), dim=1)
    torch.testing.assert_close(method.memory[batch.rows], after)
    assert not torch.allclose(after, F.normalize(before, dim=1))
    torch.testing.assert_close(method.memory[10:], untouched)
    torch.testing.assert_close(method.predictions[batch.rows].sum(dim=0), torch.ones(CLASSES))


def test_atdoc_needs_its_memory(adapt, toy) -> None:
    class Forgetful(Neighbourhood):
        def steps(self, network, batch, now):
            yield next(super().steps(network, batch, now))

    preset = paper("atdoc")
    forgetful = Preset(Forgetful, options=preset.options)
    on, off = (
        adapt(p, toy.source, toy.target, weight=1.0, iterations=300).accuracy
        for p in (preset, forgetful)
    )
    assert on > off + 0.05


def test_atdoc_centroids_follow_the_batch() -> None:
    network = Network(nn.Identity(), build_head("linear", 8, 16, CLASSES))
    method, batch = Centroids(problem(16)), pair()
    before = method.centroids.clone()
    list(method.steps(network, batch, Moment(5, 10)))
    assert not torch.allclose(method.centroids, before)


def test_shot_diversity_keeps_the_classes_in_use(adapt, toy) -> None:
    source = adapt(METHODS["source-only"]["shot"], toy.source, toy.target)
    with torch.no_grad():
        source.network.head.classifier.bias[0] += (
            4  # drawn to one class: without the term all go there
        )

    def spread(*, diversity: bool) -> float:
        network = copy.deepcopy(source.network)
        outcome = adapt(
            paper("shot"), None, toy.target, network=network, weight=0.0, diversity=diversity
        )
        return entropies(outcome.p.mean(dim=0)).item()

    assert spread(diversity=True) > 1.1  # log 4 is 1.386
    assert spread(diversity=False) < 0.9


def test_shot_beats_its_source_model_and_keeps_its_classifier(adapt, toy) -> None:
    source = adapt(METHODS["source-only"]["shot"], toy.source, toy.target)
    classifier = [p.clone() for p in source.network.head.classifier.parameters()]
    outcome = adapt(paper("shot"), None, toy.target, network=source.network)
    assert outcome.accuracy > source.accuracy + 0.05
    for before, now in zip(classifier, outcome.network.head.classifier.parameters(), strict=True):
        assert torch.equal(before, now)


def test_shot_labels_by_clusters_not_by_predictions() -> None:
    network = Network(nn.Identity(), build_head("weightnorm", 8, 16, CLASSES)).eval()
    method = SHOT(problem(16))
    rows = torch.arange(6)
    list(method.steps(network, TargetBatch(method.target[rows.numpy()], rows), Moment(1, 15)))
    predicted = predict_tensors(network, method.target)[1].argmax(dim=1)
    assert not torch.equal(method.labels, predicted)


def test_dine_smooths_what_the_black_box_says_and_then_trusts_itself() -> None:
    p = torch.tensor([[0.5, 0.375, 0.125, 0.0]]).repeat(40, 1)
    rough, smooth = (Distil(problem(16), probabilities=p, smooth=s) for s in (False, True))
    assert torch.equal(rough.teacher, p)
    torch.testing.assert_close(smooth.teacher[0], torch.tensor([0.5, 0.5 / 3, 0.5 / 3, 0.5 / 3]))
    network = Network(nn.Identity(), build_head("weightnorm", 8, 16, CLASSES))
    rows = torch.arange(8)
    batch = TargetBatch(smooth.target[rows.numpy()], rows)
    list(smooth.steps(network, batch, Moment(1, 20)))
    torch.testing.assert_close(smooth.teacher[0], torch.tensor([0.5, 0.5 / 3, 0.5 / 3, 0.5 / 3]))
    own = predict_tensors(network, smooth.target)[1].softmax(dim=1)
    expected = 0.6 * smooth.teacher + 0.4 * own
    list(smooth.steps(network, batch, Moment(3, 20)))
    torch.testing.assert_close(smooth.teacher, expected)


def test_dine_mixing_asks_for_the_mix_of_the_predictions() -> None:
    network = Network(nn.Identity(), build_head("weightnorm", 8, 16, CLASSES)).eval()
    p = torch.full((40, CLASSES), 1 / CLASSES)
    plain, mixing = (Distil(problem(16), probabilities=p, mix=mix) for mix in (False, True))
    rows = torch.arange(8)
    x = plain.target[rows.numpy()]
    losses = []
    for method in (plain, mixing):
        torch.manual_seed(0)
        losses.append(next(method.steps(network, TargetBatch(x, rows), Moment(1, 20))).loss)
    torch.manual_seed(0)
    lam, partner = torch.distributions.Beta(0.3, 0.3).sample().item(), torch.randperm(8)
    own = network(x).softmax(dim=1)
    teacher = lam * own + (1 - lam) * own[partner]
    surrogate = network(lam * x + (1 - lam) * x[partner]).softmax(dim=1)
    expected = (teacher * (teacher / surrogate).log()).sum(dim=1).mean()
    torch.testing.assert_close(losses[1] - losses[0], expected, atol=1e-5, rtol=1e-3)


def test_dine_stops_tuning_when_predictions_stand_still() -> None:
    network = Network(nn.Identity(), build_head("weightnorm", 8, 16, CLASSES)).eval()
    method = FineTune(problem(16))
    rows = torch.arange(8)
    batch = TargetBatch(method.target[rows.numpy()], rows)
    assert len(list(method.steps(network, batch, Moment(1, 10)))) == 1
    assert not list(
        method.steps(network, batch, Moment(2, 10))
    )  # nothing moved the network in between
    assert method.converged


def problem(width: int, classes: int = CLASSES) -> Problem:
    x = np.random.default_rng(3).standard_normal((40, 8)).astype(np.float32)
    return Problem(classes, width, Tensors(x))


def pair() -> SourceTargetBatch:
    torch.manual_seed(0)
    return SourceTargetBatch(
        torch.randn(10, 8), torch.arange(10), torch.randn(8, 8), torch.arange(8) % CLASSES
    )


def test_toy_domains_have_the_same_classes(toy) -> None:
    assert isinstance(toy.source, Domain)
    assert toy.source.classes == toy.target.classes


def test_unknown_variants_are_refused() -> None:
    with pytest.raises(
        InputError, match="expected a scale among official, atdoc, fast, got 'huge'"
    ):
        paper("bnm").method(problem(8), scale="huge")
    with pytest.raises(
        InputError, match="expected an entropy weight among None, official, tllib, got 'mine'"
    ):
        CDAN(problem(8), entropy="mine")
