"""scikit-learn is borrowed, not inherited: what it expects is there, and it is imported only when it is needed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import sklearn
from PIL import Image
from sklearn.base import is_classifier
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import make_blobs
from sklearn.ensemble import VotingClassifier
from sklearn.exceptions import NotFittedError
from sklearn.feature_selection import SequentialFeatureSelector
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.utils import estimator_html_repr

from handful.classifier import FewShotClassifier

X, Y = make_blobs(60, n_features=5, centers=3, random_state=0)
PREDICT = """
import sys
from handful import FewShotClassifier
heavy = {"sklearn", "scipy.special", "scipy.optimize", "scipy.stats"}
imported = lambda: heavy & set(sys.modules)
assert not imported(), f"the import brings {imported()}"
clf = FewShotClassifier.load(sys.argv[1], cache=False)
print(clf.predict(sys.argv[2:])[0], clf.answer(sys.argv[2:])[0].label, clf)
assert not imported(), f"predicting brings {imported()}"
"""
FIT = """
import sys
from handful import FewShotClassifier
clf = FewShotClassifier(embedding="characters", cache=False).fit(sys.argv[1])
clf.estimate(), clf.save(sys.argv[2])
imported = [name for name in ("sklearn", "scipy.stats") if name in sys.modules]
assert not imported, f"fitting brings {imported}"
"""


def in_python(code: str, *arguments: Path) -> str:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_images_are_learnt_and_labelled_without_scikit_learn(tmp_path: Path) -> None:
    for label, shade in ("dark", 40), ("light", 200):
        (tmp_path / "images" / label).mkdir(parents=True)
        for number in range(3):
            pixels = np.full((28, 28), shade, np.uint8)
            pixels[number : number + 9, 5:20] = 255 - shade
            Image.fromarray(pixels).save(tmp_path / "images" / label / f"{number}.png")
    model = tmp_path / "shades.handful"
    in_python(FIT, tmp_path / "images", model)
    said = in_python(PREDICT, model, tmp_path / "images" / "dark" / "1.png")
    assert said.startswith("dark dark FewShotClassifier(embedding=")


def test_it_is_a_classifier_in_every_meta_estimator() -> None:
    clf = FewShotClassifier()
    assert is_classifier(clf)
    for whole in (
        CalibratedClassifierCV(clf, cv=3),
        VotingClassifier([("ours", clf), ("theirs", LogisticRegression())], voting="soft"),
        OneVsRestClassifier(clf),
        make_pipeline(SequentialFeatureSelector(clf, n_features_to_select=2, cv=2), clf),
        make_pipeline(clf, LogisticRegression()),  # it transforms too
    ):
        assert whole.fit(X, Y).score(X, Y) > 0.9


def test_metadata_is_routed_to_it() -> None:
    with sklearn.config_context(enable_metadata_routing=True):
        clf = FewShotClassifier().set_score_request(sample_weight=True)
        search = GridSearchCV(clf, {"lam": [0.1, 1.0]}, cv=3).fit(X, Y, sample_weight=np.ones(len(Y)))
        assert search.best_score_ > 0.9
        assert set(clf.get_metadata_routing().score.requests) == {"sample_weight"}


def test_it_shows_its_changed_arguments_as_text_and_in_notebooks() -> None:
    clf = FewShotClassifier(learner="logistic", tune_limit=9)
    assert repr(clf) == "FewShotClassifier(learner='logistic', tune_limit=9)"
    assert repr(make_pipeline(clf)) == f"Pipeline(steps=[('fewshotclassifier',\n                 {clf!r})])"
    for html in clf._repr_html_(), estimator_html_repr(make_pipeline(clf)):
        assert all(word in html for word in ("FewShotClassifier", "logistic"))


def test_arguments_are_read_and_set_by_name() -> None:
    clf = FewShotClassifier()
    assert clf.set_params(lam=2.0, balance=False) is clf
    assert clf.get_params() == FewShotClassifier(lam=2.0, balance=False).get_params()
    with pytest.raises(ValueError, match="lambda_"):
        clf.set_params(lambda_=1.0)


def test_an_attribute_that_nobody_has_is_an_attribute_error() -> None:
    clf = FewShotClassifier()
    with pytest.raises(AttributeError, match="'FewShotClassifier' object has no attribute 'nothing'"):
        _ = clf.nothing
    with pytest.raises(NotFittedError):
        clf.predict(X)
    assert not hasattr(clf, "set_output"), "features have no names, so there is no table to make of them"
