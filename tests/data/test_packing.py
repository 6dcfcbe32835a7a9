from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from handful.data import _packing as packing
from handful.data._packing import Item, decode_all
from handful.data.archives import Blob, open_tree
from handful.data.decode import Decoding
from handful.errors import DataError
from tests.data.pictures import noise, png, write_files, write_zip

DECODING = Decoding(10, 10)


def items_of(path: Path) -> list[Item]:
    return [Item(blob, name) for name, blob in open_tree(path, path.parent).files.items()]


def everything(items: list[Item], jobs: int) -> np.ndarray:
    return np.concatenate(list(decode_all(items, DECODING, jobs)))


@pytest.fixture
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    monkeypatch.setattr(packing, "INLINE", 10)  # start workers even for a few images
    return {f"{i:03d}.png": png(i) for i in range(60)}


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2, 3])
def test_images_come_in_the_order_asked_for(jobs: int, photos: dict[str, bytes], tmp_path: Path) -> None:
    for path in (write_files(tmp_path / "folder", photos), write_zip(tmp_path / "x.zip", photos)):
        items = items_of(path)[::-1]
        expected = np.stack([noise(seed=i) for i in range(60)])[::-1]
        assert np.array_equal(everything(items, jobs), expected)


def test_chunks_are_bounded_whatever_the_number_of_images(photos: dict[str, bytes], tmp_path: Path) -> None:
    items = items_of(write_files(tmp_path / "folder", photos)) * 20
    sizes = [len(chunk) for chunk in decode_all(items, DECODING, jobs=2)]
    assert max(sizes) == 512
    assert sum(sizes) == 1200


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_broken_image_is_named(jobs: int, photos: dict[str, bytes], tmp_path: Path) -> None:
    photos["037.png"] = photos["037.png"][:-80]
    with pytest.raises(DataError, match=r"037\.png .*truncated"):
        everything(items_of(write_files(tmp_path / "folder", photos)), jobs)


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_zip_member_with_a_wrong_checksum_is_named(jobs: int, photos: dict[str, bytes], tmp_path: Path) -> None:
    path = write_zip(tmp_path / "x.zip", photos)
    items = items_of(path)
    data = bytearray(path.read_bytes())
    data[data.index(photos["037.png"]) + 100] ^= 255
    path.write_bytes(data)
    with pytest.raises(DataError, match=r"037\.png .*Bad CRC-32"):
        everything(items, jobs)


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_file_that_vanished_is_named(jobs: int, photos: dict[str, bytes], tmp_path: Path) -> None:
    items = items_of(write_files(tmp_path / "folder", photos))
    (tmp_path / "folder" / "012.png").unlink()
    with pytest.raises(DataError, match=r"012\.png .*No such file"):
        everything(items, jobs)


