from __future__ import annotations

import io
import os
import pickle
import struct
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from handful.data.archives import open_tree
from handful.data.sources import cifar_fs
from handful.data.sources.cifar_fs import unpickle
from handful.data.sources.source import Contents
from handful.errors import DataError
from tests.data.pictures import encoded, write_files, write_zip

PER_CLASS = 6
NAMES = sorted(cifar_fs.class_names())
LABELS = np.arange(100 * PER_CLASS) * 7 % 100
IMAGES = np.random.default_rng(0).integers(0, 256, (len(LABELS), 32, 32, 3), dtype=np.uint8)
PLANES = IMAGES.transpose(0, 3, 1, 2).reshape(-1, 3072)
TRAIN = 5 * 100


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cifar_fs, "PER_CLASS", PER_CLASS)


def python_2(value: object) -> bytes:
    """Opcodes of the second protocol as Python 2 and its numpy wrote them: strings of bytes, names of old modules."""
    if isinstance(value, bytes):
        return b"T" + struct.pack("<I", len(value)) + value
    if isinstance(value, int):
        return b"J" + struct.pack("<i", value)
    if isinstance(value, list):
        return b"](" + b"".join(map(python_2, value)) + b"e"
    if isinstance(value, dict):
        return b"}(" + b"".join(python_2(part) for pair in value.items() for part in pair) + b"u"
    assert isinstance(value, np.ndarray)
    new = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + python_2(b"b") + b"\x87R"
    dtype = b"cnumpy\ndtype\n" + python_2(b"u1") + b"K\x00K\x01\x87R(K\x03" + python_2(b"|") + b"NNNJ\xff\xff\xff\xff"
    dtype += b"J\xff\xff\xff\xffK\x00tb"
    shape = python_2(value.shape[0]) + python_2(value.shape[1]) + b"\x86"
    return new + b"(K\x01" + shape + dtype + b"\x89" + python_2(value.tobytes()) + b"tb"


def dumped(value: object) -> bytes:
    return b"\x80\x02" + python_2(value) + b"."


def pickles() -> dict[str, bytes]:
    def batch(rows: slice) -> dict[bytes, object]:
        labels = LABELS[rows].tolist()
        return {b"data": PLANES[rows], b"fine_labels": labels, b"coarse_labels": labels, b"batch_label": b"a batch"}

    meta = {b"fine_label_names": [name.encode() for name in NAMES], b"coarse_label_names": [b"fish"]}
    return {
        "cifar-100-python/meta": dumped(meta),
        "cifar-100-python/train": dumped(batch(slice(TRAIN))),
        "cifar-100-python/test": dumped(batch(slice(TRAIN, None))),
        "cifar-100-python/file.txt~": b"",
    }


