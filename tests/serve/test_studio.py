"""The studio's sessions and routes without a browser: every change, the background work, and what is refused."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

from handful import FewShotClassifier
from handful._io import digest
from handful.errors import InvalidOptionError
from handful.serve import studio_changes as changes
from handful.serve import studio_embedding
from handful.serve.studio import ACTIONS, Studio, file_name
from handful.serve.studio_import import open_source, take_over
from handful.serve.studio_session import Session
from handful.serve.studio_store import Shelf
from tests.serve.browser import KINDS, drawing

PATIENCE = 120.0
"""Seconds after which background work counts as stuck."""


def until(done: Callable[[], bool]) -> None:
    limit = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < limit, "the background work did not end"
        time.sleep(0.02)


def settled(session: Session) -> Any:
    until(lambda: all(item["ready"] for item in session.state()["items"]) and not session.progress()["total"])
    return session.state()


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path / "projects")


@pytest.fixture
def session(shelf: Shelf) -> Iterator[Session]:
    opened = Session(shelf.open(shelf.create("Signs")), lambda event, data: None)
    yield opened
    opened.close()


def taught(session: Session, count: int = 3) -> Any:
    for kind in KINDS:
        for number in range(count):
            session.add_image(drawing(kind, number), f"{kind}-{number}.png", kind, "drop")
    return settled(session)


def numbers(state: Any) -> list[float]:
    return [state["estimate"][key] for key in ("accuracy", "low", "high")] + state["rejection"]["thresholds"][1:]


def test_undoing_any_change_gives_back_the_same_numbers(session: Session) -> None:
    taught(session)
    ring, cross = digest(drawing("ring", 0)), digest(drawing("cross", 0))
    steps: list[Callable[[], object]] = [
        lambda: session.do(changes.label, [ring, cross], "zigzag"),
        lambda: session.do(changes.label, [ring], None),
        lambda: session.do(changes.delete, [cross]),
        lambda: session.do(changes.rename_class, "ring", "circle"),
        lambda: session.do(changes.rename_class, "ring", "cross"),
        lambda: session.do(changes.delete_class, "zigzag"),
        lambda: session.do(changes.confirm, [ring]),
        lambda: session.do(changes.rename, "Other signs"),
        lambda: session.do(changes.reject, 0.2),
        lambda: session.do(changes.add_class, "empty"),
    ]
    before = session.state()
    for change in steps:
        change()
        after = session.state()
        session.undo()
        undone = session.state()
        counted = dict.fromkeys(("revision", "learnt", "estimate", "rejection", "redo", "embedding"))
        assert {**undone, **counted} == {**before, **counted}
        assert numbers(undone) == pytest.approx(numbers(before), abs=1e-9)  # the factor was updated twice, in float64
        session.redo()
        assert session.state()["items"] == after["items"]
        session.undo()


def test_a_page_that_has_seen_a_state_gets_only_what_changed(session: Session) -> None:
    first = taught(session)
    ring, cross = digest(drawing("ring", 0)), digest(drawing("cross", 0))
    seen = {item["id"]: item for item in first["items"]}
    revision = first["revision"]

    def follow() -> Any:
        nonlocal revision
        part = session.state(first["session"], revision)
        assert part["since"] == revision
        for item in part["gone"]:
            del seen[item]
        seen.update({item["id"]: item for item in part["items"]})
        whole = session.state()
        assert "since" not in whole
        assert seen == {item["id"]: item for item in whole["items"]}
        assert {key: part[key] for key in part.keys() - {"since", "items", "gone"}} == {
            key: whole[key] for key in whole.keys() - {"items"}
        }
        revision = part["revision"]
        return part

    assert follow()["items"] == []
    session.do(changes.rename, "Other signs")
    assert follow()["items"] == []
    session.do(changes.label, [ring], "cross")
    assert ring in {item["id"] for item in follow()["items"]}
    session.do(changes.delete, [cross])
    assert follow()["gone"] == [cross]
    session.undo()
    session.undo()
    assert follow()["gone"] == []
    assert seen == {item["id"]: item for item in first["items"]}
    assert "since" not in session.state("another session", revision)


def test_a_session_equals_a_classifier_fitted_to_the_same_images(session: Session, tmp_path: Path) -> None:
    taught(session)
    session.do(changes.label, [digest(drawing("ring", 0))], "cross")
    session.do(changes.delete, [digest(drawing("zigzag", 1))])
    session.undo()
    session.undo()
    images = [drawing(kind, number) for kind in KINDS for number in range(3)]
    fresh = FewShotClassifier("characters", cache=False).fit(images, [kind for kind in KINDS for _ in range(3)])
    query = drawing("cross", 9)
    answer = session.answer(query)
    found = {each["label"]: each["probability"] for each in answer["answers"]}
    expected = dict(zip(fresh.classes_, fresh.predict_proba([query])[0], strict=True))
    assert found == pytest.approx(expected, abs=1e-6)
    assert answer["unknown"] == pytest.approx(float(fresh.unknown_score([query])[0]), abs=1e-6)
    session.save(tmp_path / "taken.handful")
    taken = FewShotClassifier.load(tmp_path / "taken.handful")
    assert taken.predict_proba([query]) == pytest.approx(fresh.predict_proba([query]), abs=1e-6)
    assert taken.has_thumbnails_


def test_an_image_is_kept_once_and_a_second_drop_relabels_it(session: Session) -> None:
    taught(session)
    image = drawing("ring", 0)
    assert session.add_image(image, "again.png", "ring")["known"] == "ring"
    assert len(session.state()["items"]) == 9
    session.add_image(image, "again.png", "cross")
    assert [each["count"] for each in session.state()["classes"]] == [2, 4, 3]
    assert session.add_image(image, "again.png", None)["known"] == "cross"


def test_the_pile_is_sorted_and_guessed(session: Session) -> None:
    taught(session)
    for kind in KINDS:
        session.add_image(drawing(kind, 20), f"{kind}.png", None, "pile")
    pile = settled(session)["pile"]
    assert len(pile) == 3
    assert all(each["guess"] in KINDS and 0 < each["probability"] <= 1 for each in pile)


def test_cancelling_removes_what_was_not_embedded_and_undo_goes_on(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    taught(session)
    gate, real = threading.Event(), studio_embedding.embed

    def slow(*arguments: Any, **options: Any) -> Any:
        gate.wait(PATIENCE)
        return real(*arguments, **options)

    monkeypatch.setattr(studio_embedding, "embed", slow)
    for number in range(20, 30):
        session.add_image(drawing("ring", number), f"{number}.png", "ring", "many")
    until(lambda: session.progress()["total"] > 0)
    session.cancel()
    assert len(session.state()["items"]) == 9
    gate.set()
    assert len(settled(session)["items"]) == 9
    session.undo()
    assert len(settled(session)["items"]) == 19


def test_a_stopping_studio_does_not_wait_for_a_batch_that_the_next_one_embeds_again(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    identity, gate, begun, real = shelf.create("Signs"), threading.Event(), threading.Event(), studio_embedding.embed

    def slow(*arguments: Any, **options: Any) -> Any:
        begun.set()
        gate.wait(PATIENCE)
        return real(*arguments, **options)

    monkeypatch.setattr(studio_embedding, "embed", slow)
    first = Session(shelf.open(identity), lambda event, data: None)
    for number in range(2):
        first.add_image(drawing("ring", number), f"{number}.png", "ring")
    assert begun.wait(PATIENCE)
    first.close(patience=0.01)
    assert first._threads[0].is_alive()  # nobody waited for it
    gate.set()
    first._threads[0].join(PATIENCE)
    second = Session(shelf.open(identity), lambda event, data: None)
    assert len(settled(second)["items"]) == 2
    second.close()


def test_a_folder_and_then_its_file_become_projects(shelf: Shelf, tmp_path: Path) -> None:
    folder = tmp_path / "signs"
    for kind in KINDS[:2]:
        for number in range(3):
            file = folder / kind / f"{number}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(drawing(kind, number))
    (folder / "loose.png").write_bytes(drawing("ring", 9))
    (folder / "ring" / "broken.png").write_bytes(b"not an image")
    identity, told = open_source(shelf, folder), []
    session = Session(shelf.open(identity), lambda event, data: told.append((event, data)))
    session.start(take_over)
    until(lambda: "import" not in session.project.facts)
    state = settled(session)
    assert [(each["name"], each["count"]) for each in state["classes"]] == [("cross", 3), ("ring", 3)]
    assert len(state["pile"]) == 1
    assert any("broken.png" in data["message"] for event, data in told if event == "failed")
    session.save(tmp_path / "signs.handful")
    session.close()
    assert open_source(shelf, folder) == identity
    again = Session(shelf.open(open_source(shelf, tmp_path / "signs.handful")), lambda event, data: None)
    again.start(take_over)
    until(lambda: "import" not in again.project.facts)
    taken = settled(again)
    assert taken["estimate"]["accuracy"] == pytest.approx(state["estimate"]["accuracy"])
    with pytest.raises(InvalidOptionError, match="features but not the images"):
        again.choose_embedding("characters")
    again.add_image(drawing("ring", 30), "new.png", "ring")
    assert len(settled(again)["items"]) == 7
    again.close()


def test_the_next_session_goes_on_with_a_folder_that_was_half_taken_over(
    shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "signs" / "ring"
    folder.mkdir(parents=True)
    for number in range(4):
        (folder / f"{number}.png").write_bytes(drawing("ring", number))
    identity = open_source(shelf, folder.parent)
    first = Session(shelf.open(identity), lambda event, data: None)
    real = first.add_image

    def add_and_stop(*arguments: Any) -> Any:
        first.stopped = True
        return real(*arguments)

    monkeypatch.setattr(first, "add_image", add_and_stop)
    take_over(first)
    assert len(first.project.items()) == 1
    first.close()
    second = Session(shelf.open(identity), lambda event, data: None)
    take_over(second)
    assert len(second.project.items()) == 4
    assert "import" not in second.project.facts
    second.close()


def test_another_embedding_is_compared_and_then_used(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(studio_embedding.Embeddings, "names", lambda self: ["characters", "other"])
    real = studio_embedding.choose_embedder

    def chosen(name: str, pictures: Any) -> Any:
        found = real("characters", pictures)
        return found if name == "characters" else _Turned(found)

    monkeypatch.setattr(studio_embedding, "choose_embedder", chosen)
    monkeypatch.setattr(studio_embedding, "embed", _embed_turned(studio_embedding.embed))
    before = taught(session)
    session.compare("other")
    until(lambda: session.state()["embedding"]["options"][1]["estimate"] is not None)
    assert session.state()["embedding"]["active"] == "characters"
    session.choose_embedding("other")
    until(lambda: session.state()["embedding"]["active"] == "other")
    session.undo()
    state = settled(session)
    assert state["embedding"]["active"] == "characters"
    assert state["estimate"]["accuracy"] == before["estimate"]["accuracy"]


class _Turned:
    """An embedding that differs from another only in its digest."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.digest = "turned"


