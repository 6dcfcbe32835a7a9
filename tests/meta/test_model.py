"""The model is cut where eq. 2 cuts it: an embedding for all episodes, a learner for each."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from handful.embeddings import conv4
from handful.episodes import Episode, LabelledSet
from handful.learners import R2D2, ProtoNet
from handful.meta.model import FewShotModel


def labelled(counts: list[int], generator: torch.Generator) -> LabelledSet:
    """Noise with a bright band whose height tells the class, with so many images of each class."""
    labels = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    bright = torch.arange(28)[None, :] // 9 == labels[:, None]  # (n, 28)
    images = 0.1 * torch.rand(len(labels), 1, 28, 28, generator=generator) + 0.5 * bright[:, None, :, None]
    return LabelledSet(images, torch.eye(len(counts))[labels])


@pytest.mark.parametrize("learner", [R2D2(lam=0.1), ProtoNet()], ids=["R2D2", "ProtoNet"])
def test_an_unbalanced_support_set_can_be_learnt(learner: R2D2 | ProtoNet) -> None:
    generator = torch.Generator().manual_seed(0)
    model = FewShotModel(nn.Flatten(), learner).eval()
    predict = model.adapt(labelled([1, 4, 2], generator))
    queries = labelled([3, 3, 3], generator)
    assert torch.equal(predict(queries.inputs).argmax(-1), queries.targets.argmax(-1))


def test_in_training_support_and_query_share_batch_statistics() -> None:
    model = FewShotModel(conv4("32C", 1), R2D2()).train()
    seen: list[int] = []
    model.embedding.register_forward_hook(lambda module, inputs, output: seen.append(len(inputs[0])))
    generator = torch.Generator().manual_seed(0)
    support, query = labelled([2, 2], generator), labelled([3, 3], generator)
    model(Episode(support, query, torch.arange(2)))
    assert seen == [10]


def test_leading_dimensions_are_episodes() -> None:
    model = FewShotModel(conv4("32C", 1), R2D2()).eval()
    generator = torch.Generator().manual_seed(0)
    episodes = [Episode(labelled([2, 2], generator), labelled([3, 3], generator), torch.arange(2)) for _ in range(3)]
    stacked = Episode(
        LabelledSet(
            torch.stack([e.support.inputs for e in episodes]), torch.stack([e.support.targets for e in episodes])
        ),
        LabelledSet(torch.stack([e.query.inputs for e in episodes]), torch.stack([e.query.targets for e in episodes])),
        torch.stack([e.classes for e in episodes]),
    )
    # float32: convolutions over another number of images may add in another order
    torch.testing.assert_close(model(stacked), torch.stack([model(e) for e in episodes]), atol=1e-5, rtol=1e-5)


def test_a_model_says_what_it_is_on_one_line() -> None:
    said = repr(FewShotModel(nn.Linear(3, 2), R2D2(lam=3.0)))
    assert said.startswith("FewShotModel(Linear of 8 weights, R2D2(lam=3, ")
    assert "\n" not in said
