"""The embedding for photographs: the published weights in our network, checked by what they were trained to see."""

from __future__ import annotations

import io
import os
import zipfile
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from handful.classifier import FewShotClassifier, embedder
from handful.classifier.embedder import named_embedder
from handful.embeddings import efficientnet
from handful.embeddings.runtime import RuntimeNetwork, has_runtime
from handful.errors import DataError
from handful.meta.features import folded
from tests.classifier.drawings import photograph

REAL = os.environ.get("HANDFUL_TEST_DATA")
LITE0_DIGEST = "9f0d2ba84ea51a65ca5da3e8f2e19bd6bf683537f71732156687a50613c57d23"
"""What files that name the photo embedding hold since handful 0.1."""

pytest.importorskip(efficientnet.LITE0.package, reason="needs the extra handful[images]")
needs_lite2 = pytest.mark.skipif(
    find_spec(efficientnet.LITE2.package) is None, reason="needs the extra handful[images]"
)


def test_folding_the_batch_norms_changes_no_feature() -> None:
    network = efficientnet.published_efficientnet()
    images = torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        features = network(images)
        # float32, fifty layers deep
        torch.testing.assert_close(folded(network)(images), features, rtol=1e-3, atol=1e-4)
    assert features.shape == (2, 1280)
    assert float(features.min()) >= 0


def test_photographs_are_recognised_by_default(tmp_path: Path) -> None:
    red = [photograph(seed, (200, 90, 60)) for seed in range(4)]
    blue = [photograph(seed, (60, 90, 200)) for seed in range(4)]
    clf = FewShotClassifier(cache=tmp_path).fit(red[:3] + blue[:3], ["red"] * 3 + ["blue"] * 3)
    assert list(clf.predict([red[3], blue[3]])) == ["red", "blue"]
    both = find_spec(efficientnet.LITE2.package) is not None
    assert clf.embedding_.startswith("photographs-large" if both else "photographs (")


def test_a_file_of_weights_that_was_changed_is_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "changed"
    (package / "models").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / efficientnet.LITE0.weights).write_bytes(b"malicious")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(DataError, match="SHA-256"):
        efficientnet.published_efficientnet.__wrapped__(replace(efficientnet.LITE0, package="changed"))


def test_an_embedding_that_is_not_installed_says_what_to_install() -> None:
    with pytest.raises(DataError, match=r"pip install no_such_package"):
        efficientnet.published_efficientnet.__wrapped__(replace(efficientnet.LITE2, package="no_such_package"))


@pytest.mark.skipif(not has_runtime(), reason="needs onnxruntime")
def test_photographs_run_in_onnx_runtime_and_share_the_digest_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    fast = named_embedder("photographs")
    assert isinstance(fast.network, RuntimeNetwork)
    monkeypatch.setattr(embedder, "has_runtime", lambda: False)
    slow = embedder._photo_embedder.__wrapped__("photographs", "cpu", 1)
    assert isinstance(slow.network, torch.nn.Module)
    assert slow.digest == fast.digest == LITE0_DIGEST


@needs_lite2
def test_the_large_embedding_joins_two_and_travels_by_name(tmp_path: Path) -> None:
    red = [photograph(seed, (200, 90, 60)) for seed in range(3)]
    blue = [photograph(seed, (60, 90, 200)) for seed in range(3)]
    clf = FewShotClassifier("photographs-large", cache=tmp_path).fit(red + blue, ["red"] * 3 + ["blue"] * 3)
    assert clf.transform(red).shape == (3, 2560)
    np.testing.assert_allclose(np.linalg.norm(clf.transform(red), axis=1), 1)
    clf.save(tmp_path / "a.handful")
    again = FewShotClassifier.load(tmp_path / "a.handful", cache=tmp_path)
    assert again.embedding_ == "photographs-large"
    np.testing.assert_array_equal(again.predict_proba(red), clf.predict_proba(red))


@pytest.mark.data
@pytest.mark.slow
@pytest.mark.skipif(not REAL, reason="HANDFUL_TEST_DATA is not set")
def test_the_network_sees_what_imagenet_taught_it() -> None:
    archive = zipfile.ZipFile(Path(str(REAL)) / "cifar-fs" / "cifar-fs.zip")
    photographs, network = named_embedder("photographs"), efficientnet.published_efficientnet()
    # ImageNet's numbers of what CIFAR calls by these names; CIFAR's images are 32 pixels wide, so not all are seen
    wanted = {
        "chimpanzee": {365, 366, 367, 369},
        "sweet_pepper": {945},
        "whale": {147, 148, 149, 150},
        "bed": {564, 831},
    }
    for name, numbers in wanted.items():
        members = sorted(n for n in archive.namelist() if n.startswith(f"cifar100/data/{name}/"))[:12]
        pixels = [np.asarray(Image.open(io.BytesIO(archive.read(n))).resize((224, 224))) for n in members]
        with torch.no_grad():
            guesses = network.classify(network(photographs.preprocessing.tensor(np.stack(pixels)))).argmax(1)
        assert np.isin(guesses.numpy(), list(numbers)).mean() > 0.25, name
