"""SNAIL: small sequences by hand, the published sizes, and torch's own convolution and attention on whole sequences."""

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


def test_an_earlier_answer_does_not_change_with_later_examples_or_queries(learner):
    support, targets, query = torch.randn(6, 6), torch.eye(3).repeat(2, 1), torch.randn(4, 6)
    predict = learner.fit(support, targets)
    first = predict(query[:1])
    other = query.clone()
    other[1:] = torch.randn(3, 6)
    torch.testing.assert_close(predict(other)[:1], first, **CLOSE)
    for block in learner.blocks:
        prefix, last = torch.randn(1, 4, _inputs(block)), torch.randn(1, 1, _inputs(block))
        longer = torch.cat([prefix, torch.randn(1, 3, _inputs(block))], dim=1)
        torch.testing.assert_close(block((longer, last))[0][:, :4], block((prefix, last))[0], **CLOSE)


def _inputs(block: nn.Module) -> int:
    return (block.project if isinstance(block, _Attention) else block.now[0]).in_features


def test_a_dense_block_by_hand():
    """One channel, dilation 2: tanh(x_t + 2 x_(t-2) + 1) sigma(-x_(t-2)) at position t, with zeros before the start."""
    block = _Convolutions(1, 1, [2])
    now, before = block.now[0], block.before[0]
    now.weight.data = torch.tensor([[1.0], [0.0]])  # signal, gate
    now.bias.data = torch.tensor([1.0, 0.0])
    before.weight.data = torch.tensor([[2.0], [-1.0]])
    sequence = torch.tensor([0.0, math.log(2), -1.0])
    support, last = block((sequence.reshape(1, 3, 1), torch.tensor([-1.0, 0.0]).reshape(1, 2, 1)))
    assert torch.equal(support[0, :, 0], sequence)
    one = math.tanh(1)
    # nothing comes before the first two, so their gates are open by half; (e^2 4 - 1) / (e^2 4 + 1) = tanh(1 + ln 2)
    expected = [one / 2, (4 * math.e**2 - 1) / (4 * math.e**2 + 1) / 2, 0.0]
    torch.testing.assert_close(support[0, :, 1], torch.tensor(expected), **CLOSE)
    # a query is position 4, two after ln 2: x + 2 ln 2 + 1, and sigma(-ln 2) = 1/3
    answers = [math.tanh(2 * math.log(2)) / 3, math.tanh(1 + 2 * math.log(2)) / 3]
    torch.testing.assert_close(last[0, :, 1], torch.tensor(answers), **CLOSE)


def test_attention_by_hand():
    """Key and query differ: the query reads 2 x, the key x, the value 10 x, so x = 1 attends to (0, 1) as 1 : e^2."""
    block = _Attention(1, 1, 1)
    block.project.weight.data = torch.tensor([[2.0], [1.0], [10.0]])
    nn.init.zeros_(block.project.bias)
    support, last = block((torch.tensor([[[0.0], [1.0]]]), torch.tensor([[[1.0], [0.0]]])))
    share = math.e**2 / (1 + math.e**2)
    torch.testing.assert_close(support[0, :, 1], torch.tensor([0.0, 10 * share]), **CLOSE)
    # a query at 1 has two positions like it, itself included; one at 0 is indifferent among 0, 1 and itself
    both = 2 * math.e**2 / (1 + 2 * math.e**2)
    torch.testing.assert_close(last[0, :, 1], torch.tensor([10 * both, 10 / 3]), **CLOSE)


@pytest.mark.parametrize(
    ("features", "shot", "total"),
    [(384, 1, 4_747_646), (384, 5, 8_529_790), (64, 1, 3_097_406)],
    ids=["miniImageNet-1", "miniImageNet-5", "Omniglot-1"],
)
def test_it_has_the_parameters_of_the_published_blocks(features: int, shot: int, total: int):
    """AttentionBlock(64, 32), TCBlock(T, 128), AttentionBlock(256, 128), TCBlock(T, 128), AttentionBlock(512, 256)."""
    blocks = {(5, 1): 3, (5, 5): 5}[5, shot]  # ceil(log2 T) for T = 6 and 26
    channels, counted = features + 5, 0
    for keys, values in ((64, 32), (256, 128), (512, 256)):
        counted += (channels + 1) * (2 * keys + values)  # queries, keys and values, with biases
        channels += values
        if values < 256:
            for _ in range(blocks):
                counted += 2 * (2 * channels * 128 + 128)  # signal and gate, kernel 2
                channels += 128
    counted += channels * 5 + 5
    learner = SNAIL(features, 5, shot=shot, vote=False, first_dilation=2)
    assert sum(p.numel() for p in learner.parameters()) == counted == total


def test_the_published_dilations_double_from_two():
    blocks = [block for block in SNAIL(4, 5, shot=5, first_dilation=2).blocks if isinstance(block, _Convolutions)]
    assert [block.dilations for block in blocks] == [(2, 4, 8, 16, 32)] * 2


def test_keys_start_equal_to_queries_with_a_vote_only():
    for vote in (True, False):
        for block in SNAIL(6, 3, width=8, vote=vote).blocks:
            if isinstance(block, _Attention):
                keys = block.sizes[0]
                weight = block.project.weight
                assert torch.equal(weight[:keys], weight[keys : 2 * keys]) == vote
    assert SNAIL(6, 3, width=8).classify.weight.max() > 4
    assert SNAIL(6, 3, width=8, vote=False).classify.weight.abs().max() < 1


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


@pytest.mark.parametrize("options", [{"shot": 0}, {"width": 2}, {"way": 1}, {"first_dilation": 0}])
def test_values_that_cannot_work_are_refused(options):
    with pytest.raises(InvalidOptionError):
        SNAIL(6, **options)
