from __future__ import annotations

import hashlib
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from handful.data import load
from handful.data.add import add, remove
from handful.data.download import Remote
from handful.data.sources import SOURCES
from handful.data.sources.folder import FolderOptions, read_folder
from handful.data.sources.source import Source
from handful.data.store import check_store, store_path
from handful.errors import DataError, HandfulError, InvalidOptionError
from tests.data.pictures import class_folders, png, write_files, write_zip
from tests.data.web import Web


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    return write_files(tmp_path / "photos", class_folders())


def leftovers(root: Path) -> list[str]:
    """Everything below the folder but whole stores and locks."""
    names = [path.relative_to(root).as_posix() for path in root.rglob("*")] if root.exists() else []
    return [name for name in names if not name.endswith((".pack", ".lock"))]


def test_a_folder_and_its_zip_give_the_same_content(photos: Path, tmp_path: Path, root: Path) -> None:
    archive = write_zip(tmp_path / "photos.zip", class_folders())
    by_folder, by_zip = add("a", root, [photos]), add("b", root, [archive])
    assert by_folder.header.content == by_zip.header.content
    assert check_store(by_folder.path).n_images == 40
    assert leftovers(root) == []


def test_adding_again_changes_nothing(photos: Path, root: Path) -> None:
    first = add("a", root, [photos])
    time = first.path.stat().st_mtime_ns
    again = add("a", root, [photos])
    assert (first.is_new, again.is_new) == (True, False)
    assert first.path.stat().st_mtime_ns == time
    assert again.header == first.header


def test_a_damaged_store_is_not_taken_for_one_that_is_there(photos: Path, root: Path) -> None:
    path = add("a", root, [photos]).path
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(DataError, match=r"damaged.*handful data remove a"):
        add("a", root, [photos])
    remove("a", root)
    assert add("a", root, [photos]).is_new


@pytest.mark.parametrize("name", ["", "../a", "a/b", ".hidden", "a b", "-x", "a.b", "x" * 200])
def test_names_that_cannot_be_files_are_refused(name: str, photos: Path, root: Path) -> None:
    with pytest.raises(InvalidOptionError, match=r"letters.*digits.*'_' and '-'"):
        add(name, root, [photos])
    with pytest.raises(InvalidOptionError):
        remove(name, root)


def test_glyphs_and_options_of_known_benchmarks_are_refused(photos: Path, root: Path) -> None:
    with pytest.raises(InvalidOptionError, match="'glyphs'"):
        add("glyphs", root, [photos])
    with pytest.raises(InvalidOptionError, match=r"'omniglot'.*size and split"):
        add("omniglot", root, [photos], FolderOptions(size=20))


def test_what_cannot_be_downloaded_says_what_to_do(root: Path) -> None:
    with pytest.raises(DataError, match=r"'birds'.*omniglot.*handful data add birds --from PATH"):
        add("birds", root)
    with pytest.raises(DataError, match=r"mini-imagenet --from PATH"):
        add("mini-imagenet", root)


def test_removing_gives_the_room_back(photos: Path, root: Path) -> None:
    path = add("a", root, [photos]).path
    size = path.stat().st_size
    write_files(root, {"downloads/a/x.zip.part": b"12345"})
    assert remove("a", root) == size + 5
    assert not path.exists()
    assert leftovers(root) == ["downloads"]
    with pytest.raises(DataError, match=r"'a' in .*root"):
        remove("a", root)


def test_what_a_killed_process_left_is_swept_up(photos: Path, root: Path) -> None:
    write_files(root, {".a.pack.999.tmp": b"half a store", ".a.pack.xyz.tmp/x.inflated": b"half a tar"})
    add("a", root, [photos])
    assert leftovers(root) == []


# ---------------------------------------------------------------------------------------------------- downloads


