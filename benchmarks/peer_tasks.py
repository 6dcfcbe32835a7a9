"""Peers that are run as they are, in an environment of their own: easyfsl and qpth."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.material import (
    SIZES,
    cifar_fs,
    features,
    labels,
    network,
    plain_convolutions,
    random_split,
    unit_images,
)

Run = Callable[[], Any]

# easyfsl imports torchvision, whose compiled part has no build for this torch: two operator names must exist at import
_SCHEMAS = torch.library.Library("torchvision", "FRAGMENT")
for _name in ("nms", "qnms"):
    _SCHEMAS.define(f"{_name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


def _accept_data_source(self: Any, data_source: object = None) -> None:
    """Samplers of torch took a data source once, and easyfsl's still hands one over."""


torch.utils.data.Sampler.__init__ = _accept_data_source  # type: ignore[method-assign]


class InMemory(torch.utils.data.Dataset[tuple[Tensor, int]]):
    """Tensors in memory with the interface that easyfsl asks for."""

    def __init__(self, tensors: Tensor, classes: list[int]) -> None:
        self.tensors, self.classes = tensors, classes

    def __len__(self) -> int:
        return len(self.classes)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.tensors[index], self.classes[index]

    def get_labels(self) -> list[int]:
        """The class of each item."""
        return self.classes


def easyfsl_evaluation(width: str, episodes: int) -> Run:
    """easyfsl's prototypical networks over its TaskSampler, images in memory."""
    dataset, _ = cifar_fs("test")
    backbone = plain_convolutions(network(width))
    return _protonet(backbone, InMemory(unit_images(dataset), labels(dataset)), episodes)


def easyfsl_features(width: str, episodes: int) -> Run:
    """easyfsl's prototypical networks on features that were computed before."""
    return _protonet(nn.Identity(), InMemory(features(SIZES[width]), labels(random_split(20, 600, 8))), episodes)


def easyfsl_sampling(episodes: int) -> Run:
    """easyfsl's TaskSampler with a DataLoader on float images in memory."""
    dataset, _ = cifar_fs("train")
    loader = _loader(InMemory(unit_images(dataset), labels(dataset)), 5, 15, episodes)

    def run() -> None:
        for _ in loader:
            pass

    return run


def qpth_ridge(e: int, shot: int, repeats: int) -> Run:
    """Ridge regression in the dual as a batch of quadratic programs, one a class, and its gradients.

    The layer wants an inequality; 0 <= 1 is the one that its interior-point method satisfies soonest.
    """
    from qpth.qp import QPFunction

    from benchmarks.solvers import make_episodes

    episode = make_episodes((), 5, shot, 15, e)
    X, Q, Y, lam = episode.X, episode.Q, episode.Y, episode.lam
    n, none = len(X), torch.Tensor()
    G, h = torch.zeros(5, 1, n), torch.ones(5, 1)

    def run() -> float:
        for _ in range(repeats):
            S = (X @ X.mT + lam * torch.eye(n)).expand(5, n, n)
            A = QPFunction(verbose=-1, check_Q_spd=False)(S, -Y.mT, G, h, none, none)
            torch.autograd.grad((Q @ X.mT) @ A.mT, (X, Q, lam), episode.upstream)
        exact = torch.linalg.solve(S[0], Y)
        return float(((A.mT - exact).abs().max() / exact.abs().max()).detach())

    return run


def _protonet(backbone: nn.Module, dataset: InMemory, episodes: int) -> Run:
    from easyfsl.methods import PrototypicalNetworks

    model, loader = PrototypicalNetworks(backbone).eval(), _loader(dataset, 1, 15, episodes)

    def run() -> float:
        right = 0
        with torch.no_grad():
            for support, support_labels, query, query_labels, _ in loader:
                model.process_support_set(support, support_labels)
                right += int((model(query).argmax(1) == query_labels).sum())
        return right / (75 * episodes)

    return run


def _loader(dataset: InMemory, shot: int, query: int, episodes: int) -> Any:
    from easyfsl.samplers import TaskSampler

    sampler = TaskSampler(dataset, n_way=5, n_shot=shot, n_query=query, n_tasks=episodes)
    return torch.utils.data.DataLoader(dataset, batch_sampler=sampler, collate_fn=sampler.episodic_collate_fn)
