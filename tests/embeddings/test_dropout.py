"""Dropout: the distribution, the scale and the gradient of PyTorch's."""

from __future__ import annotations

import pytest
import torch

from handful.embeddings.dropout import Dropout


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("p", [0.1, 0.4])
def test_entries_are_zeroed_with_probability_p_and_the_others_scaled(p: float, dtype: torch.dtype) -> None:
    images = torch.ones(100, 32, 5, 5, dtype=dtype).contiguous(memory_format=torch.channels_last).requires_grad_()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        out = Dropout(p)(images)
    assert out.dtype == dtype
    assert out.is_contiguous(memory_format=torch.channels_last)
    kept = out.detach() != 0
    assert torch.equal(out[kept], torch.ones_like(out[kept]) / (1 - p))
    deviation = (p * (1 - p) / kept.numel()) ** 0.5
    assert abs(kept.double().mean() - (1 - p)) < 4 * deviation  # the seed is fixed, so this fails always or never
    (gradient,) = torch.autograd.grad(out.sum(), images)
    assert torch.equal(gradient, out.detach())


def test_evaluation_and_probabilities_of_0_and_1_are_those_of_pytorch() -> None:
    images = torch.rand(4, 3, 8, 8)
    assert torch.equal(Dropout(0.5).eval()(images), images)
    assert torch.equal(Dropout(0.0)(images), images)
    assert torch.equal(Dropout(1.0)(images), torch.zeros_like(images))


def test_the_same_seed_gives_the_same_mask() -> None:
    images, masks = torch.ones(1000), []
    for _ in range(2):
        with torch.random.fork_rng():
            torch.manual_seed(3)
            masks.append(Dropout(0.5)(images))
    assert torch.equal(*masks)