def _embed_turned(real: Any) -> Any:
    def embed(pictures: Any, embedder: Any, cache: Any, **options: Any) -> Any:
        return real(pictures, embedder.inner if isinstance(embedder, _Turned) else embedder, cache, **options)

    return embed


# -------------------------------------------------------------------------------------------------------------- routes


@pytest.fixture
def client(shelf: Shelf) -> Iterator[TestClient]:
    shelf.root.mkdir()
    with TestClient(Studio(shelf).application(), base_url="http://127.0.0.1") as found:
        yield found


@pytest.fixture
def base(client: TestClient) -> str:
    return f"/api/projects/{client.post('/api/projects', json={'name': 'One'}).json()['id']}"


def test_the_page_and_its_parts_are_served_with_a_strict_policy(client: TestClient) -> None:
    answer = client.get("/")
    assert answer.status_code == 200
    assert "script-src 'self'" in answer.headers["content-security-policy"]
    assert "unsafe" not in answer.headers["content-security-policy"]
    for name in ("app.js", "studio.css", "icon.svg"):
        assert client.get(f"/static/{name}").status_code == 200
    assert client.get("/static/../studio.py").status_code == 404


@pytest.mark.parametrize("headers", [{"host": "evil.example"}, {"origin": "https://evil.example"}])
def test_other_hosts_and_other_sites_are_refused(client: TestClient, base: str, headers: dict[str, str]) -> None:
    answer = client.post(f"{base}/do", json={"action": "add-class", "name": "x"}, headers=headers)
    assert answer.status_code in (403, 421)
    assert client.get(base).json()["classes"] == []


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"{", b'{"action": "no"}', b'{"action": "label", "items": "x"}', b'{"action": "label", "items": [1]}']
    + [b'{"action": "%s"}' % name.encode() for name in ACTIONS if name not in ("undo", "redo", "cancel")],
)
def test_a_bad_request_gets_one_sentence_and_changes_nothing(client: TestClient, base: str, body: bytes) -> None:
    before = client.get(base).json()
    answer = client.post(f"{base}/do", content=body)
    assert answer.status_code == 400
    assert answer.json()["error"].endswith(".")
    assert client.get(base).json() == before


