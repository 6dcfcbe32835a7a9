"""R2-D2 against scikit-learn's Ridge and the normal equations in NumPy."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge

from handful.errors import InvalidOptionError, ShapeError
from handful.learners import R2D2

# both solve one small system in double precision
CLOSE = {"rtol": 1e-9, "atol": 1e-10}


@pytest.fixture(params=[(12, 5), (6, 40)], ids=["more examples than features", "more features than examples"])
def problem(request: pytest.FixtureRequest) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    n, e = request.param
    rng = np.random.default_rng(0)
    return rng.normal(size=(n, e)), np.eye(3)[np.arange(n) % 3], rng.normal(size=(7, e))


def logits(learner: R2D2, problem: tuple[np.ndarray, np.ndarray, np.ndarray]) -> np.ndarray:
    support, targets, query = (torch.from_numpy(each) for each in problem)
    return learner.fit(support, targets)(query).detach().numpy()


def with_ones(features: np.ndarray) -> np.ndarray:
    return np.concatenate([features, np.ones((len(features), 1))], axis=1)


def test_the_defaults_are_ridge_with_n_lam_and_a_penalised_column_of_ones(problem):
    support, targets, query = problem
    ridge = Ridge(alpha=len(support) * 50.0, fit_intercept=False).fit(with_ones(support), targets)
    learner = R2D2(lam=50.0, scale=10.0, bias=0.5)
    np.testing.assert_allclose(logits(learner, problem), 10.0 * ridge.predict(with_ones(query)) + 0.5, **CLOSE)


@pytest.mark.parametrize("per_example", [True, False])
@pytest.mark.parametrize("intercept", [True, False])
def test_each_convention_has_its_switch(problem, per_example, intercept):
    support, targets, query = problem
    lift = with_ones if intercept else np.asarray
    alpha = 0.3 * (len(support) if per_example else 1)
    expected = Ridge(alpha=alpha, fit_intercept=False).fit(lift(support), targets).predict(lift(query))
    learner = R2D2(lam=0.3, scale=1.0, lam_per_example=per_example, intercept=intercept)
    np.testing.assert_allclose(logits(learner, problem), expected, **CLOSE)


def test_the_diagonal_prior_penalises_each_feature_by_its_own_lam(problem):
    support, targets, query = problem
    lam = np.linspace(0.1, 3.0, support.shape[1])
    learner = R2D2(scale=1.0, prior="diagonal", features=len(lam), lam_per_example=False, intercept=False)
    learner.log_lam.data = torch.from_numpy(np.log(lam))
    weights = np.linalg.solve(support.T @ support + np.diag(lam), support.T @ targets)
    np.testing.assert_allclose(logits(learner, problem), query @ weights, **CLOSE)


def test_under_the_diagonal_prior_the_column_of_ones_has_lam_one(problem):
    support, targets, query = problem
    n, e = support.shape
    learner = R2D2(lam=0.2, scale=1.0, prior="diagonal", features=e)
    lam = n * np.append(np.full(e, 0.2), 1.0)
    lifted = with_ones(support)
    weights = np.linalg.solve(lifted.T @ lifted + np.diag(lam), lifted.T @ targets)
    np.testing.assert_allclose(logits(learner, problem), with_ones(query) @ weights, **CLOSE)


def test_gradients_reach_lam_scale_and_embeddings():
    rng = torch.Generator().manual_seed(0)
    support = torch.randn(4, 3, generator=rng, requires_grad=True)
    query = torch.randn(2, 3, generator=rng, requires_grad=True)
    targets = torch.eye(2).repeat(2, 1)
    learner = R2D2(lam=0.5, scale=2.0, learn_lam=True)

    def run(support, query, log_lam, log_scale, bias):
        tensors = {"log_lam": log_lam, "log_scale": log_scale, "bias": bias}
        fit = torch.func.functional_call
        return fit(Both(learner), {f"learner.{k}": v for k, v in tensors.items()}, (support, targets, query))

    inputs = (support, query, *(p.detach().requires_grad_() for p in learner.parameters()))
    assert torch.autograd.gradcheck(run, inputs)


class Both(torch.nn.Module):
    """Fit and predict as one forward pass, so that torch can call it with other parameters."""

    def __init__(self, learner: R2D2) -> None:
        super().__init__()
        self.learner = learner

    def forward(self, support, targets, query):
        return self.learner.fit(support, targets)(query)


@pytest.mark.parametrize("switch", ["lam", "scale", "bias"])
@pytest.mark.parametrize("on", [True, False])
def test_lam_scale_and_bias_are_learnt_by_a_switch_each(switch, on):
    learner = R2D2(**{f"learn_{switch}": on})
    parameter = learner.bias if switch == "bias" else getattr(learner, f"log_{switch}")
    assert parameter.requires_grad is on


@pytest.mark.parametrize("on", [True, False])
def test_the_scale_itself_may_be_learnt_in_place_of_its_logarithm(problem, on):
    direct, usual = (R2D2(scale=1e-4, learn_scale=on, direct_scale=each) for each in (True, False))
    np.testing.assert_allclose(logits(direct, problem), logits(usual, problem), rtol=1e-6)
    assert {"scale"} == {name for name, _ in direct.named_parameters()} - {name for name, _ in usual.named_parameters()}
    assert direct.scale.requires_grad is on


def test_a_tiny_scale_learnt_directly_is_left_sooner(problem):
    support, targets, _ = (torch.from_numpy(each).float() for each in problem)
    found = {}
    for direct in (True, False):
        learner = R2D2(lam=0.1, scale=1e-4, direct_scale=direct)
        optimiser = torch.optim.Adam(learner.parameters(), lr=5e-3)
        for _ in range(20):
            optimiser.zero_grad()
            torch.nn.functional.cross_entropy(learner.fit(support, targets)(support), targets).backward()
            optimiser.step()
        found[direct] = (learner.scale if direct else learner.log_scale.exp()).item()
    assert found[True] == pytest.approx(0.1, rel=0.05)  # 20 steps of 0.005
    assert found[False] == pytest.approx(1e-4 * np.exp(0.1), rel=0.05)


@pytest.mark.parametrize("options", [{"lam": 0.0}, {"lam": -1.0}, {"scale": 0.0}, {"prior": "round"}])
def test_values_that_cannot_work_are_refused(options):
    with pytest.raises(InvalidOptionError):
        R2D2(**options)


def test_the_diagonal_prior_needs_the_number_of_features_and_checks_it():
    with pytest.raises(InvalidOptionError, match="features"):
        R2D2(prior="diagonal")
    with pytest.raises(ShapeError, match=r"3 features.* 4\."):
        R2D2(prior="diagonal", features=3).fit(torch.zeros(2, 4), torch.eye(2))
