"""Graph neural networks: a graph computed by hand, the originals' parameters, and the symmetries of a graph."""

import math

import pytest
import torch
from torch import Tensor, nn

from handful.errors import InvalidOptionError
from handful.learners import GNN
from handful.learners.gnn import _Adjacency

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
        monkeypatch.setattr("handful.learners.reading.CHUNK_NUMBERS", numbers)
        with torch.no_grad():
            torch.testing.assert_close(learner.fit(support, targets)(query), expected, **CLOSE)


def halving_by_distance(adjacency: _Adjacency, seen: int) -> None:
    """Weights with which a neighbour's share halves with each unit of its L1 distance in the first `seen` numbers."""
    for layer in adjacency.similarity.layers:
        if isinstance(layer, nn.Linear):
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)
            layer.weight.data[0, 0] = 1
        if isinstance(layer, nn.BatchNorm1d):
            layer.eps = 0.0
    adjacency.similarity.layers[0].weight.data[0, :seen] = 1
    adjacency.similarity.layers[-1].weight.data[0, 0] = -math.log(2)


@pytest.mark.parametrize(("query_label", "second"), [("zeros", 1 / 15), ("uniform", 22 / 45)])
@pytest.mark.parametrize("form", ["ours", "mini-imagenet"])
def test_a_graph_of_three_nodes_by_hand(form, query_label, second):
    """Query q at 0 with no label, A at 0 of class 0, B at 2 of class 1; the layer appends the gathered label 0.

    L1 distances with labels: q-A 1, q-B 3, A-B 4, whether q's label is (0, 0) or (1/2, 1/2). Shares of neighbours:
    q: A 4/5, B 1/5. A: q 8/9, B 1/9. B: q 2/3, A 1/3. So q gathers 4/5 of label 0. From zeros as q's label A gathers 0
    and B 1/3; from 1/2, A gathers 4/9 and B 1/3 + 1/3. The last layer, whose adjacency does not see what was appended,
    gives the gathered label 0 as the first logit, 4/5, and what was gathered of the appended numbers as the second:
    0 * 4/5 + 1/3 * 1/5 = 1/15, or 4/9 * 4/5 + 2/3 * 1/5 = 22/45.
    """
    learner = GNN(1, 2, layers=1, growth=1, hidden=1, vote=False, query_label=query_label, form=form).eval()
    halving_by_distance(learner.adjacencies[0], 3)
    halving_by_distance(learner.last_adjacency, 3)
    update, norm = learner.updates[0].layers[:2]
    norm.eps = 0.0
    for layer in (update, learner.classify):
        nn.init.zeros_(layer.weight)
        nn.init.zeros_(layer.bias)
    update.weight.data[0, 3 + 1] = 1  # inputs: own x, label 0, label 1; then the same three, gathered
    learner.classify.weight.data[0, 4 + 1] = 1  # here four each, with the appended number last
    learner.classify.weight.data[1, 4 + 3] = 1
    logits = learner.fit(torch.tensor([[0.0], [2.0]]), torch.eye(2))(torch.tensor([[0.0]]))
    torch.testing.assert_close(logits, torch.tensor([[0.8, second]]), **CLOSE)


@pytest.mark.parametrize("form", ["ours", "mini-imagenet", "omniglot"])
def test_equal_nodes_are_equally_near(form):
    adjacency = GNN(6, 3, form=form).eval().adjacencies[0]
    nodes = torch.randn(1, 1, 9).expand(1, 5, 9)
    matrix = adjacency(nodes)
    torch.testing.assert_close(matrix[0], (torch.ones(5, 5) - torch.eye(5)) / 4, **CLOSE)


