"""MAML: its meta-gradient against finite differences, its inner loop against steps written out by hand."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from handful import FewShotModel
from handful.episodes import LabelledSet
from handful.errors import InvalidOptionError, NotFiniteError
from handful.learners import MAML

# the same operations in another order, in double precision
CLOSE = {"rtol": 1e-9, "atol": 1e-11}


@pytest.fixture
def episode() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    support, query = (torch.randn(n, 4, generator=generator) for n in (6, 5))
    return support, torch.eye(3).repeat(2, 1), query, torch.eye(3)[[0, 1, 2, 1, 0]]


def smooth_network() -> nn.Sequential:
    """No kinks, so that finite differences are honest."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))


def query_loss(learner: MAML, episode: tuple[Tensor, Tensor, Tensor, Tensor]) -> Tensor:
    support, targets, query, truth = episode
    return cross_entropy(learner.fit(support, targets)(query), truth)


@pytest.mark.parametrize("batching", ["loop", "vmap"])
def test_the_meta_gradient_equals_finite_differences_of_the_adapted_loss(episode, batching):
    learner = MAML(smooth_network(), 3, steps=3, rate=0.3, learn_rates=True, batching=batching)
    query_loss(learner, episode).backward()
    for parameter in learner.parameters():
        direction = torch.randn_like(parameter)
        step = 1e-5 * direction
        with torch.no_grad():
            parameter.add_(step)
            above = query_loss(learner, episode)
            parameter.sub_(2 * step)
            below = query_loss(learner, episode)
            parameter.add_(step)
        slope = (above - below) / 2e-5
        # a central difference with step h errs by about h^2 = 1e-10 and by rounding / h = 1e-11
        torch.testing.assert_close((parameter.grad * direction).sum(), slope, rtol=1e-6, atol=1e-9)


def test_the_first_order_gradient_is_that_of_the_query_loss_at_the_adapted_weights(episode):
    network = smooth_network()
    learner = MAML(network, 3, steps=3, rate=0.3, first_order=True)
    query_loss(learner, episode).backward()
    support, targets, query, truth = episode
    plain = smooth_network()
    for _ in range(3):
        slopes = torch.autograd.grad(cross_entropy(plain(support), targets), plain.parameters())
        for parameter, slope in zip(plain.parameters(), slopes, strict=True):
            parameter.data -= 0.3 * slope
    expected = torch.autograd.grad(cross_entropy(plain(query), truth), plain.parameters())
    for parameter, slope in zip(learner.network.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, slope, **CLOSE)


def released_inner_loop(
    network: nn.Sequential, support: Tensor, targets: Tensor, rate: float, steps: int
) -> list[Tensor]:
    """The algebra of the released code (utils.py, maml.py): the gradient of a vector of losses is that of its sum."""
    shots = len(targets) // targets.shape[1]
    weights = list(network.parameters())
    for _ in range(steps):
        first, first_bias, second, second_bias = weights
        logits = torch.tanh(support @ first.T + first_bias) @ second.T + second_bias
        losses = -(targets * torch.log_softmax(logits, dim=1)).sum(1) / shots
        slopes = torch.autograd.grad(losses.sum(), weights)
        weights = [weight - rate * slope for weight, slope in zip(weights, slopes, strict=True)]
    return weights


@pytest.mark.parametrize("shots", [1, 2])
def test_an_inner_step_of_summed_losses_equals_the_released_codes_algebra(episode, shots):
    support, targets = episode[0][: 3 * shots], episode[1][: 3 * shots]
    learner = MAML(smooth_network(), 3, steps=2, rate=0.1, sum_over_classes=True)
    expected = released_inner_loop(smooth_network(), support, targets, rate=0.1, steps=2)
    for found, weight in zip(learner.adapt(support, targets).values(), expected, strict=True):
        torch.testing.assert_close(found, weight, **CLOSE)


def test_one_step_of_summed_losses_is_way_times_as_long(episode):
    support, targets, *_ = episode
    start = dict(MAML(smooth_network(), 3).network.start())
    mean, summed = (MAML(smooth_network(), 3, steps=1, sum_over_classes=each) for each in (False, True))
    for name, weight in mean.adapt(support, targets).items():
        step = summed.adapt(support, targets)[name] - start[name]
        torch.testing.assert_close(step, 3 * (weight - start[name]), **CLOSE)


