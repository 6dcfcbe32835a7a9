"""The embedding for photographs: the published weights in our network, checked by what they were trained to see."""

from __future__ import annotations

import io
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from handful.classifier import FewShotClassifier
from handful.classifier.embedder import named_embedder
from handful.embeddings import efficientnet
from handful.errors import DataError
from handful.meta.features import folded
from tests.classifier.drawings import photograph

REAL = os.environ.get("HANDFUL_TEST_DATA")

pytest.importorskip(efficientnet.PACKAGE, reason="needs the extra handful[images]")


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


def test_a_file_of_weights_that_was_changed_is_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "changed"
    (package / "models").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / efficientnet.WEIGHTS).write_bytes(b"malicious")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(efficientnet, "PACKAGE", "changed")
    with pytest.raises(DataError, match="not opened"):
        efficientnet.published_efficientnet.__wrapped__()


@pytest.mark.data
@pytest.mark.slow
@pytest.mark.skipif(not REAL, reason="HANDFUL_TEST_DATA is not set")
def test_the_network_sees_what_imagenet_taught_it() -> None:
    archive = zipfile.ZipFile(Path(str(REAL)) / "cifar-fs" / "cifar-fs.zip")
    embedder, network = named_embedder("photographs"), efficientnet.published_efficientnet()
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
            guesses = network.classify(network(embedder.preprocessing.tensor(np.stack(pixels)))).argmax(1)
        assert np.isin(guesses.numpy(), list(numbers)).mean() > 0.25, name