def test_a_worker_that_dies_is_an_error_not_a_hang(
    photos: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    items = items_of(write_files(tmp_path / "folder", photos))
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(DataError, match=r"worker.* 000\.png and 059\.png"):
        everything(items, 2)


@pytest.mark.slow
def test_no_worker_outlives_a_caller_who_stops_early(photos: dict[str, bytes], tmp_path: Path) -> None:
    items, before = items_of(write_files(tmp_path / "folder", photos)) * 50, children()
    chunks = decode_all(items, DECODING, jobs=2)
    next(chunks)
    started = children() - before  # other tests of this process may have left some
    chunks.close()  # type: ignore[attr-defined]
    assert len(started) == 2
    assert not children() & started


def children() -> set[str]:
    return {pid for task in Path("/proc/self/task").iterdir() for pid in (task / "children").read_text().split()}


@pytest.mark.slow
def test_a_script_without_a_main_guard_can_pack(tmp_path: Path) -> None:
    write_files(tmp_path / "photos", {f"kind{i % 10}/{i}.png": png(i) for i in range(40)})
    script = tmp_path / "script.py"
    script.write_text(
        "from handful.data import _packing, load\n"
        "_packing.INLINE = 0\n"
        f"print(len(load({str(tmp_path / 'photos')!r}, root={str(tmp_path / 'root')!r}, size=8).train))\n"
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False, timeout=120)
    assert (done.stdout, done.returncode) == ("6\n", 0), done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("first", ["", "."])
def test_modules_in_the_current_folder_never_run_in_workers(first: str, tmp_path: Path) -> None:
    """A notebook has the current folder on its search path, as '' or by name."""
    write_files(tmp_path / "photos", {f"kind{i % 10}/{i}.png": png(i) for i in range(40)})
    trap = "from pathlib import Path\nPath('sprung').touch()\n"
    here = write_files(tmp_path / "here", {f"{name}.py": trap.encode() for name in ("numpy", "PIL", "json", "handful")})
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\n"
        "from handful.data import _packing, load\n"
        "_packing.INLINE = 0\n"
        f"sys.path.insert(0, {first!r})\n"
        f"print(len(load({str(tmp_path / 'photos')!r}, root={str(tmp_path / 'root')!r}, size=8).train))\n"
    )
    command, paths = [sys.executable, str(script)], {"PYTHONPATH": str(Path(packing.__file__).parents[2])}
    done = subprocess.run(
        command, cwd=here, env=os.environ | paths, capture_output=True, text=True, check=False, timeout=120
    )
    assert (done.stdout, done.returncode) == ("6\n", 0), done.stderr
    assert not (here / "sprung").exists()


@pytest.mark.slow
def test_an_interrupt_ends_the_workers_too(tmp_path: Path) -> None:
    write_files(tmp_path / "photos", {f"{i:03d}.png": png(i) for i in range(60)})
    script = tmp_path / "script.py"
    script.write_text(
        "import time\n"
        "from pathlib import Path\n"
        "from handful.data._packing import Item, decode_all\n"
        "from handful.data.archives import open_tree\n"
        "from handful.data.decode import Decoding\n"
        f"tree = open_tree(Path({str(tmp_path / 'photos')!r}), Path())\n"
        "items = [Item(blob, name) for name, blob in tree.files.items()] * 200\n"
        "for chunk in decode_all(items, Decoding(64, 64), jobs=2):\n"
        "    print('packing', flush=True)\n"
        "    time.sleep(60)\n"
    )
    running = subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert running.stdout is not None
    assert running.stdout.readline() == "packing\n"
    os.killpg(running.pid, signal.SIGINT)
    _, told = running.communicate(timeout=60)
    assert "KeyboardInterrupt" in told
    with pytest.raises(ProcessLookupError):
        os.killpg(running.pid, 0)  # nobody of the session is left


@pytest.mark.slow
def test_packing_needs_little_memory_however_large_the_folder(tmp_path: Path) -> None:
    photos = write_files(tmp_path / "photos", {f"kind{i % 10}/{i}.png": png(i) for i in range(1100)})
    script = (
        "import re\n"
        "from pathlib import Path\n"
        "from handful.data.add import add\n"
        "from handful.data.sources.folder import FolderOptions\n"
        f"added = add('big', Path({str(tmp_path)!r}), [Path({str(photos)!r})], FolderOptions(size=384))\n"
        "peak = re.search(r'VmHWM:\\s+(\\d+) kB', Path('/proc/self/status').read_text())\n"
        "print(added.path.stat().st_size, 1024 * int(peak[1]))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=300)
    written, peak = map(int, done.stdout.split())
    assert written > 450e6
    assert peak < 150e6  # numpy and Pillow take about 60 MB, the chunks in flight and their copies about 40 MB


def test_a_blob_larger_than_any_image_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "huge.png"
    with path.open("wb") as file:
        file.truncate(1 << 30)  # sparse: takes no room
    with pytest.raises(DataError, match=r"larger than the \d+ MB"):
        Blob(str(path)).read()
