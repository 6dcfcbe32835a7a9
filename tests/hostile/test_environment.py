"""Odd environments: no home, closed or full streams, no locale, read-only folders, low limits, odd names, signals."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO

import numpy as np
import pytest
from PIL import Image

from handful import FewShotClassifier
from handful.cli.machine import plain
from handful.cli.main import main
from handful.cli.serve import default_projects
from handful.cli.train import stop_requests
from handful.data.loading import load_recorded
from handful.errors import DataError, InvalidOptionError
from handful.meta.run import LAST, Run
from tests.hostile.runs import RECIPE_OF_A_TINY_RUN, tiny_benchmark

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="closes descriptors, sets limits and sends signals")
ESCAPE = "\x1b[2J\x1b]0;owned\x07\x9b31m"


def handful(
    *words: str | bytes,
    prepare: Callable[[], None] | None = None,
    code: str = "",
    stdin: int | IO[bytes] = subprocess.DEVNULL,
    **environment: str,
) -> subprocess.CompletedProcess[bytes]:
    """Run the command line in a process of its own."""
    start = f"{code}\nimport sys\nfrom handful.cli import main\nsys.exit(main())"
    return subprocess.run(
        [sys.executable, "-c", start, *words],
        env={**os.environ, **environment},
        capture_output=True,
        preexec_fn=prepare,
        stdin=stdin,
        check=False,
        timeout=300,
    )


def is_one_clear_line(done: subprocess.CompletedProcess[bytes]) -> bool:
    return done.returncode == 2 and done.stderr.startswith(b"handful: ") and done.stderr.count(b"\n") == 1


@pytest.fixture(scope="module")
def features(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier of features whose class names are hostile."""
    path = tmp_path_factory.mktemp("made") / "a.handful"
    X = np.random.default_rng(0).normal(size=(6, 3))
    FewShotClassifier(embedding=None).fit(X, [f"ü{ESCAPE}", "caf\u00e9"] * 3).save(path)
    return path


# -------------------------------------------------------------------------------------------------------- environments


HOMELESS = "import os, pwd\ndef none(*_): raise KeyError\npwd.getpwuid = pwd.getpwnam = none\nos.environ.pop('HOME', 0)"


def test_without_a_home_folder_there_is_one_clear_line_or_a_result(tmp_path: Path) -> None:
    nothing = {"HANDFUL_DATA": "", "XDG_CACHE_HOME": ""}
    assert is_one_clear_line(done := handful("data", "list", code=HOMELESS, **nothing)), done.stderr
    assert b"HANDFUL_DATA" in done.stderr
    assert handful("data", "list", code=HOMELESS, HANDFUL_DATA=str(tmp_path)).returncode == 0
    assert is_one_clear_line(handful("data", "list", "--data", "~nobody-at-all/x", code=HOMELESS))


def test_without_a_home_folder_the_cache_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    from handful.classifier.cache import cache_folder

    def none(*_: object, **__: object) -> Path:
        raise RuntimeError("no home")

    monkeypatch.delenv("HANDFUL_DATA", raising=False)
    monkeypatch.setattr("platformdirs.user_cache_path", none)
    assert cache_folder(True) is None


def test_without_a_home_folder_the_studio_asks_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object, **__: object) -> Path:
        raise RuntimeError("no home")

    monkeypatch.setattr("platformdirs.user_data_path", none)
    monkeypatch.delenv("HANDFUL_STUDIO", raising=False)
    with pytest.raises(DataError, match="HANDFUL_STUDIO"):
        default_projects()
    monkeypatch.setenv("HANDFUL_STUDIO", "~nobody-at-all/x")
    with pytest.raises(InvalidOptionError, match="home folder that does not exist"):
        default_projects()


def test_a_folder_that_cannot_be_written_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    done = handful("data", "add", "own", "--from", str(tmp_path), "--data", "/proc/nowhere")
    assert is_one_clear_line(done), done.stderr


