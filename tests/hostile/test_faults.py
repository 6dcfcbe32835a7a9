"""Every write, flush and rename fails once and is killed once: old or new is there, whole, and nothing else."""

from __future__ import annotations

import errno
import os
import random
import re
import resource
import shutil
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from handful import FewShotClassifier
from handful._io import write_tensors
from handful.classifier.cache import Store
from handful.cli.main import main
from handful.data.add import add
from handful.data.sources.folder import FolderOptions
from handful.data.store import check_store
from handful.errors import HandfulError
from handful.meta.lock import LOCK
from handful.meta.manifest import MANIFEST
from handful.meta.run import LAST, LOG, RECIPE
from tests.hostile.faults import Faults, survives
from tests.hostile.runs import tiny_benchmark, tiny_command

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="kills copies of this process")
MANY = "HANDFUL_FUZZ" in os.environ
"""Set by `make fuzz`: all causes at every event of a training, and 200 kills of each kind."""


@dataclass(frozen=True)
class Operation:
    """Something that changes files: how to prepare a folder for it, what it does, and what one can see of it."""

    prepare: Callable[[Path], None]
    act: Callable[[Path], object]
    seen: Callable[[Path], object]
    """The state of the folder for a reader; raises if a file is not whole."""


def _save_old(folder: Path) -> None:
    _classifier(0).save(folder / "a.handful")


def _classifier(seed: int) -> FewShotClassifier:
    features = np.random.default_rng(seed).normal(size=(8, 3))
    return FewShotClassifier(embedding=None).fit(features, np.array(["x", "y"] * 4))


def _labels(folder: Path) -> object:
    clf = FewShotClassifier.load(folder / "a.handful")
    return [str(each) for each in clf.labels_], clf.predict_proba(np.zeros((1, 3))).round(6).tolist()


def _photos(folder: Path) -> None:
    for name in "abcde":
        for number in range(2):
            path = folder / "photos" / name / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("L", (8, 8), 20 * number + ord(name)).save(path)


def _pack(folder: Path) -> object:
    return add("own", folder / "data", [folder / "photos"], FolderOptions(size=8, grey=True))


def _packed(folder: Path) -> object:
    path = folder / "data" / "own.pack"
    return check_store(path).content if path.exists() else None


OPERATIONS = {
    "tensors": Operation(
        lambda folder: write_tensors(folder / "a", {}, {"version": 1}),
        lambda folder: write_tensors(folder / "a", {}, {"version": 2}),
        lambda folder: (folder / "a").read_bytes(),
    ),
    "save": Operation(_save_old, lambda folder: _classifier(1).save(folder / "a.handful"), _labels),
    "forget": Operation(
        lambda folder: (
            FewShotClassifier(embedding=None)
            .fit(np.random.default_rng(0).normal(size=(9, 3)), np.array(["x", "y", "z"] * 3))
            .save(folder / "a.handful")
        ),
        lambda folder: main(["forget", str(folder / "a.handful"), "--label", "z"]),
        _labels,
    ),
    "pack": Operation(_photos, _pack, _packed),
}
"""`handful add` writes as `forget` does: by one save under the same lock."""


