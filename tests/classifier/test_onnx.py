"""The exported graph against PyTorch: the same probabilities, or no file."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from torch import Tensor, nn

from handful.classifier import FewShotClassifier, ImageEmbedding, onnx
from handful.classifier.inputs import pictures, pixels_of
from handful.errors import DataError, InvalidOptionError
from tests.classifier.drawings import SHAPES, drawing, write_folder
from tests.classifier.test_classifier import task

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("learner", ["ridge", "prototypes", "logistic", "softmax"])
def test_a_folded_head_gives_the_same_probabilities(learner: str) -> None:
    X, y, queries, _ = task([3, 6, 4])
    state = FewShotClassifier(learner=learner).fit(X, y)._state
    scores, linear = state.scores(queries), state.head.linear()(queries - state.origin)
    shared = scores - linear
    # float64: they differ by one number a query
    np.testing.assert_allclose(shared, shared[:, :1].repeat(3, 1), atol=1e-10)


@pytest.mark.skipif(any(find_spec(name) is None for name in onnx.NEEDED), reason="needs the extra handful[onnx]")
class TestWithRuntime:
    """What needs the extra."""

    def probabilities(self, path: Path, inputs: np.ndarray) -> tuple[np.ndarray, dict[str, str]]:
        import onnxruntime

        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        (found,) = session.run(None, {session.get_inputs()[0].name: inputs.astype(np.float32)})
        return found, session.get_modelmeta().custom_metadata_map

    def test_a_classifier_of_features(self, tmp_path: Path) -> None:
        X, y, queries, _ = task([3, 6, 4])
        clf = FewShotClassifier().fit(X, y)
        clf.export_onnx(tmp_path / "a.onnx")
        found, facts = self.probabilities(tmp_path / "a.onnx", queries)
        # float32 in the graph
        np.testing.assert_allclose(found, clf.predict_proba(queries), atol=1e-4)
        assert json.loads(facts["classes"]) == ["auk", "bee", "cat"]

    def test_joined_embeddings_take_the_images_once_for_each(self, tmp_path: Path) -> None:
        import onnxruntime

        folder = write_folder(tmp_path / "shapes", dict.fromkeys(SHAPES, 3))
        clf = FewShotClassifier("characters+characters", cache=False).fit(folder)
        clf.export_onnx(tmp_path / "a.onnx")
        session = onnxruntime.InferenceSession(str(tmp_path / "a.onnx"), providers=["CPUExecutionProvider"])
        queries = pictures([drawing(shape, 21) for shape in SHAPES])
        assert clf.embedder_ is not None
        wanted = clf.embedder_.parts[0].preprocessing
        pixels = np.stack([wanted.oriented(pixels_of(each, each.read(), wanted.decoding)) for each in queries])
        images = (pixels.transpose(0, 3, 1, 2) / 255).astype(np.float32)
        (found,) = session.run(None, {"images0": images, "images1": images})
        # float32 in the graph
        np.testing.assert_allclose(found, clf.predict_proba(queries), atol=1e-4)

    def test_a_classifier_of_drawings_takes_pixels_of_either_polarity(self, tmp_path: Path) -> None:
        clf = FewShotClassifier(cache=False).fit(write_folder(tmp_path / "shapes", dict.fromkeys(SHAPES, 3)))
        clf.export_onnx(tmp_path / "a.onnx")
        queries = [drawing(shape, 21) for shape in SHAPES]
        assert clf._embedder is not None
        decoding = clf._embedder.preprocessing.decoding
        pixels = np.stack([pixels_of(each, each.read(), decoding) for each in pictures(queries)])
        images = pixels.transpose(0, 3, 1, 2) / 255
        for inputs in (images, 1 - images):
            found, facts = self.probabilities(tmp_path / "a.onnx", inputs)
            np.testing.assert_allclose(found, clf.predict_proba(queries), atol=1e-4)
        assert json.loads(facts["preprocessing"])["height"] == 28
        assert sorted(path.name for path in tmp_path.iterdir()) == ["a.onnx", "shapes"]

    def test_tokens_of_a_transformer_are_averaged(self, tmp_path: Path) -> None:
        class Tokens(nn.Module):
            def forward(self, images: Tensor) -> Tensor:
                return images.flatten(2).transpose(1, 2).unflatten(1, (16, -1)).flatten(2)  # (n, 16 tokens, e)

        folder = write_folder(tmp_path / "shapes", dict.fromkeys(SHAPES, 3))
        clf = FewShotClassifier(ImageEmbedding(Tokens(), size=16), cache=False).fit(folder)
        clf.export_onnx(tmp_path / "a.onnx")
        assert clf.embedder_ is not None
        decoding = clf.embedder_.parts[0].preprocessing.decoding
        queries = [drawing(shape, 21) for shape in SHAPES]
        pixels = np.stack([pixels_of(each, each.read(), decoding) for each in pictures(queries)])
        found, _ = self.probabilities(tmp_path / "a.onnx", pixels.transpose(0, 3, 1, 2) / 255)
        np.testing.assert_allclose(found, clf.predict_proba(queries), atol=1e-4)

    def test_a_graph_that_disagrees_is_not_kept(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        X, y, _, _ = task([3, 6, 4])
        clf = FewShotClassifier().fit(X, y)
        monkeypatch.setattr(onnx, "_difference", lambda graph, path, sample: 0.1)
        with pytest.raises(DataError, match=r"differs from PyTorch by 0\.1"):
            clf.export_onnx(tmp_path / "a.onnx")
        assert not list(tmp_path.iterdir())

    def test_embeddings_that_cannot_be_exported_are_refused(self, tmp_path: Path) -> None:
        folder = write_folder(tmp_path / "shapes", dict.fromkeys(SHAPES, 2))
        function = FewShotClassifier(ImageEmbedding(lambda images: images.mean((-2, -1)), size=16), cache=False)
        with pytest.raises(InvalidOptionError, match="is a function"):
            function.fit(folder).export_onnx(tmp_path / "a.onnx")

        class Branching(nn.Module):
            def forward(self, images: Tensor) -> Tensor:
                return images.mean((-2, -1)) * (2 if float(images.sum()) > 0 else 3)

        branching = FewShotClassifier(ImageEmbedding(Branching(), size=16), cache=False).fit(folder)
        with pytest.raises(DataError, match="cannot be exported"):
            branching.export_onnx(tmp_path / "a.onnx")
        assert sorted(path.name for path in tmp_path.iterdir()) == ["shapes"]


def test_without_the_extra_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    X, y, _, _ = task([3, 6, 4])
    monkeypatch.setattr(onnx, "find_spec", lambda name: None)
    with pytest.raises(DataError, match=r"pip install 'handful\[onnx\]'"):
        FewShotClassifier().fit(X, y).export_onnx(tmp_path / "a.onnx")
