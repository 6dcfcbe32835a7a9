"""What follows from inner products: each against the features that it stands for."""

import torch

from handful.solvers import cross_gram, diagonal_prior, dual_weights, gram

from .problems import leaves, make


def test_gram_is_the_product_of_features_with_themselves():
    X = make((5, 9), 0).X
    torch.testing.assert_close(gram(X), X @ X.mT)
    torch.testing.assert_close(cross_gram(make((3, 9), 1).X, X), make((3, 9), 1).X @ X.mT)


def test_gram_gradients_agree_with_finite_differences():
    (X,) = leaves(make((3, 4), 0).X.repeat(2, 1, 1))
    assert torch.autograd.gradcheck(gram, (X,))
    assert torch.autograd.gradgradcheck(gram, (X,))


def test_cross_gram_gradients_agree_with_finite_differences():
    Q, X = leaves(make((2, 4), 1).X, make((3, 4), 0).X.repeat(2, 1, 1))
    assert torch.autograd.gradcheck(cross_gram, (Q, X))
    assert torch.autograd.gradgradcheck(cross_gram, (Q, X))


def test_dual_weights_are_features_times_coefficients():
    X, A = make((5, 9), 0).X, make((5, 2), 1).X
    torch.testing.assert_close(dual_weights(X, A), X.mT @ A)
    torch.testing.assert_close(cross_gram(X, dual_weights(X, A).mT), X @ X.mT @ A)


def test_cross_gram_works_under_vmap():
    Q, X = make((2, 4), 1).X, make((6, 4), 0).X.reshape(2, 3, 4)
    torch.testing.assert_close(torch.func.vmap(cross_gram, in_dims=(None, 0))(Q, X), Q @ X.mT)


def test_gram_works_under_vmap():
    X = make((6, 4), 0).X.reshape(2, 3, 4)
    torch.testing.assert_close(torch.func.vmap(gram, in_dims=1)(X.transpose(0, 1)), gram(X))


def test_gram_keeps_its_digits_under_autocast():
    X = make((5, 300), 0).X.float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        K, G = gram(X), cross_gram(X, X)
        assert (X @ X.mT).dtype == torch.bfloat16
    assert K.dtype == G.dtype == torch.float32
    torch.testing.assert_close(K, X @ X.mT)
    torch.testing.assert_close(G, X @ X.mT)


def test_diagonal_prior_is_a_kernel():
    X = make((5, 9), 0).X.repeat(2, 1, 1)
    lam = torch.linspace(0.1, 3, 18, dtype=torch.float64).reshape(2, 9)
    torch.testing.assert_close(gram(diagonal_prior(X, lam)), X @ torch.diag_embed(1 / lam) @ X.mT)
