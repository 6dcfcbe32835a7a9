"""Meta-LSTM: preprocessing and gates by hand, and an optimiser that learns to lower the support loss."""

import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from handful.errors import InvalidOptionError
from handful.learners import MetaLSTM
from handful.learners.meta_lstm import preprocess


def task(seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    targets = torch.eye(3).repeat(2, 1)
    centres = torch.randn(3, 4, generator=generator)
    return targets @ centres + 0.3 * torch.randn(6, 4, generator=generator), targets


def learner(**options: float | str) -> MetaLSTM:
    torch.manual_seed(0)
    return MetaLSTM(nn.Linear(4, 3), 3, **{"steps": 4, "hidden": 5, "rate": 0.1, **options})


def test_preprocessing_gives_logarithm_and_sign_of_large_and_a_stretch_of_small_values():
    e = math.e
    values = torch.tensor([e**-2, -(e**3), 0.0, 0.5 * e**-10, -(e**-10)])
    expected = torch.tensor([[-0.2, 1.0], [0.3, -1.0], [-1.0, 0.0], [-1.0, 0.5], [-1.0, -1.0]])
    torch.testing.assert_close(preprocess(values), expected)


def test_with_gates_that_ignore_their_inputs_it_is_gradient_descent_with_weight_decay():
    meta = learner(steps=3, rate=0.2, keep=0.9)
    for gate in (meta.input_gate, meta.forget_gate):
        nn.init.zeros_(gate.weight)
    support, targets = task(0)
    plain = nn.Linear(4, 3)
    plain.load_state_dict(meta.network.body.state_dict())
    for _ in range(3):
        slopes = torch.autograd.grad(cross_entropy(plain(support), targets), plain.parameters())
        for parameter, slope in zip(plain.parameters(), slopes, strict=True):
            parameter.data = 0.9 * parameter.data - 0.2 * slope
    adapted = meta.adapt(support, targets)
    torch.testing.assert_close(adapted["body.weight"], plain.weight)
    torch.testing.assert_close(adapted["body.bias"], plain.bias)


def test_the_first_step_follows_the_gates_written_out():
    meta = learner(steps=1)
    for gate in (meta.input_gate, meta.forget_gate):
        nn.init.normal_(gate.weight)
    support, targets = task(0)
    weight = meta.network.body.weight
    loss = cross_entropy(meta.network.body(support), targets)
    (slope,) = torch.autograd.grad(loss, weight)
    seen = torch.cat([preprocess(slope.flatten()), preprocess(loss.detach()).expand(12, 2)], 1)
    hidden, _ = meta.reader(seen)
    theta = weight.flatten()
    rate = torch.sigmoid(meta.input_gate(torch.cat([hidden, theta[:, None], torch.zeros(12, 1)], 1)))[:, 0]
    keep = torch.sigmoid(meta.forget_gate(torch.cat([hidden, theta[:, None], torch.ones(12, 1)], 1)))[:, 0]
    expected = keep * theta - rate * slope.flatten()
    torch.testing.assert_close(meta.adapt(support, targets)["body.weight"].flatten(), expected)


def test_the_released_codes_gates_see_their_own_logits_from_zero_on():
    meta = learner(steps=2, feedback="logit", divide_twice=True)
    for gate in (meta.input_gate, meta.forget_gate):
        nn.init.normal_(gate.weight)
    support, targets = task(0)
    theta = torch.cat([parameter.flatten() for parameter in meta.network.body.parameters()])
    rate, keep, state = torch.zeros(15, 1), torch.zeros(15, 1), None
    for _ in range(2):
        logits = support @ theta[:12].reshape(3, 4).T + theta[12:]
        loss = cross_entropy(logits, targets).detach()
        # softmax regression's gradient in closed form: the mean over six examples, divided by six again
        error = (torch.softmax(logits, 1) - targets).detach() / 36
        slope = torch.cat([(error.T @ support).flatten(), error.sum(0)])
        state = meta.reader(torch.cat([preprocess(slope), preprocess(loss).expand(15, 2)], 1), state)
        rate = meta.input_gate(torch.cat([state[0], theta[:, None], rate], 1))
        keep = meta.forget_gate(torch.cat([state[0], theta[:, None], keep], 1))
        theta = torch.sigmoid(keep[:, 0]) * theta - torch.sigmoid(rate[:, 0]) * slope
    found = meta.adapt(support, targets)
    # single precision, the same operations in another order
    torch.testing.assert_close(torch.cat([found["body.weight"].flatten(), found["body.bias"]]), theta)


def support_losses(meta: MetaLSTM, seed: int) -> list[float]:
    """The support loss of a task before adaptation and after each number of steps."""
    support, targets = task(seed)
    losses = [cross_entropy(meta.network.body(support), targets).item()]
    for meta.steps in range(1, 5):
        losses.append(cross_entropy(meta.fit(support, targets)(support), targets).item())
    return losses


@pytest.mark.slow
def test_the_learnt_update_rule_lowers_the_support_loss_of_every_new_task():
    meta = learner(rate=0.01)
    optimiser = torch.optim.Adam(meta.parameters(), 0.02)
    for seed in range(100):
        support, targets = task(seed)
        loss = cross_entropy(meta.fit(support, targets)(support), targets)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    curves = [support_losses(meta, seed) for seed in range(1000, 1020)]
    assert all(curve[-1] < curve[0] for curve in curves)
    mean = [sum(losses) / len(losses) for losses in zip(*curves, strict=True)]
    assert mean == sorted(mean, reverse=True)
    # the rule that it started from lowers the loss by some hundredths
    assert mean[-1] < 0.6 * mean[0]


def test_gradients_are_inputs_and_are_not_differentiated_themselves():
    meta = learner(steps=2)
    support, targets = task(0)
    support.requires_grad_()
    meta.adapt(support, targets)["body.weight"].sum().backward()
    assert support.grad is None
    assert meta.network.body.weight.grad is not None


@pytest.mark.parametrize(
    "options", [{"steps": 0}, {"test_steps": 0}, {"hidden": 0}, {"rate": 1.0}, {"keep": 0.0}, {"feedback": "x"}]
)
def test_values_that_cannot_work_are_refused(options):
    with pytest.raises(InvalidOptionError):
        learner(**options)
