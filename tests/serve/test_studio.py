"""The studio's sessions and routes without a browser: every change, the background work, and what is refused."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

from handful.serve.studio import ACTIONS, Channel, Studio, file_name
from handful.serve.studio_shelf import Shelf
from tests.serve.browser import drawing


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


def test_the_page_preloads_exactly_the_modules_that_it_imports(client: TestClient) -> None:
    preloaded = set(re.findall(r'rel="modulepreload" href="/static/(.+?)"', client.get("/").text))
    imported, open_files = set(), ["app.js"]
    while open_files:
        found = set(re.findall(r'from "\./(.+?)"', client.get(f"/static/{open_files.pop()}").text)) - imported
        imported |= found
        open_files += found
    assert preloaded == imported


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


def test_a_project_name_makes_a_plain_file_name() -> None:
    assert file_name("Birds of the garden") == "birds-of-the-garden"


def test_the_first_page_that_listens_is_told_of_earlier_failures() -> None:
    async def scene() -> list[Any]:
        channel = Channel(asyncio.get_running_loop())
        for event in ("progress", "failed"):
            channel.tell(event, {"message": event})
        await asyncio.sleep(0)
        first = channel.listen()
        channel.tell("failed", {"message": "later"})
        await asyncio.sleep(0)
        second = channel.listen()
        return [first.get_nowait(), first.get_nowait(), first.empty(), second.empty()]

    told = [("failed", {"message": "failed"}), ("failed", {"message": "later"})]
    assert asyncio.run(scene()) == [*told, True, True]
