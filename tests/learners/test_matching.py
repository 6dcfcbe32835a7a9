"""Matching networks against NumPy; full context embeddings step by step."""

import numpy as np
import pytest
import torch

from handful.errors import InvalidOptionError
from handful.learners import MatchingNet
from handful.learners.matching import FullContext

# the same sums in another order, in double precision
CLOSE = {"rtol": 1e-10, "atol": 1e-12}


def attention(support: np.ndarray, labels: np.ndarray, query: np.ndarray, scale: float) -> np.ndarray:
    unit = support / np.linalg.norm(support, axis=1, keepdims=True)
    cosines = query / np.linalg.norm(query, axis=1, keepdims=True) @ unit.T
    weights = np.exp(scale * cosines)
    weights /= weights.sum(1, keepdims=True)
    return np.log(weights @ np.eye(3)[labels])


def test_logits_are_the_log_of_cosine_attention_over_labels():
    rng = np.random.default_rng(0)
    support, query, labels = rng.normal(size=(7, 5)), rng.normal(size=(4, 5)), np.array([0, 1, 2, 2, 1, 1, 0])
    predict = MatchingNet(scale=3.0).fit(torch.from_numpy(support), torch.eye(3)[labels])
    expected = attention(support, labels, query, 3.0)
    np.testing.assert_allclose(predict(torch.from_numpy(query)).detach().numpy(), expected, **CLOSE)


def test_attention_gives_probabilities():
    logits = MatchingNet().fit(torch.randn(6, 5), torch.eye(3).repeat(2, 1))(torch.randn(4, 5))
    torch.testing.assert_close(logits.exp().sum(-1), torch.ones(4), **CLOSE)


def test_zeros_and_large_scales_stay_finite_with_their_gradients():
    support = torch.eye(2, 3).requires_grad_()
    logits = MatchingNet(scale=2000.0).fit(support, torch.eye(2))(torch.cat([torch.zeros(1, 3), -support.detach()]))
    logits.sum().backward()
    assert torch.isfinite(logits).all()
    assert torch.isfinite(support.grad).all()


def test_a_confidently_wrong_query_still_gets_its_gradient():
    support, labels = torch.tensor([[1.0, 0.0], [-1.0, 0.1], [-1.0, 0.3]]), torch.eye(2)[[0, 1, 1]]
    query = torch.tensor([[-1.0, 0.2]])
    found = []
    for dtype in (torch.float32, torch.float64):  # e^-400 underflows in single, not in double precision
        learner, asked = MatchingNet(scale=200.0).to(dtype), query.to(dtype).requires_grad_()
        wrong = learner.fit(support.to(dtype), labels.to(dtype))(asked)[0, 0]
        wrong.backward()
        found.append((wrong.double(), asked.grad.double()))
    (logit, gradient), (expected, exact) = found
    assert expected < -350
    torch.testing.assert_close(logit, expected, rtol=1e-5, atol=0)
    torch.testing.assert_close(gradient, exact, rtol=1e-3, atol=1e-3)  # differences of cosines near 1, times 200
    assert exact.abs().max() > 10


def test_the_context_of_a_support_example_is_itself_plus_both_directions_of_the_sequence():
    torch.manual_seed(0)
    context, support = FullContext(4, 2), torch.randn(5, 4)
    found = context.support(support)
    lstm = context.over_support
    ahead, behind = (torch.nn.LSTMCell(4, 4) for _ in range(2))
    for cell, suffix in ((ahead, ""), (behind, "_reverse")):
        for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
            getattr(cell, kind).data = getattr(lstm, f"{kind}_l0{suffix}").data

    def run(cell: torch.nn.LSTMCell, inputs: torch.Tensor) -> torch.Tensor:
        state, outputs = None, []
        for row in inputs:
            state = cell(row[None], state)
            outputs.append(state[0][0])
        return torch.stack(outputs)

    expected = support + run(ahead, support) + run(behind, support.flip(0)).flip(0)
    torch.testing.assert_close(found, expected, **CLOSE)


def test_a_query_reads_the_support_at_every_step():
    torch.manual_seed(0)
    context, query, contexts = FullContext(3, 2), torch.randn(1, 3), torch.randn(4, 3)
    hidden, cell, reading = torch.zeros(1, 3), torch.zeros(1, 3), torch.zeros(1, 3)
    for _ in range(2):
        hidden, cell = context.read(torch.cat([query, reading], 1), (hidden, cell))
        hidden = hidden + query
        scores = (contexts * hidden).sum(1)
        weights = scores.exp() / scores.exp().sum()
        reading = (weights[:, None] * contexts).sum(0, keepdim=True)
    torch.testing.assert_close(context.query(query, contexts), hidden, **CLOSE)


def test_the_support_is_shuffled_in_training_and_left_alone_in_evaluation():
    torch.manual_seed(0)
    learner, support, query = MatchingNet(context=True, features=4), torch.randn(9, 4), torch.randn(2, 4)
    targets = torch.eye(3).repeat(3, 1)
    runs = [learner.fit(support, targets)(query) for _ in range(2)]
    assert not torch.allclose(*runs)
    learner.eval()
    assert torch.equal(learner.fit(support, targets)(query), learner.fit(support, targets)(query))


def test_only_plain_attention_can_work_from_inner_products():
    assert MatchingNet().kernel is not None
    assert MatchingNet(context=True, features=4).kernel is None


@pytest.mark.parametrize("options", [{"scale": 0.0}, {"context": True}, {"context_steps": 0}])
def test_values_that_cannot_work_are_refused(options):
    with pytest.raises(InvalidOptionError):
        MatchingNet(**options)