def test_norms_that_are_kept_are_learnt_but_not_adapted():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3))
    learner = MAML(network, 3, steps=2, rate=0.1, keep_norms=True)
    support, targets, query = torch.randn(3, 1, 4, 4), torch.eye(3), torch.randn(3, 1, 4, 4)
    assert not any(name.startswith("body.1.") for name in learner.adapt(support, targets))
    cross_entropy(learner.fit(support, targets)(query), targets).backward()
    assert all(parameter.grad.abs().sum() > 0 for name, parameter in learner.network.named_parameters() if "1." in name)


def test_first_and_second_order_agree_in_their_predictions_but_not_in_their_gradients(episode):
    exact, first = (MAML(smooth_network(), 3, rate=0.3, first_order=order) for order in (False, True))
    losses = [query_loss(learner, episode) for learner in (exact, first)]
    torch.testing.assert_close(*losses, **CLOSE)
    for loss in losses:
        loss.backward()
    assert not torch.allclose(exact.network.body[0].weight.grad, first.network.body[0].weight.grad, rtol=1e-2)


def test_each_inner_step_lowers_the_support_loss(episode):
    support, targets, *_ = episode
    losses = []
    for steps in range(1, 6):
        learner = MAML(smooth_network(), 3, steps=steps, rate=0.1)
        losses.append(cross_entropy(learner.fit(support, targets)(support), targets).item())
    assert losses == sorted(losses, reverse=True)
    assert losses[0] < cross_entropy(smooth_network()(support), targets).item()


def test_training_and_evaluation_have_steps_and_rates_of_their_own(episode):
    learner = MAML(smooth_network(), 3, steps=2, rate=0.1, test_steps=4, test_rate=0.2)
    trained, tested = query_loss(learner, episode), query_loss(learner.eval(), episode)
    as_trained = MAML(smooth_network(), 3, steps=2, rate=0.1)
    as_tested = MAML(smooth_network(), 3, steps=4, rate=0.2)
    torch.testing.assert_close(trained, query_loss(as_trained, episode), **CLOSE)
    torch.testing.assert_close(tested, query_loss(as_tested, episode), **CLOSE)


def test_adapting_works_where_gradients_are_switched_off(episode):
    learner = MAML(smooth_network(), 3, rate=0.3)
    with torch.no_grad():
        quiet = query_loss(learner, episode)
    assert not quiet.requires_grad
    torch.testing.assert_close(quiet, query_loss(learner, episode).detach(), **CLOSE)


@pytest.mark.parametrize(
    "options",
    [
        {"steps": 0},
        {"test_steps": 0},
        {"rate": 0.0},
        {"test_rate": -1.0},
        {"learn_rates": True, "test_rate": 0.1},
        {"statistics": "running"},
        {"batching": "threads"},
    ],
)
def test_values_that_cannot_work_are_refused(options):
    with pytest.raises(InvalidOptionError):
        MAML(smooth_network(), 3, **options)


def test_threads_can_share_a_model(episode):
    support, targets, query, _ = episode
    learner = MAML(smooth_network(), 3, rate=0.3).eval()
    tasks = [(support + shift, targets, query) for shift in torch.randn(8, 1, 4)]

    def answer(task: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        return learner.fit(task[0], task[1])(task[2]).detach()

    alone = [answer(task) for task in tasks]
    with ThreadPoolExecutor(8) as threads:
        together = list(threads.map(answer, tasks * 3))
    for logits, expected in zip(together, alone * 3, strict=True):
        assert torch.equal(logits, expected)


def test_an_inner_loop_that_diverges_is_reported(episode):
    support, targets, query, _ = episode
    network = nn.Sequential(nn.Linear(4, 5), nn.Linear(5, 3))
    model = FewShotModel(nn.Identity(), MAML(network, 3, rate=1e300)).eval()
    with pytest.raises(NotFiniteError, match=r"5 of 5 queries .*rate"):
        model.adapt(LabelledSet(support, targets))(query)


def test_first_order_slopes_are_constants_with_respect_to_kept_norms_too():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 3))
    learner = MAML(network, 3, steps=1, first_order=True, keep_norms=True)
    adapted = learner.adapt(torch.rand(6, 1, 8, 8), torch.eye(3).repeat(2, 1))
    norms = [each for name, each in learner.network.named_parameters() if name not in adapted]
    assert len(norms) == 2
    moved = sum(weight.square().sum() for weight in adapted.values())
    assert torch.autograd.grad(moved, norms, allow_unused=True) == (None,) * len(norms)
