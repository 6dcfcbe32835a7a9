"""Graph neural networks: a plain version of the graph, and the symmetries of a graph."""

import pytest
import torch
from torch import Tensor

from handful.errors import InvalidOptionError
from handful.learners import GNN

# the same sums in another order, in double precision
CLOSE = {"rtol": 1e-9, "atol": 1e-11}


@pytest.fixture
def learner() -> GNN:
    torch.manual_seed(0)
    learner = GNN(6, 3, layers=2, growth=4, hidden=7)
    for _ in range(5):  # running statistics of batch norm that are not the untouched start
        learner.fit(torch.randn(6, 6), torch.eye(3).repeat(2, 1))(torch.randn(8, 6))
    return learner.eval()


def plain_adjacency(similarity: torch.nn.Module, nodes: Tensor) -> Tensor:
    m = len(nodes)
    scores = torch.full((m, m), -torch.inf)
    for i in range(m):
        for j in range(m):
            if i != j:
                scores[i, j] = similarity((nodes[i] - nodes[j]).abs()[None])[0, 0]
    return torch.softmax(scores, dim=1)


def plain(learner: GNN, support: Tensor, targets: Tensor, query: Tensor) -> Tensor:
    """One query, one graph, every entry of every adjacency by itself."""
    embeddings = torch.cat([query[None], support])
    nodes = torch.cat([embeddings, torch.cat([torch.full((1, 3), 1 / 3), targets])], dim=1)
    for adjacency, update in zip(learner.adjacencies, learner.updates, strict=True):
        mixed = torch.cat([nodes, plain_adjacency(adjacency.similarity, nodes) @ nodes], dim=1)
        nodes = torch.cat([nodes, update(mixed)], dim=1)
    mixed = torch.cat([nodes, plain_adjacency(learner.last_adjacency.similarity, nodes) @ nodes], dim=1)
    return learner.classify(mixed)[0]


def test_all_graphs_at_once_equal_each_graph_entry_by_entry(learner):
    support, targets, query = torch.randn(6, 6), torch.eye(3).repeat(2, 1), torch.randn(4, 6)
    expected = torch.stack([plain(learner, support, targets, each) for each in query])
    torch.testing.assert_close(learner.fit(support, targets)(query), expected, **CLOSE)


def test_adjacencies_are_row_stochastic_without_loops_and_follow_a_permutation_of_the_nodes(learner):
    nodes = torch.randn(2, 7, 9)
    matrix = learner.adjacencies[0](nodes)
    torch.testing.assert_close(matrix.sum(-1), torch.ones(2, 7), **CLOSE)
    assert (matrix.diagonal(dim1=1, dim2=2) == 0).all()
    order = torch.randperm(7)
    torch.testing.assert_close(learner.adjacencies[0](nodes[:, order]), matrix[:, order][:, :, order], **CLOSE)


def test_the_row_of_one_node_is_that_of_the_whole_adjacency(learner):
    nodes = torch.randn(2, 7, 17)
    whole = learner.last_adjacency(nodes)
    torch.testing.assert_close(learner.last_adjacency.of_first(nodes), whole[:, :1], **CLOSE)


def test_the_support_is_a_set(learner):
    support, targets, query = torch.randn(6, 6), torch.eye(3).repeat(2, 1), torch.randn(4, 6)
    order = torch.randperm(6)
    shuffled = learner.fit(support[order], targets[order])(query)
    torch.testing.assert_close(shuffled, learner.fit(support, targets)(query), **CLOSE)


def test_queries_in_pieces_give_the_same_answers(learner, monkeypatch):
    support, targets, query = torch.randn(3, 6, 6), torch.eye(3).repeat(2, 1).expand(3, 6, 3), torch.randn(3, 5, 6)
    expected = learner.fit(support, targets)(query)
    for numbers in (1, 14 * 21 * 7):
        monkeypatch.setattr("handful.learners.chunks.CHUNK_NUMBERS", numbers)
        with torch.no_grad():
            torch.testing.assert_close(learner.fit(support, targets)(query), expected, **CLOSE)


@pytest.mark.parametrize("options", [{"layers": 0}, {"growth": 0}, {"hidden": 0}, {"way": 1}])
def test_values_that_cannot_work_are_refused(options):
    with pytest.raises(InvalidOptionError):
        GNN(6, **options)
