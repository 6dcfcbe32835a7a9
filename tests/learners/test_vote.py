"""Learners that start as a vote of the labels that they gather are past chance after a few dozen episodes."""

import pytest
import torch

from handful.learners import GNN, SNAIL, BaseLearner


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
