"""R2-D2, LR-D2 and the network give what the authors' released code computes, written here as its formulas have it."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from handful.embeddings import conv4, winograd
from handful.embeddings.conv4 import WIDTHS, UnbiasedGroupNorm, Width
from handful.embeddings.dropout import Dropout
from handful.learners import LRD2, R2D2
from handful.meta.run import build
from handful.paper.recipes import named_recipe

SHAPES = [(5, 1), (5, 5), (20, 1), (2, 5)]


def problem(way: int, shot: int, features: int = 128) -> tuple[Tensor, Tensor, Tensor]:
    """Support and query features like those of a trained network, and one-hot labels class by class."""
    generator = torch.Generator().manual_seed(way + shot)
    support = 0.3 * torch.randn(way * shot, features, generator=generator)
    query = 0.3 * torch.randn(4 * way, features, generator=generator)
    return support, query, torch.eye(way).repeat_interleave(shot, 0)


def with_ones(features: Tensor) -> Tensor:
    return torch.cat([features, torch.ones(len(features), 1)], dim=1)


def released_ridge(support: Tensor, query: Tensor, labels: Tensor, lam: float, scale: float, bias: float) -> Tensor:
    """Features and labels divided by sqrt(n), the Woodbury form with an inverse, then scale and bias."""
    n = len(support)
    x, y = with_ones(support) / math.sqrt(n), labels / math.sqrt(n)
    w = x.T @ torch.inverse(x @ x.T + lam * torch.eye(n)) @ y
    return (query @ w[:-1] + w[-1:]) * scale + bias


def released_logistic(support: Tensor, query: Tensor, label: Tensor, lam: float, steps: int) -> Tensor:
    """Reweighted least squares with y in {0, 1}, every step in the Woodbury form, from weights of zero."""
    x = with_ones(support)
    w = torch.zeros(x.shape[1], 1)
    for _ in range(steps):
        eta = (x @ w).squeeze(1)
        mu = torch.sigmoid(eta)
        s = mu * (1 - mu)
        z = eta + (label - mu) / s
        w = x.T @ torch.inverse(x @ x.T + lam * torch.diag(1 / s)) @ z.unsqueeze(1)
    return with_ones(query) @ w


@pytest.mark.parametrize(("way", "shot"), SHAPES)
@pytest.mark.parametrize("name", ["cifar-fs/r2d2-64C/authors", "mini-imagenet/r2d2-64C/authors"])
def test_r2d2_equals_the_released_formula(name: str, way: int, shot: int) -> None:
    support, query, labels = problem(way, shot)
    support.requires_grad_(), query.requires_grad_()
    options = named_recipe(name).options
    ours = R2D2(**options).fit(support, labels)(query)  # type: ignore[arg-type]
    theirs = released_ridge(support, query, labels, 50.0, float(options["scale"]), 0.0)
    weights = torch.randn(ours.shape, generator=torch.Generator().manual_seed(0))
    gradients = [torch.autograd.grad((logits * weights).sum(), (support, query)) for logits in (ours, theirs)]
    # float32 on both sides: 1e-6 of the largest answer, a few times that for gradients
    assert float((ours - theirs).detach().abs().max()) <= 1e-6 * float(theirs.detach().abs().max())
    for mine, released in zip(*gradients, strict=True):
        assert float((mine - released).abs().max()) <= 5e-6 * float(released.abs().max())


@pytest.mark.parametrize(("way", "shot"), SHAPES)
@pytest.mark.parametrize("steps", [1, 5, 10])
def test_lrd2_and_its_gradient_equal_the_released_formula(way: int, shot: int, steps: int) -> None:
    support, query, labels = problem(way, shot)
    support.requires_grad_(), query.requires_grad_()
    lam = 1.0 if way == 2 else 50.0
    ours = LRD2(lam=lam, steps=steps).fit(support, labels)(query)
    if way == 2:  # one problem; its logit belongs to the second class here
        theirs = released_logistic(support, query, labels[:, 1], lam, steps)
        ours = ours[:, 1:] - ours[:, :1]
    else:
        theirs = torch.cat([released_logistic(support, query, label, lam, steps) for label in labels.T], dim=1)
    weights = torch.randn(ours.shape, generator=torch.Generator().manual_seed(0))
    gradients = [torch.autograd.grad((logits * weights).sum(), (support, query)) for logits in (ours, theirs)]
    # float32 on both sides, through up to ten steps
    assert float((ours - theirs).detach().abs().max()) <= 1e-6 * float(theirs.detach().abs().max()) + 1e-6
    for mine, released in zip(*gradients, strict=True):
        assert float((mine - released).abs().max()) <= 5e-6 * float(released.abs().max())


class ReleasedNet(nn.Module):
    """The released network: four blocks, block 3 pooled once more, both flattened and concatenated."""

    def __init__(self, channels: int, width: Width, dropout: float) -> None:
        super().__init__()
        sizes = (channels, *WIDTHS[width])
        self.convs = nn.ModuleList(nn.Conv2d(i, o, 3, padding=1) for i, o in itertools.pairwise(sizes))
        self.norms = nn.ModuleList(nn.BatchNorm2d(size, momentum=0.1) for size in sizes[1:])
        self.dropout = dropout

    def forward(self, images: Tensor) -> Tensor:
        kept = []
        for number, (conv, norm) in enumerate(zip(self.convs, self.norms, strict=True)):
            maps = nn.functional.max_pool2d(norm(conv(images)), 2, stride=2 if number < 3 else 1)
            images = nn.functional.leaky_relu(maps, 0.1)
            if number >= 2:
                images = nn.functional.dropout(images, self.dropout, self.training)
                kept.append(images)
        third = nn.functional.max_pool2d(kept[0], 2, stride=1)
        return torch.cat([third.flatten(1), kept[1].flatten(1)], dim=1)


@pytest.mark.parametrize(("channels", "side", "dropout"), [(3, 32, 0.4), (1, 28, 0.0), (3, 84, 0.1)])
def test_the_network_equals_the_released_structure_forward_and_backward(
    channels: int, side: int, dropout: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    # tiled convolutions round differently; tests/embeddings/test_winograd.py compares them with plain ones
    monkeypatch.setattr(winograd, "fast_path", lambda images, weight: False)
    monkeypatch.setattr(Dropout, "forward", nn.Dropout.forward)  # draws other masks from the same seed
    ours, theirs = conv4("64C", channels, dropout=dropout), ReleasedNet(channels, "64C", dropout)
    for block, conv, norm in zip(ours.blocks, theirs.convs, theirs.norms, strict=True):
        conv.load_state_dict(block[0].state_dict())
        norm.load_state_dict(block[1].state_dict())
    images = torch.rand(8, channels, side, side, generator=torch.Generator().manual_seed(0))
    answers = []
    for net in (ours, theirs):
        torch.manual_seed(1)  # the same dropout masks
        net(images).square().mean().backward()
        net.eval()
        answers.append(net(images))
    assert torch.equal(*answers)  # the running statistics that training left are the same too
    for block, conv, norm in zip(ours.blocks, theirs.convs, theirs.norms, strict=True):
        assert torch.equal(block[0].weight.grad, conv.weight.grad)
        assert torch.equal(block[1].weight.grad, norm.weight.grad)


def test_group_norm_by_the_unbiased_variance_equals_the_released_formula() -> None:
    maps = torch.randn(3, 96, 5, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    norm = UnbiasedGroupNorm(32, 96).double()
    nn.init.uniform_(norm.weight), nn.init.uniform_(norm.bias)
    groups = maps.view(3, 32, -1)
    plain = (groups - groups.mean(-1, keepdim=True)) / (groups.var(-1, keepdim=True) + 1e-5).sqrt()
    theirs = plain.view_as(maps) * norm.weight[:, None, None] + norm.bias[:, None, None]
    torch.testing.assert_close(norm(maps), theirs, atol=1e-12, rtol=1e-12)


def test_gamma_starts_uniform_in_the_variant_authors_and_at_one_elsewhere() -> None:
    recipe = named_recipe("cifar-fs/r2d2-64C/authors")
    gammas = [m.weight for m in build(recipe, (3, 32, 32)).modules() if isinstance(m, nn.BatchNorm2d)]
    drawn = torch.cat(gammas).detach()
    assert len(gammas) == 4
    assert float(drawn.min()) > 0
    assert float(drawn.max()) < 1
    assert 0.4 < float(drawn.mean()) < 0.6
    assert float(drawn.std()) > 0.2
    plain = build(replace(recipe, norm_start="ones"), (3, 32, 32))
    assert all(bool((m.weight == 1).all()) for m in plain.modules() if isinstance(m, nn.BatchNorm2d))


def test_the_variant_authors_follows_the_released_settings() -> None:
    recipe = named_recipe("cifar-fs/r2d2-wide/authors")
    assert (recipe.val_query, recipe.val_fresh, recipe.plan.validate_every, recipe.plan.patience) == (
        0,
        True,
        100,
        20_000,
    )
    characters = named_recipe("omniglot/r2d2-64C/authors")
    assert (characters.data, characters.val_ways) == ("omniglot-nearest", (5, 20))
    two_way = named_recipe("cifar-fs-binary/lrd2-wide/authors")
    assert (two_way.norm, two_way.options, two_way.plan.decay) == ("group-unbiased", {"lam": 1.0, "steps": 10}, 0.99)