@pytest.mark.parametrize("closed", [(1,), (2,), (0, 1, 2)], ids=str)
def test_closed_streams_do_no_harm(closed: tuple[int, ...], tmp_path: Path) -> None:
    def close() -> None:
        for each in closed:
            os.close(each)

    done = handful("data", "list", "--data", str(tmp_path), prepare=close)
    assert done.returncode == 0
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("words", [["data", "list"], ["--version"]], ids=str)
@pytest.mark.parametrize("unbuffered", ["", "1"], ids=["buffered", "unbuffered"])
def test_a_full_output_is_one_clear_line(words: list[str], unbuffered: str, tmp_path: Path) -> None:
    def full() -> None:
        os.dup2(os.open("/dev/full", os.O_WRONLY), 1)

    done = handful(*words, prepare=full, HANDFUL_DATA=str(tmp_path), PYTHONUNBUFFERED=unbuffered)
    assert is_one_clear_line(done), done.stderr


def test_an_endless_line_of_standard_input_is_one_clear_line(features: Path) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))  # PyTorch takes one or two of them

    code = "import os\nwhile True: os.write(1, b'y' * 1_000_000)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as endless:
        assert endless.stdout is not None
        done = handful("predict", str(features), "-", prepare=limit, stdin=endless.stdout)
        endless.kill()
    assert is_one_clear_line(done), done.stderr
    assert b"bytes in which no path ends" in done.stderr


def test_a_disk_without_room_is_one_clear_line(tmp_path: Path) -> None:
    _photos(tmp_path / "photos", ["a", "b", "c", "d", "e"])

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))

    words = ("data", "add", "own", "--from", str(tmp_path / "photos"), "--data", str(tmp_path / "data"), "--size", "8")
    assert is_one_clear_line(done := handful(*words, prepare=limit)), done.stderr
    assert [path.name for path in (tmp_path / "data").iterdir() if not path.name.endswith(".lock")] == []


def test_few_open_files_are_enough(tmp_path: Path) -> None:
    _photos(tmp_path / "photos", ["a", "b", "c", "d", "e"])

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (24, 24))

    words = ("data", "add", "own", "--from", str(tmp_path / "photos"), "--data", str(tmp_path / "data"), "--size", "8")
    assert (done := handful(*words, prepare=limit)).returncode == 0, done.stderr


def test_names_are_spelled_out_on_an_ascii_terminal(tmp_path: Path) -> None:
    _photos(tmp_path / "photos", ["a", "b", "c", "d", "ü"])
    words = ("data", "add", "own", "--from", str(tmp_path / "photos" / "ü"), "--data", str(tmp_path / "data"))
    done = handful(*words, LC_ALL="C", PYTHONUTF8="0", PYTHONIOENCODING="ascii", PYTHONCOERCECLOCALE="0")
    assert is_one_clear_line(done), done.stderr
    assert b"\\udcc3\\udcbc" in done.stderr  # the bytes of its UTF-8, which the C locale does not know


# -------------------------------------------------------------------------------------------------------------- names


def _photos(folder: Path, classes: list[str] | list[bytes], number: int = 2) -> None:
    for value, name in enumerate(classes):
        inside = os.path.join(os.fsencode(folder), name if isinstance(name, bytes) else os.fsencode(name))
        os.makedirs(inside)
        for index in range(number):
            with open(os.path.join(inside, b"%d\xff.png" % index), "wb") as file:
                Image.new("L", (8, 8), 40 * value + index).save(file, "PNG")


def test_odd_names_are_packed_and_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    odd = [b"\xff\xfe", ESCAPE.encode("latin-1"), b"-o", b"new\nline", "ü".encode(), b"'; DROP", b"a b"]
    _photos(tmp_path / "photos", odd)
    words = ["data", "add", "own", "--from", str(tmp_path / "photos"), "--data", str(tmp_path / "data"), "--size", "8"]
    assert main(words) == 0
    assert main(["data", "check", "own", "--data", str(tmp_path / "data")]) == 0
    assert "7 classes" in (out := capsys.readouterr().out)
    assert "\x1b" not in out