@pytest.mark.parametrize("content", [b"", b"hello", b"\x89PNG\r\n\x1a\n" + b"\0" * 50, b"GIF89a" + b"\xff" * 20])
def test_what_is_no_image_is_refused_by_name(client: TestClient, base: str, content: bytes) -> None:
    for route in ("images", "try"):
        answer = client.post(f"{base}/{route}?name=odd.png&label=x", content=content)
        assert answer.status_code == 400
        assert "odd.png" in answer.json()["error"]
    assert client.get(base).json()["items"] == []


@pytest.mark.parametrize("path", ["/p/../x", "/api/projects/zz", "/api/projects/000000000000/small/x.jpg"])
def test_paths_lead_nowhere_else(client: TestClient, base: str, path: str) -> None:
    assert client.get(path).status_code in (400, 404)
    assert client.get(f"{base}/small/{'0' * 64}.jpg").status_code == 404
    assert client.get(f"{base}/large/{'0' * 64}.jpg").status_code == 404
    assert client.get(f"{base}/export/exe").status_code == 404


def test_the_route_of_images_keeps_names_as_names(client: TestClient, base: str) -> None:
    answer = client.post(f"{base}/images?name=../../etc/passwd&label=<script>", content=drawing("ring", 1))
    assert answer.status_code == 200
    state = client.get(base).json()
    assert state["items"][0]["name"] == "passwd"
    assert state["classes"][0]["name"] == "<script>"
    assert client.get(f"{base}/small/{state['items'][0]['id']}.jpg").headers["content-type"] == "image/jpeg"
    assert client.delete(base).status_code == 200
    assert client.get("/api/projects").json() == []


