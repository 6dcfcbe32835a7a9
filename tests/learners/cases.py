"""One small model of every registered learner, and episodes for it, for tests that all learners must pass."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache

import torch
from torch import Tensor, nn

from handful import FewShotModel
from handful.episodes import Episode, LabelledSet
from handful.learners.registry import Option, build_learner

WAY = 3
IMAGE = (1, 8, 8)


@dataclass(frozen=True)
class Case:
    """A learner by its registered name, with options that keep it small."""

    name: str
    options: Mapping[str, Option] = field(default_factory=dict)
    maps: bool = False
    """Whether it works on feature maps rather than on vectors."""
    closed_form: bool = False
    """Whether its answer is a differentiable formula of vectors of any size."""

    def __str__(self) -> str:
        return "-".join([self.name, *(f"{key}={value}" for key, value in self.options.items())])

    def model(self) -> FewShotModel:
        """The model in double precision, so that tolerances can be tight, and in evaluation mode."""
        return deepcopy(_model(self.name, tuple(self.options.items()), self.maps))


@cache
def _model(name: str, options: tuple[tuple[str, Option], ...], maps: bool) -> FewShotModel:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        model = FewShotModel(*build_learner(name, tiny_embedding(maps), IMAGE, dict(options))).double()
        _warm_up(model)
    return model.eval()


CASES = [
    Case("r2d2", closed_form=True),
    Case("r2d2", {"learn_lam": True, "prior": "diagonal"}),
    Case("lrd2", {"lam": 1.0, "learn_lam": True, "learn_scale": True, "learn_bias": True}, closed_form=True),
    Case("lrd2", {"lam": 1.0, "steps": 12, "learn_lam": True, "gradient": "implicit"}, closed_form=True),
    Case("softmax", {"lam": 1.0, "learn_lam": True, "learn_scale": True}, closed_form=True),
    Case("softmax", {"lam": 1.0, "steps": 12, "learn_lam": True, "gradient": "implicit"}, closed_form=True),
    Case("svm", {"learn_C": True}, closed_form=True),
    Case("protonet", {"learn_scale": True}, closed_form=True),
    Case("protonet", {"metric": "cosine", "learn_scale": True}, closed_form=True),
    Case("matching", {"learn_scale": True}, closed_form=True),
    Case("matching", {"context": True, "context_steps": 2}),
    Case("siamese", {"hidden": 6}),
    Case("relation", {"channels": 5}, maps=True),
    Case("relation", {"channels": 5, "statistics": "batch", "start": "original"}, maps=True),
    Case("frn", maps=True),
    Case("gnn", {"way": WAY, "size": 5, "growth": 4, "hidden": 6}),
    Case("gnn", {"way": WAY, "size": 0, "growth": 4, "hidden": 6, "vote": False, "query_label": "zeros"}),
    Case("gnn", {"way": WAY, "size": 5, "growth": 4, "hidden": 6, "form": "mini-imagenet"}),
    Case("gnn", {"way": WAY, "size": 5, "growth": 4, "form": "omniglot", "query_label": "zeros"}),
    Case("snail", {"way": WAY, "shot": 2, "size": 6, "width": 8}),
    Case("snail", {"way": WAY, "shot": 2, "size": 0, "width": 8, "vote": False, "first_dilation": 2}),
    Case("maml", {"way": WAY, "steps": 2, "test_steps": 3, "rate": 0.1, "learn_rates": True}),
    Case("maml", {"way": WAY, "steps": 2, "test_steps": 3, "rate": 0.1, "first_order": True}),
    Case("maml", {"way": WAY, "steps": 2, "test_steps": 2, "rate": 0.1, "statistics": "batch"}),
    Case("maml", {"way": WAY, "steps": 2, "test_steps": 3, "rate": 0.1, "batching": "vmap"}),
    Case("maml", {"way": WAY, "steps": 2, "test_steps": 3, "rate": 0.03, "sum_over_classes": True, "keep_norms": True}),
    Case("anil", {"way": WAY, "steps": 2, "test_steps": 3, "rate": 0.1}),
    Case("anil", {"way": WAY, "steps": 2, "test_steps": 3, "rate": 0.1, "batching": "vmap"}),
    Case("meta-lstm", {"way": WAY, "steps": 2, "hidden": 3}),
    Case("meta-lstm", {"way": WAY, "steps": 2, "hidden": 3, "feedback": "logit", "statistics": "batch-in-training"}),
    Case("transfer", {"classes": WAY}),
    Case("transfer", {"classes": WAY, "normalise": False}),
]


def tiny_embedding(maps: bool) -> nn.Module:
    layers = [nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, *([] if maps else [nn.Flatten()]))


def episode(seed: int, way: int = WAY, shot: int = 2, query: int = 4, lead: tuple[int, ...] = ()) -> Episode:
    """Episodes whose classes are random images under noise."""
    generator = torch.Generator().manual_seed(seed)
    centres = torch.rand(*lead, way, 1, *IMAGE, generator=generator, dtype=torch.float64)

    def labelled(count: int) -> LabelledSet:
        noise = torch.rand(*lead, way, count, *IMAGE, generator=generator, dtype=torch.float64)
        inputs = (0.6 * centres + 0.4 * noise).flatten(len(lead), len(lead) + 1)
        return LabelledSet(inputs, one_hot(way, count).expand(*lead, -1, -1))

    return Episode(labelled(shot), labelled(query), torch.arange(way).expand(*lead, -1))


def one_hot(way: int, count: int) -> Tensor:
    return torch.eye(way, dtype=torch.float64).repeat_interleave(count, 0)


def _warm_up(model: FewShotModel) -> None:
    """Let normalisation layers see data in training mode, so that evaluation mode is not the untouched start."""
    model.train()
    with torch.no_grad():
        for seed in range(3):
            model(episode(100 + seed, lead=(2,)))