def test_escape_sequences_never_reach_the_terminal(features: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert plain(ESCAPE) == r"\u001b[2J\u001b]0;owned\u0007\u009b31m"
    assert plain("tab\tand\nline stay") == "tab\tand\nline stay"
    assert main(["forget", str(features), "--label", ESCAPE]) == 2
    captured = capsys.readouterr()
    assert "\x1b" not in captured.err + captured.out
    assert captured.err.startswith("handful: ")


def test_escape_sequences_of_labels_and_files_never_reach_standard_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, folder = tmp_path / "a.handful", tmp_path / "images"
    folder.mkdir()
    images = [Image.fromarray(np.random.default_rng(i).integers(0, 256, (8, 8), dtype=np.uint8)) for i in range(6)]
    FewShotClassifier("characters", cache=False).fit(images, [ESCAPE, "b"] * 3).save(model)
    for index, image in enumerate(images):
        image.save(folder / f"{index}.png")
    (folder / f"{ESCAPE}.txt").write_text("no image")
    (folder / f"{ESCAPE}.png").write_text("no image either")
    assert main(["predict", str(model), str(folder)]) == 1
    assert main(["add", str(model), str(folder), "--label", "b", "--keep-going"]) == 1
    captured = capsys.readouterr()
    assert "\x1b" not in captured.err + captured.out
    assert "6 images" in captured.err or "7 images" in captured.err
    assert (captured.err + captured.out).count("1 file skipped: .txt is not an image format") == 2


# ------------------------------------------------------------------------------------------------------------- options


def test_a_folder_as_the_output_is_refused(
    features: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["inspect", str(features), "-o", "."]) == 2
    assert capsys.readouterr().err.startswith("handful: . is a folder.")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("memory", ["nan", "inf", "0", "-1"])
def test_an_amount_of_memory_that_makes_no_sense_is_refused(memory: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", "nowhere", "--memory", memory]) == 2
    assert "--memory is in gigabytes" in capsys.readouterr().err


@pytest.mark.parametrize("threads", ["-1", "100000", "99999999999999999999"])
def test_a_number_of_threads_that_no_machine_has_is_refused(threads: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", "nowhere", "--threads", threads]) == 2
    assert "threads must be from 0 (all cores) to 1,024" in capsys.readouterr().err


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = Run(tmp_path_factory.mktemp("run"), RECIPE_OF_A_TINY_RUN, tiny_benchmark())
    run.start()
    next(steps := run.train(save_every=1))
    steps.close()
    return run.folder / LAST


def test_data_of_another_shape_is_refused(checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _photos(tmp_path / "photos", ["a", "b", "c", "d", "e"], 4)
    data = ["--data", str(tmp_path / "data")]
    assert main(["data", "add", "own", "--from", str(tmp_path / "photos"), *data, "--size", "24"]) == 0
    words = [
        "evaluate",
        str(checkpoint),
        "--data",
        str(tmp_path / "data" / "own.pack"),
        "--way",
        "2",
        "--episodes",
        "2",
    ]
    assert main(words) == 2
    said = capsys.readouterr().err
    assert "grey images of 24 x 24 pixels" in said
    assert "colour" in said


@pytest.mark.parametrize("name", ["/", "/proc", "~", "."])
def test_a_recipe_does_not_make_us_read_a_folder_that_was_never_used(name: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="has not been used on this machine"):
        load_recorded(name, root=tmp_path)


# ------------------------------------------------------------------------------------------------------------- signals


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_a_training_between_two_updates_and_saves_it(number: int, tmp_path: Path) -> None:
    run = Run(tmp_path / "run", RECIPE_OF_A_TINY_RUN, tiny_benchmark())
    run.start()
    kept, handler = (
        (os.dup(1), os.dup(2)),
        signal.signal(number, signal.SIG_DFL),
    )  # a job in the background ignores some
    try:
        with stop_requests() as requests:
            for _ in (steps := run.train(save_every=500)):
                os.kill(os.getpid(), number)
                if requests:
                    steps.close()
    finally:
        for copy, stream in zip(kept, (1, 2), strict=True):
            os.dup2(copy, stream)
        signal.signal(number, handler)
    assert requests == [number]
    again = Run(tmp_path / "run", RECIPE_OF_A_TINY_RUN, tiny_benchmark())
    again.resume()
    assert again.state.episode == 1


def test_a_training_under_nohup_goes_on(tmp_path: Path) -> None:
    kept = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stop_requests() as requests:
            os.kill(os.getpid(), signal.SIGHUP)
        assert requests == []
    finally:
        signal.signal(signal.SIGHUP, kept)