def test_the_originals_count_every_pair_twice_and_every_node_with_itself_in_batch_norm():
    """Two nodes at distance 3: differences 0, 3, 3, 0, so their mean is 1.5; each pair once, it is 3."""
    nodes = torch.tensor([[[0.0], [3.0]], [[3.0], [0.0]]])
    for every_pair, mean in ((True, 1.5), (False, 3.0)):
        adjacency = _Adjacency([1, 2, 2, 1, 1], every_pair).train()
        first, norm = adjacency.similarity.layers[:2]
        nn.init.ones_(first.weight)
        nn.init.zeros_(first.bias)
        norm.momentum = 1.0
        adjacency(nodes)
        torch.testing.assert_close(norm.running_mean, torch.full((2,), mean), **CLOSE)


def test_every_pair_by_itself_scores_as_each_pair_once_does(learner):
    adjacency, nodes = learner.adjacencies[0], torch.randn(2, 5, 9)
    apart = ~torch.eye(5, dtype=torch.bool)
    every, once = adjacency._of_every_pair(nodes), adjacency._of_each_pair_once(nodes)
    torch.testing.assert_close(every[:, apart], once[:, apart], **CLOSE)


def test_the_mini_imagenet_form_has_the_original_s_parameters():
    """128 features and 5 labels make nodes of 133 numbers; each layer appends 48 (GNN_nl with nf = 96)."""

    def adjacency(width: int) -> int:
        # 1x1 convolutions with biases, each with batch norm but the last
        widths = [(width, 192), (192, 192), (192, 96), (96, 96)]
        return sum(i * o + o + 2 * o for i, o in widths) + 96 + 1

    nodes = [133, 133 + 48, 133 + 96]
    updates = [2 * width * 48 + 48 + 2 * 48 for width in nodes[:2]]
    total = sum(adjacency(width) for width in nodes) + sum(updates) + 2 * nodes[2] * 5 + 5
    learner = GNN(128, 5, form="mini-imagenet", vote=False)
    assert sum(p.numel() for p in learner.parameters()) == total == 335_994


def test_the_omniglot_form_has_the_original_s_parameters():
    """64 features and 5 labels make nodes of 69 numbers; the last adjacency is as wide as the one before."""

    def adjacency(width: int, nf: int) -> int:
        widths = [(width, 2 * nf), (2 * nf, int(1.5 * nf)), (int(1.5 * nf), nf), (nf, nf)]
        return sum(i * o + o + 2 * o for i, o in widths) + nf + 1

    nodes = [69, 69 + 48, 69 + 96]
    adjacencies = adjacency(69, 69) + adjacency(117, 117) + adjacency(165, 117)
    updates = [2 * width * 48 + 48 + 2 * 48 for width in nodes[:2]]
    total = adjacencies + sum(updates) + 2 * nodes[2] * 5 + 5 + 2 * 5  # batch norm on the logits
    learner = GNN(64, 5, form="omniglot", vote=False)
    assert sum(p.numel() for p in learner.parameters()) == total == 276_930
    drops = [name for name, module in learner.named_modules() if isinstance(module, nn.Dropout)]
    assert drops == ["last_adjacency.similarity.layers.3"]


def test_without_a_vote_the_last_layer_starts_as_torch_draws_it():
    largest = (2 * (6 + 3 + 96)) ** -0.5  # torch's uniform bound by fan-in
    assert GNN(6, 3, vote=False).classify.weight.abs().max() <= largest
    assert GNN(6, 3).classify.weight.max() > 4


@pytest.mark.parametrize("options", [{"layers": 0}, {"growth": 0}, {"hidden": 0}, {"way": 1}])
def test_values_that_cannot_work_are_refused(options):
    with pytest.raises(InvalidOptionError):
        GNN(6, **options)


def test_unknown_words_are_refused_with_the_known_ones():
    with pytest.raises(InvalidOptionError, match=r"query_label .*uniform, zeros.*'ones'"):
        GNN(6, query_label="ones")
    with pytest.raises(InvalidOptionError, match=r"form .*ours, mini-imagenet, omniglot.*'cifar'"):
        GNN(6, form="cifar")
