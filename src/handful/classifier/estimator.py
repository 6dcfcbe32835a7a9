"""What scikit-learn expects of a classifier, without importing scikit-learn until it is needed."""

from __future__ import annotations

import inspect
from functools import cache
from typing import Any

from handful.classifier.inputs import Matrix


class Estimator:
    """A classifier and transformer that scikit-learn accepts in place of a subclass of its `BaseEstimator`.

    Inheriting would import scikit-learn and scipy.stats for every `handful predict`, which takes half as long as
    importing PyTorch. So scikit-learn's methods are borrowed on first use.
    """

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The arguments of the constructor, by name."""
        params: dict[str, Any] = _full(self).get_params(self, deep)
        return params

    def set_params(self, **params: Any) -> Any:
        """Change arguments of the constructor; they take effect with the next fit."""
        return _full(self).set_params(self, **params)

    def fit_transform(self, X: Any, y: Any = None) -> Matrix:
        """Fit, and return the features of the examples."""
        features: Matrix = _full(self).fit_transform(self, X, y)
        return features

    def __repr__(self) -> str:
        arguments = inspect.signature(type(self)).parameters.values()
        given = [(each.name, getattr(self, each.name), each.default) for each in arguments]
        changed = ", ".join(f"{name}={value!r}" for name, value, default in given if repr(value) != repr(default))
        return f"{type(self).__name__}({changed})"

    def __sklearn_tags__(self) -> Any:
        full = _full(self)
        return full.__sklearn_tags__(full.__new__(full))

    def __getattr__(self, name: str) -> Any:
        """Everything else that scikit-learn's estimators have, such as metadata requests and notebook display."""
        if not name.startswith("__"):
            found = inspect.getattr_static(_full(self), name, None)
            if found is not None:
                return found.__get__(self, type(self)) if hasattr(found, "__get__") else found
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")


def _full(estimator: Any) -> Any:
    """A subclass of scikit-learn's classes too, whose methods work for any object with the same attributes."""
    return _subclass(estimator.__class__)


@cache
def _subclass(cls: Any) -> Any:
    from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin

    bases = (ClassifierMixin, TransformerMixin, BaseEstimator, cls)
    return type(cls.__name__, bases, {"__module__": cls.__module__})


def require_fitted(estimator: Any) -> None:
    """Raise scikit-learn's error for an estimator that has not been fitted."""
    if not estimator.__sklearn_is_fitted__():
        from sklearn.utils.validation import check_is_fitted

        check_is_fitted(estimator)
