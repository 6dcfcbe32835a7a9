"""What solvers refuse: each check passes good values, and names the bad ones by name, number and shape."""

import math

import pytest
import torch

from handful.errors import InvalidOptionError, NotFiniteError, NotPositiveDefiniteError, ShapeError
from handful.solvers import unchecked
from handful.solvers._checks import (
    common_batch,
    inspect,
    require_choice,
    require_finite,
    require_gram,
    require_labels,
    require_one_hot,
    require_positive,
    require_rows,
    require_steps,
    require_symmetric,
    require_targets,
)


def test_nan_and_infinity_are_counted_apart():
    values = torch.zeros(2, 3)
    values[0, :2], values[1, 0] = math.nan, math.inf
    with pytest.raises(NotFiniteError, match=r"Q .*\(2, 3\).* 2 NaN .* 1 infinite .* 6\b"):
        require_finite("Q", values)


def test_a_sum_that_overflows_is_no_sign_of_an_infinite_value():
    require_finite("Q", torch.full((2,), torch.finfo(torch.float32).max))


@pytest.mark.parametrize("value", [0.0, -1.0, math.inf, math.nan])
def test_a_regulariser_that_is_not_positive_and_finite_is_refused(value: float):
    require_positive("lam", torch.tensor(1e-30))
    with pytest.raises(InvalidOptionError, match=f"lam .*1 of its 1 .*{value:g}"):
        require_positive("lam", torch.tensor(value))
    with pytest.raises(InvalidOptionError, match=f"lam .*1 of its 3 .*{value:g}"):
        require_positive("lam", torch.tensor([1.0, value, 2.0]))


def test_labels_other_than_0_and_1_are_counted_and_the_first_is_named():
    require_labels(torch.tensor([0.0, 1.0]))
    with pytest.raises(InvalidOptionError, match=r"2 of 4 .* 0\.5\b"):
        require_labels(torch.tensor([0.0, 0.5, 1.0, -1.0]))


@pytest.mark.parametrize("bad", [[0.0, 0.0, 0.0], [1.0, 1.0, 0.0]])
def test_a_row_names_exactly_one_class(bad: list[float]):
    require_one_hot(torch.eye(3))
    with pytest.raises(InvalidOptionError, match=r"^1 row"):
        require_one_hot(torch.stack([torch.eye(3)[0], torch.tensor(bad)]))


def test_one_column_names_no_class():
    with pytest.raises(ShapeError, match=r"\(4, 1\)"):
        require_one_hot(torch.ones(4, 1))


def test_steps_and_choices():
    require_steps(1)
    with pytest.raises(InvalidOptionError, match="steps=0"):
        require_steps(0)
    require_choice("gradient", "implicit", ("implicit", "unrolled"))
    with pytest.raises(InvalidOptionError, match=r"gradient .*implicit, unrolled.*'none'"):
        require_choice("gradient", "none", ("implicit", "unrolled"))


def test_a_matrix_may_be_asymmetric_by_rounding_but_not_by_more():
    X = torch.randn(6, 40, generator=torch.Generator().manual_seed(0))
    rounded = (X @ X.mT).to(torch.bfloat16).float()
    rounded[0, 1] *= 1 + 2**-8  # half a unit in the last place of bfloat16
    require_symmetric(rounded)
    for sign in (1, -1):
        with pytest.raises(NotPositiveDefiniteError, match=r"0\.5.* 2"):
            require_symmetric(torch.tensor([[2.0, sign * 0.5], [0.0, 2.0]]))


@pytest.mark.parametrize("shape", [(3,), (3, 4), (0, 0)])
def test_a_gram_matrix_is_square_and_not_empty(shape: tuple[int, ...]):
    require_gram(torch.zeros(5, 3, 3))
    with pytest.raises(ShapeError, match=rf"\({', '.join(map(str, shape))}.*\)"):
        require_gram(torch.zeros(shape))


@pytest.mark.parametrize("shape", [(3,), (4, 2), (3, 0)])
def test_targets_and_rows_have_as_many_rows_as_there_are_samples(shape: tuple[int, ...]):
    require_targets(torch.eye(3), torch.zeros(3, 2))
    require_rows("X", torch.zeros(3, 7), "Y", torch.zeros(3, 2))
    with pytest.raises(ShapeError, match=r"K .*Y .*\(3, 3\)"):
        require_targets(torch.eye(3), torch.zeros(shape))
    with pytest.raises(ShapeError, match=r"X .*Y .*\(3, 7\)"):
        require_rows("X", torch.zeros(3, 7), "Y", torch.zeros(shape))


def test_batch_dimensions_broadcast_or_are_named():
    size = torch.Size
    assert common_batch(K=size(), Y=size([4]), lam=size()) == (4,)
    assert common_batch(K=size([2, 1]), Y=size([4])) == (2, 4)
    assert common_batch() == ()
    with pytest.raises(ShapeError, match=r"K \(2,\), lam \(3,\)"):
        common_batch(K=size([2]), lam=size([3]))


def test_inspecting_inside_vmap_sees_the_whole_batch_and_refuses_as_outside():
    seen = []

    def total(x: torch.Tensor) -> torch.Tensor:
        inspect(lambda values: seen.append(tuple(values.shape)), x)
        inspect(lambda values: require_finite("x", values), x)
        return x.sum()

    batch = torch.ones(4, 3)
    torch.func.vmap(total)(batch)
    total(batch[0])
    assert seen == [(4, 3), (3,)]
    batch[2, 1] = math.nan
    with pytest.raises(NotFiniteError, match=r"\(4, 3\).* 1 NaN"):
        torch.func.vmap(total)(batch)


def test_values_are_not_looked_at_while_checks_are_off_but_shapes_are():
    with unchecked():
        require_finite("Q", torch.tensor(math.nan))
        require_positive("lam", torch.tensor(-1.0))
        require_labels(torch.tensor([7.0]))
        require_one_hot(torch.zeros(2, 2))
        require_symmetric(torch.tensor([[1.0, 9.0], [0.0, 1.0]]))
        inspect(lambda values: pytest.fail("looked at"), torch.zeros(1))
        with pytest.raises(ShapeError):
            require_gram(torch.zeros(2, 3))
    with pytest.raises(NotFiniteError):
        require_finite("Q", torch.tensor(math.nan))


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_inspecting_inside_vmap_sees_matrices_whichever_dimension_is_mapped(dim: int):
    seen: list[tuple[int, ...]] = []
    K = torch.eye(5).expand(3, 5, 5).movedim(0, dim)

    def looked_at(matrix: torch.Tensor) -> torch.Tensor:
        inspect(lambda S: seen.append(tuple(S.shape)), matrix)
        return matrix.sum()

    torch.vmap(looked_at, in_dims=dim)(K)
    assert seen == [(3, 5, 5)]