def _litter(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*.tmp"))


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_disk_that_fails_leaves_the_old_file_or_the_new_one_and_nothing_else(name: str, tmp_path: Path) -> None:
    operation = OPERATIONS[name]
    good = tmp_path / "good"
    good.mkdir()
    operation.prepare(good)
    old = operation.seen(good)
    with Faults() as counted:
        operation.act(good)
    new = operation.seen(good)
    assert old != new
    assert {"write", "fsync", "replace"} <= set(counted.events)
    for number in range(len(counted.events)):
        for error in (errno.ENOSPC, errno.EIO):
            folder = tmp_path / f"{number}-{error}"
            folder.mkdir()
            operation.prepare(folder)
            with Faults(number, error), suppress(HandfulError, OSError):
                operation.act(folder)
            assert operation.seen(folder) in (old, new), counted.events[: number + 1]
            assert _litter(folder) == []
            shutil.rmtree(folder)


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_kill_leaves_the_old_file_or_the_new_one_and_the_next_attempt_cleans_up(name: str, tmp_path: Path) -> None:
    operation = OPERATIONS[name]
    for number in range(100):
        folder = tmp_path / str(number)
        folder.mkdir()
        operation.prepare(folder)
        old = operation.seen(folder)
        finished = survives(lambda folder=folder: operation.act(folder), number)
        after = operation.seen(folder)
        if name != "forget" or after == old:  # a class can be forgotten once
            operation.act(folder)
        assert after in (old, operation.seen(folder))
        assert _litter(folder) == []
        if finished:
            return
    raise AssertionError("100 events, and no end")


def test_what_a_killed_save_left_is_gone_after_forgetting(tmp_path: Path) -> None:
    """The copy that a killed command leaves holds what is to be forgotten."""
    OPERATIONS["forget"].prepare(tmp_path)
    (tmp_path / ".a.handful.1-dead.tmp").write_bytes(b"z" * 100)
    assert main(["forget", str(tmp_path / "a.handful"), "--label", "z"]) == 0
    assert _litter(tmp_path) == []


# ------------------------------------------------------------------------------------------------------------- training


@dataclass(frozen=True)
class Undisturbed:
    """A training that nothing disturbs: what its folder holds at the end, all versions of its checkpoints, its time."""

    names: list[str]
    log: bytes
    checkpoints: dict[str, bytes]
    versions: set[bytes]
    events: int
    seconds: float

    def agrees(self, folder: Path) -> bool:
        """Whether the folder of a finished training holds the same files, the same log and the same checkpoints."""
        same = _checkpoints(folder) == self.checkpoints and (folder / LOG).read_bytes() == self.log
        return same and _names(folder) == self.names


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def _checkpoints(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("*.safetensors")}


@pytest.fixture
def small_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("handful.meta.run.benchmark_of", lambda *_, **__: tiny_benchmark())


def _undisturbed(folder: Path, episodes: int) -> Undisturbed:
    assert tiny_command(folder / "first", episodes) == 0  # imports what it needs, which takes a while
    versions: set[bytes] = set()
    replace = Path.replace

    def noting(path: Path, target: Path) -> Path:
        versions.add(path.read_bytes())
        return replace(path, target)

    with pytest.MonkeyPatch.context() as patch, Faults() as counted:
        patch.setattr(Path, "replace", noting)
        clock = time.perf_counter()
        assert tiny_command(folder / "whole", episodes) == 0
        seconds = time.perf_counter() - clock
    whole = folder / "whole"
    kept = {"best-1-shot.safetensors", "best-mean.safetensors", LAST, LOG, MANIFEST, RECIPE, LOCK}
    assert set(_names(whole)) == kept  # and nothing that is needed only while it trains
    log, checkpoints = (whole / LOG).read_bytes(), _checkpoints(whole)
    return Undisturbed(_names(whole), log, checkpoints, versions, len(counted.events), seconds)


@pytest.mark.slow
@pytest.mark.usefixtures("small_data")
@pytest.mark.parametrize("moment", ["at a write", "at any time"])
def test_a_training_that_is_killed_again_and_again_ends_with_the_same_bits(moment: str, tmp_path: Path) -> None:
    undisturbed, draw, kills = _undisturbed(tmp_path, episodes=4), random.Random(0), 0

    def survived(folder: Path) -> bool:
        if moment == "at a write":
            return survives(lambda: tiny_command(folder, 4), draw.randrange(undisturbed.events))
        return survives(lambda: tiny_command(folder, 4), seconds=draw.uniform(0, undisturbed.seconds))

    while kills < (200 if MANY else 2):
        folder = tmp_path / str(kills)
        folder.mkdir(exist_ok=True)
        while not survived(folder):
            kills += 1
            assert set(_checkpoints(folder).values()) <= undisturbed.versions
        assert undisturbed.agrees(folder)
        shutil.rmtree(folder)


@pytest.mark.slow
@pytest.mark.usefixtures("small_data")
def test_a_training_that_fails_or_is_killed_at_any_event_resumes_to_the_same_bits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every event once, by a full disk, a failing one and a kill in turn; in the long setting by each of them."""
    undisturbed, causes = _undisturbed(tmp_path, episodes=2), (errno.ENOSPC, errno.EIO, None)
    for number in range(undisturbed.events):
        for cause in causes if MANY else (causes[number % 3],):
            folder = tmp_path / f"{number}-{cause}"
            if cause is None:
                assert not survives(lambda folder=folder: tiny_command(folder, 2), number)
            else:
                with Faults(number, cause):
                    code = tiny_command(folder, 2)
                complaint = capsys.readouterr().err
                assert code == 0 or (code == 2 and re.fullmatch("handful: [^\n]+\n", complaint)), complaint
                assert set(_names(folder)) <= set(undisturbed.names)
            assert set(_checkpoints(folder).values()) <= undisturbed.versions
            assert tiny_command(folder, 2) == 0
            assert undisturbed.agrees(folder)
            shutil.rmtree(folder)


# ---------------------------------------------------------------------------------------------------------------- cache


def test_a_full_disk_costs_the_cache_its_memory_and_nothing_else(tmp_path: Path) -> None:
    """SQLite writes by itself, so a limit on the size of files stands for the full disk."""
    embedding, rows = "e" * 64, {f"{i:064x}": np.arange(50.0) for i in range(200)}
    kept = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    for limit in (0, 100, 4096, 8192, 20_000, 60_000):
        folder = tmp_path / str(limit)
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
            with Store(folder) as cache:
                cache.add_features(embedding, rows)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        with Store(folder) as cache:
            found = [cache.features(embedding, name) for name in rows]
        assert all(row is None or np.array_equal(row, np.arange(50.0)) for row in found)
    signal.signal(signal.SIGXFSZ, kept)