def records() -> dict[str, bytes]:
    rows = np.concatenate([LABELS[:, None] // 5, LABELS[:, None], PLANES], axis=1).astype(np.uint8)
    return {
        "cifar-100-binary/train.bin": rows[:TRAIN].tobytes(),
        "cifar-100-binary/test.bin": rows[TRAIN:].tobytes(),
        "cifar-100-binary/fine_label_names.txt": "\n".join(NAMES).encode() + b"\n",
        "cifar-100-binary/coarse_label_names.txt": b"fish\n",
    }


def pngs() -> dict[str, bytes]:
    files = {f"cifar100/data/{NAMES[c]}/{i:03d}.png": encoded(IMAGES[i]) for i, c in enumerate(LABELS)}
    return {**files, "cifar100/splits/bertinetto/train.txt": b"apple\n"}


def write_tar_gz(path: Path, files: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz", compresslevel=1) as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


def read(path: Path) -> Contents:
    return cifar_fs.read([open_tree(path, path.parent)])


def pixels(found: Contents) -> np.ndarray:
    return np.concatenate(list(found.pixels()))


@pytest.mark.parametrize(
    "layout", ["zip", "folder", "python archive", "python folder", "binary archive", "binary folder"]
)
def test_every_layout_gives_the_same_images(layout: str, tmp_path: Path) -> None:
    kind, _, form = layout.partition(" ")
    files = {"python": pickles, "binary": records}.get(kind, pngs)()
    if layout == "zip":
        found = read(write_zip(tmp_path / "x.zip", files))
    elif form == "archive":
        found = read(write_tar_gz(tmp_path / "x.tar.gz", files))
    else:
        found = read(write_files(tmp_path / "x", files))
    assert found.splits["bertinetto"] == {"train": ((0, 64),), "val": ((64, 16),), "test": ((80, 20),)}
    assert found.counts == (PER_CLASS,) * 100
    got = pixels(found)
    for number, name in enumerate(found.classes):
        ours = got[PER_CLASS * number : PER_CLASS * (number + 1)]
        theirs = IMAGES[NAMES.index(name) == LABELS]
        assert sorted(image.tobytes() for image in ours) == sorted(image.tobytes() for image in theirs)
    if layout != "zip":
        assert np.array_equal(got, pixels(read(write_zip(tmp_path / "reference.zip", pngs()))))


def test_missing_classes_and_images_are_named(tmp_path: Path) -> None:
    files = pngs()
    fewer = {name: data for name, data in files.items() if "/apple/" not in name and "/bee/" not in name}
    with pytest.raises(DataError, match=r"2 of its 100 .*apple, bee"):
        read(write_files(tmp_path / "fewer", fewer))
    one_less = {name: data for name, data in files.items() if not name.endswith("apple/000.png")}
    with pytest.raises(DataError, match=r"apple .*6 images.* 5\b"):
        read(write_files(tmp_path / "less", one_less))


class Attack:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[object, ...]:
        return os.system, (f"touch {self.marker}",)


def test_no_pickle_is_ever_executed(tmp_path: Path) -> None:
    marker = tmp_path / "owned"
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        data = pickle.dumps({"fine_label_names": Attack(marker)}, protocol)
        with pytest.raises(DataError, match=r"meta .*(posix|nt)\.system"):
            unpickle(data, "meta")
    assert not marker.exists()
    pickle.loads(pickle.dumps(Attack(marker)))  # noqa: S301 (to show that the attack works elsewhere)
    assert marker.exists()


@pytest.mark.parametrize(
    "name",
    [
        "builtins.eval",
        "builtins.getattr",
        "os.system",
        "numpy.load",
        "numpy.core.numeric.zeros",
        "_codecs.encode",
        "copyreg._reconstructor",
    ],
)
def test_no_other_name_is_looked_up(name: str) -> None:
    module, _, attribute = name.rpartition(".")
    with pytest.raises(DataError, match="which CIFAR-100 does not need"):
        unpickle(f"c{module}\n{attribute}\n.".encode(), "meta")
    stacked = (
        b"\x80\x04\x8c"
        + bytes([len(module)])
        + module.encode()
        + b"\x8c"
        + bytes([len(attribute)])
        + attribute.encode()
    )
    with pytest.raises(DataError, match="which CIFAR-100 does not need"):
        unpickle(stacked + b"\x93.", "meta")


def test_arrays_of_objects_persistent_ids_and_rubbish_are_refused() -> None:
    objects = dumped({b"data": PLANES[:2]}).replace(b"u1", b"O8")
    for data in (objects, b"\x80\x02Pid\n.", b"", b"\x80\x02]", b"rubbish", b"\x80\x02]."):
        with pytest.raises(DataError, match=r"refused|no dictionary"):
            unpickle(data, "train")


@pytest.mark.parametrize("part", ["train", "test", "meta"])
def test_a_damaged_python_archive_is_refused(part: str, tmp_path: Path) -> None:
    files = pickles()
    files[f"cifar-100-python/{part}"] = files[f"cifar-100-python/{part}"][:-300]
    with pytest.raises(DataError):
        read(write_files(tmp_path / "x", files))


def test_labels_out_of_range_are_refused(tmp_path: Path) -> None:
    files = pickles()
    files["cifar-100-python/meta"] = dumped({b"fine_label_names": [b"apple"]})
    with pytest.raises(DataError, match=r"0\.\.99 .*1 class"):
        read(write_files(tmp_path / "x", files))


def test_a_damaged_binary_archive_is_refused(tmp_path: Path) -> None:
    files = records()
    files["cifar-100-binary/test.bin"] = files["cifar-100-binary/test.bin"][:-1]
    with pytest.raises(DataError, match="3074 bytes"):
        read(write_files(tmp_path / "x", files))


def test_a_label_that_no_integer_holds_is_refused(tmp_path: Path) -> None:
    huge = b"\x8a\x09" + (1 << 70).to_bytes(9, "little")
    train = b"\x80\x02}(" + python_2(b"data") + python_2(PLANES[:1]) + python_2(b"fine_labels") + b"](" + huge + b"eu."
    with pytest.raises(DataError, match=r"python archive.*OverflowError"):
        read(write_files(tmp_path / "x", {**pickles(), "cifar-100-python/train": train}))


@pytest.mark.parametrize(("layout", "name"), [(pickles, "meta"), (records, "fine_label_names.txt")])
def test_a_file_that_is_damaged_in_its_archive_is_named(
    layout: Callable[[], dict[str, bytes]], name: str, tmp_path: Path
) -> None:
    path = write_zip(tmp_path / "x.zip", layout())
    path.write_bytes(path.read_bytes().replace(b"aquarium_fish", b"aquarium-fish"))
    with pytest.raises(DataError, match=rf"x\.zip: {name} cannot be read: Bad CRC"):
        read(path)


def test_what_macos_adds_to_a_zip_is_no_image(tmp_path: Path) -> None:
    files = pngs()
    copies = {f"__MACOSX/{Path(name).parent}/._{Path(name).name}": b"metadata" for name in files}
    found = read(write_zip(tmp_path / "x.zip", {**files, **copies}))
    assert np.array_equal(pixels(found), pixels(read(write_zip(tmp_path / "reference.zip", files))))