def test_an_update_touches_only_what_changed() -> None:
    """Fifty classes of twenty: what is known of the others is kept, and the numbers are those of a fresh start."""
    from handful.serve.studio_model import learnt

    generator = np.random.default_rng(0)
    rows = {f"{number:064x}": generator.normal(size=40) for number in range(1000)}
    labels = {item: f"class {number // 20:02d}" for number, item in enumerate(rows)}
    first = learnt(None, labels, rows, labels.__getitem__)
    assert first is not None
    item, *others = rows
    expected = first.held_out_scores
    moved = learnt(first, {**labels, item: "class 07"}, rows, labels.__getitem__)
    shrunk = learnt(first, {each: labels[each] for each in others}, rows, labels.__getitem__)
    assert moved is not None
    assert shrunk is not None
    assert moved.factor is first.factor
    assert "residuals" in moved.ridge.__dict__
    assert {"slack", "residuals"} <= {*shrunk.factor.__dict__, *shrunk.ridge.__dict__}
    grown = learnt(shrunk, {**labels, item: "class 07"}, rows, labels.__getitem__)
    assert grown is not None
    last_is_first = np.roll(np.arange(len(rows)), 1)
    assert grown.held_out_scores[last_is_first] == pytest.approx(moved.held_out_scores, abs=1e-9)
    assert learnt(first, labels, rows, labels.__getitem__) is first
    back = learnt(moved, labels, rows, labels.__getitem__)
    assert back is not None
    assert back.held_out_scores == pytest.approx(expected, abs=1e-9)


def test_a_project_name_makes_a_plain_file_name() -> None:
    assert file_name("Birds of the garden") == "birds-of-the-garden"


@pytest.mark.parametrize("content", [None, b"not a classifier"])
def test_a_bad_source_is_one_line_and_makes_no_project(
    tmp_path: Path, content: bytes | None, capsys: pytest.CaptureFixture[str]
) -> None:
    from handful.cli import main

    source = tmp_path / "odd.handful"
    if content is not None:
        source.write_bytes(content)
    assert main(["studio", str(source), "--projects", str(tmp_path / "projects"), "--no-browser"]) == 2
    assert capsys.readouterr().err.startswith("handful: ")
    assert Shelf(tmp_path / "projects").list() == []
