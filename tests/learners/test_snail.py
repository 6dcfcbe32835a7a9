"""SNAIL: the shared support activations against whole sequences through torch's own convolution and attention."""

import math

import pytest
import torch
from torch import Tensor, nn

from handful.errors import InvalidOptionError
from handful.learners import SNAIL
from handful.learners.snail import _Attention, _Convolutions

# the same sums in another order, in double precision
CLOSE = {"rtol": 1e-9, "atol": 1e-11}


@pytest.fixture
def learner() -> SNAIL:
    torch.manual_seed(0)
    return SNAIL(6, 3, shot=2, width=8).eval()


def whole_attention(block: _Attention, sequence: Tensor) -> Tensor:
    queries, keys, values = block.project(sequence).split(block.sizes, dim=-1)
    read = nn.functional.scaled_dot_product_attention(queries[None], keys[None], values[None], is_causal=True)[0]
    return torch.cat([sequence, read], dim=-1)


def whole_convolutions(block: _Convolutions, sequence: Tensor) -> Tensor:
    for now, before, dilation in zip(block.now, block.before, block.dilations, strict=True):
        kernel = torch.stack([before.weight, now.weight], dim=-1)  # (out, in, 2)
        padded = nn.functional.pad(sequence.T[None], (dilation, 0))
        out = nn.functional.conv1d(padded, kernel, now.bias, dilation=dilation)[0].T
        signal, gate = out.chunk(2, dim=-1)
        sequence = torch.cat([sequence, torch.tanh(signal) * torch.sigmoid(gate)], dim=-1)
    return sequence


def whole(learner: SNAIL, support: Tensor, targets: Tensor, query: Tensor) -> Tensor:
    """One query at the end of one sequence, all positions computed together."""
    labels = torch.cat([targets, torch.zeros(1, 3)])
    sequence = torch.cat([torch.cat([support, query[None]]), labels], dim=1)
    for block in learner.blocks:
        run = whole_attention if isinstance(block, _Attention) else whole_convolutions
        sequence = run(block, sequence)
    return learner.classify(sequence)


@pytest.mark.parametrize("shot", [1, 2, 4])
def test_shared_support_activations_equal_one_whole_sequence_a_query(learner, shot):
    support, targets, query = torch.randn(3 * shot, 6), torch.eye(3).repeat(shot, 1), torch.randn(4, 6)
    expected = torch.stack([whole(learner, support, targets, each)[-1] for each in query])
    torch.testing.assert_close(learner.fit(support, targets)(query), expected, **CLOSE)


def test_no_position_looks_ahead(learner):
    stream = torch.randn(1, 6, 9)
    changed = stream.clone()
    changed[:, 4:] += 1
    last = torch.randn(1, 2, 9)
    for block in list(learner.blocks)[:2]:
        (stream, last), (changed, _) = block((stream, last)), block((changed, last))
    torch.testing.assert_close(stream[:, :4], changed[:, :4], **CLOSE)
    assert not torch.allclose(stream[:, 4], changed[:, 4])


def test_the_answer_depends_on_every_support_example(learner):
    support = torch.randn(6, 6, requires_grad=True)
    logits = learner.fit(support, torch.eye(3).repeat(2, 1))(torch.randn(1, 6))
    (slope,) = torch.autograd.grad(logits[0, 0], support)
    assert (slope.abs().amax(1) > 0).all()


@pytest.mark.parametrize(("way", "shot"), [(5, 1), (5, 5), (20, 1), (2, 1)])
def test_dilations_reach_back_over_the_whole_support(way, shot):
    for block in SNAIL(4, way, shot=shot, width=4).blocks:
        if isinstance(block, _Convolutions):
            assert sum(block.dilations) >= way * shot
            assert len(block.dilations) == math.ceil(math.log2(way * shot + 1))


def test_the_support_is_shuffled_in_training_only(learner):
    support, targets, query = torch.randn(9, 6), torch.eye(3).repeat(3, 1), torch.randn(2, 6)
    assert torch.equal(learner.fit(support, targets)(query), learner.fit(support, targets)(query))
    learner.train()
    assert not torch.allclose(learner.fit(support, targets)(query), learner.fit(support, targets)(query))


@pytest.mark.parametrize("options", [{"shot": 0}, {"width": 2}, {"way": 1}])
def test_values_that_cannot_work_are_refused(options):
    with pytest.raises(InvalidOptionError):
        SNAIL(6, **options)