@pytest.fixture
def toy(web: Web, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Web:
    """A benchmark called toy, which the small web server serves as one zip."""
    web.files["toy.zip"] = write_zip(tmp_path / "toy.zip", class_folders()).read_bytes()
    remote = Remote("toy.zip", (), hashlib.md5(web.files["toy.zip"], usedforsecurity=False).hexdigest())
    source = Source("toy", "Toy", "none", "", lambda trees: read_folder(trees, FolderOptions(size=8)), (remote,))
    monkeypatch.setitem(SOURCES, "toy", source)
    return web


@pytest.mark.parametrize("behaviour", ["good", "cut", "norange", "longer"])
def test_servers_that_send_it_all_in_the_end_give_a_good_store(behaviour: str, toy: Web, root: Path) -> None:
    added = add("toy", root, mirrors=[toy.at(behaviour)], timeout=0.5)
    assert check_store(added.path).n_images == 40
    assert leftovers(root) == ["downloads"]


@pytest.mark.parametrize("behaviour", ["stall", "silent", "html", "shorter", "wrong", "missing", "alwayscut"])
def test_servers_that_do_not_give_a_clear_error_and_no_store(behaviour: str, toy: Web, root: Path) -> None:
    with pytest.raises(DataError, match=r"toy\.zip.*--from"):
        add("toy", root, mirrors=[toy.at(behaviour)], timeout=0.3)
    with pytest.raises(HandfulError):
        load("toy", root=root)
    assert add("toy", root, mirrors=[toy.at(behaviour), toy.at("good")], timeout=0.3).header.n_images == 40


def test_a_download_that_holds_no_images_is_a_clear_error(
    toy: Web, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    toy.files["toy.zip"] = b"<not html, but no zip either"
    md5 = hashlib.md5(toy.files["toy.zip"], usedforsecurity=False).hexdigest()
    source = SOURCES["toy"]
    monkeypatch.setitem(SOURCES, "toy", Source("toy", "Toy", "none", "", source.read, (Remote("toy.zip", (), md5),)))
    with pytest.raises(DataError, match=r"toy\.zip .*zip or tar"):
        add("toy", root, mirrors=[toy.at("good")])


# ---------------------------------------------------------------------------------- full disks, locks, two at once


def script(body: str, **values: object) -> list[str]:
    lines = [f"{name} = {value!r}" for name, value in values.items()]
    head = textwrap.dedent("""
        from pathlib import Path
        from handful.data.add import add
        from handful.data.sources.folder import FolderOptions
    """)
    return [sys.executable, "-c", head + "\n".join(lines) + "\n" + textwrap.dedent(body)]


@pytest.mark.parametrize("limit", [100, 10_000, 500_000])
def test_a_full_disk_is_a_clear_error_and_leaves_nothing(limit: int, photos: Path, root: Path) -> None:
    command = script(
        """
        import resource
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        add('a', Path(root), [Path(photos)])
        """,
        limit=limit,
        root=str(root),
        photos=str(photos),
    )
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert "DataError: No room to write" in done.stderr
    assert "--data or HANDFUL_DATA" in done.stderr
    assert leftovers(root) == []
    assert not list(root.glob("*.pack"))


def test_a_full_disk_while_a_tar_is_inflated_leaves_nothing(tmp_path: Path, root: Path) -> None:
    files = write_files(tmp_path / "files", {f"kind{i}/{j}.png": png(i) * 50 for i in range(3) for j in range(3)})
    subprocess.run(["tar", "-czf", tmp_path / "x.tar.gz", "-C", files, "."], check=True)
    command = script(
        """
        import resource
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        add('a', Path(root), [Path(archive)])
        """,
        root=str(root),
        archive=str(tmp_path / "x.tar.gz"),
    )
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert "DataError: No room to write" in done.stderr
    assert leftovers(root) == []


def test_a_cache_that_cannot_be_written_is_a_clear_error(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(DataError, match=r"a\.pack: Not a directory.*--data or HANDFUL_DATA"):
        add("a", tmp_path / "file" / "below", [photos])


def test_loading_writes_nothing_so_that_a_cache_may_be_read_only(photos: Path, root: Path) -> None:
    add("a", root, [photos])
    before = {path: path.stat().st_mtime_ns for path in [root, *root.rglob("*")]}
    assert load("a", root=root).train.image_shape == (3, 84, 84)
    assert {path: path.stat().st_mtime_ns for path in [root, *root.rglob("*")]} == before


@pytest.mark.slow
def test_two_processes_that_add_the_same_at_once_both_end_well(tmp_path: Path, root: Path) -> None:
    photos = write_files(tmp_path / "many", class_folders(classes=20, images=20))
    body = """
        added = add('a', Path(root), [Path(photos)], FolderOptions(size=128))
        print(added.is_new, added.header.content)
    """
    command = script(body, root=str(root), photos=str(photos))
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    told = [process.communicate(timeout=120)[0].split() for process in running]
    assert [process.returncode for process in running] == [0, 0, 0]
    assert sorted(is_new for is_new, _ in told) == ["False", "False", "True"]
    assert len({content for _, content in told}) == 1
    assert check_store(store_path(root, "a")).content == told[0][1]
    assert leftovers(root) == []


@pytest.mark.slow
def test_two_processes_that_download_the_same_at_once_both_end_well(toy: Web, root: Path) -> None:
    body = """
        from handful.data.sources.source import Source
        from handful.data.download import Remote
        from handful.data.sources.folder import read_folder
        from handful.data.sources import SOURCES
        read = lambda trees: read_folder(trees, FolderOptions(size=8))
        SOURCES['toy'] = Source('toy', 'Toy', 'none', '', read, (Remote('toy.zip', (), md5),))
        print(add('toy', Path(root), mirrors=[mirror]).header.content)
    """
    md5 = SOURCES["toy"].remotes[0].md5
    command = script(body, root=str(root), md5=md5, mirror=toy.at("good"))
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    told = {process.communicate(timeout=120)[0] for process in running}
    assert [process.returncode for process in running] == [0, 0]
    assert told == {f"{check_store(store_path(root, 'toy')).content}\n"}
    assert toy.tries["good"] == 1


def test_a_process_that_is_killed_while_packing_leaves_no_store(tmp_path: Path, root: Path, photos: Path) -> None:
    body = """
        import os, signal
        from handful.data import add as adding
        write = adding.write_store
        def killed(path, header, chunks, progress):
            def some():
                yield next(iter(chunks))[:10]
                os.kill(os.getpid(), signal.SIGKILL)
            return write(path, header, some(), progress)
        adding.write_store = killed
        add('a', Path(root), [Path(photos)])
    """
    command = script(body, root=str(root), photos=str(photos))
    assert subprocess.run(command, check=False, timeout=60).returncode == -9
    with pytest.raises(DataError):
        load("a", root=root)
    assert len(leftovers(root)) > 0
    assert add("a", root, [photos]).is_new
    assert leftovers(root) == []
