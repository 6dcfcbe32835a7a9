"""Learners that read an episode with a network: its order, a start as a vote, and answers in pieces."""

import pytest
import torch
from torch import nn

from handful.learners import GNN, SNAIL, BaseLearner, reading
from handful.learners.reading import VOTE, by_chunks, shuffled, start_as_vote


def test_the_support_and_its_targets_are_shuffled_alike_in_every_episode():
    torch.manual_seed(0)
    support = torch.arange(2 * 6.0).reshape(2, 6, 1)
    moved, targets = shuffled(support, torch.eye(6).expand(2, 6, 6))
    order = targets[0].argmax(1)
    assert sorted(order.tolist()) == list(range(6))
    assert order.tolist() != list(range(6))
    torch.testing.assert_close(targets[1], targets[0])
    torch.testing.assert_close(moved, support[:, order])


def test_a_unanimous_vote_adds_its_weight_to_the_logit_of_its_class_only():
    layer = nn.Linear(7, 3)
    inputs = torch.zeros(1, 7)
    inputs[0, 2 + 1] = 1.0  # the labels are inputs 2, 3 and 4; all say class 1
    before = layer(inputs)
    start_as_vote(layer, 2, 3)
    torch.testing.assert_close(layer(inputs) - before, torch.tensor([[0.0, VOTE, 0.0]]))


@pytest.mark.parametrize(("room", "calls"), [(30, [(3, 4)]), (8, [(2, 4), (1, 4)]), (3, [(1, 3)] * 3 + [(3, 1)])])
def test_pieces_bound_what_is_held_and_change_no_answer(room, calls, monkeypatch):
    monkeypatch.setattr(reading, "CHUNK_NUMBERS", 10 * room)
    seen = []

    def answer(support, query):
        seen.append(tuple(query.shape[:2]))
        return query + support.sum(1, keepdim=True)

    support, query = torch.randn(3, 2, 5), torch.randn(3, 4, 5)
    with torch.no_grad():
        found = by_chunks(answer, support, query, cost=10)
    torch.testing.assert_close(found, answer(support, query))
    assert seen[:-1] == calls


def test_a_call_with_gradients_is_never_cut(monkeypatch):
    monkeypatch.setattr(reading, "CHUNK_NUMBERS", 1)
    seen = []
    by_chunks(lambda support, query: seen.append(len(query)) or query, torch.zeros(3, 2, 5), torch.zeros(3, 4, 5), 10)
    assert seen == [3]


@pytest.mark.slow
@pytest.mark.parametrize(
    "build",
    [lambda: GNN(8, 3, layers=1, growth=8, hidden=16), lambda: SNAIL(8, 3, width=16)],
    ids=["GNN", "SNAIL"],
)
def test_it_learns_to_gather_labels_from_the_first_episodes_on(build):
    torch.manual_seed(0)
    learner: BaseLearner = build()
    optimiser = torch.optim.Adam(learner.parameters(), 3e-3)
    right = []
    for _ in range(40):  # well separated classes; from random weights it is still near chance, 1 in 3, after as many
        centres = torch.randn(4, 3, 8)
        support = centres + 0.3 * torch.randn(4, 3, 8)
        query = (centres.unsqueeze(2) + 0.3 * torch.randn(4, 3, 5, 8)).flatten(1, 2)
        logits = learner.fit(support, torch.eye(3).expand(4, 3, 3))(query)
        targets = torch.eye(3).repeat_interleave(5, 0).expand(4, 15, 3)
        optimiser.zero_grad()
        learner.objective(logits, targets).backward()
        optimiser.step()
        right.append((logits.argmax(-1) == targets.argmax(-1)).float().mean())
    assert torch.stack(right[-10:]).mean() > 0.85
