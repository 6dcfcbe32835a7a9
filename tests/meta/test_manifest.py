"""The record of a run: what it was trained on, how far it came, how long it took, and what cannot be trusted."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from handful._io import read_json
from handful.data.table import Benchmark, ImageTable
from handful.errors import CheckpointError, DataError
from handful.meta.config import Plan, Recipe
from handful.meta.manifest import MANIFEST, Manifest, Record, Session, content_hash, read_sessions, record_by_hand
from handful.meta.run import Run
from tests.conftest import blobs

RECIPE = Recipe(
    data="tiny", width="32C", way=3, images_per_class=4, max_shot=2, plan=Plan(episodes=2, validate_every=0)
)
STEPS = Plan(episodes=100, schedule="constant")


def session(first: int, last: int, seconds: float | None = 1.5) -> Session:
    return Session("then", seconds, first, last, {}, {})


def manifest(plan: Plan, *sessions: Session, planned: int = 100, finished: bool = False) -> Manifest:
    return Manifest("a", replace(RECIPE, plan=plan), planned, "tiny", "hash", sessions, finished)


def test_episodes_are_those_of_the_last_session_and_time_that_of_all_that_recorded_it() -> None:
    assert manifest(STEPS).episodes == 0
    kept = manifest(STEPS, session(0, 10, None), session(10, 40), session(40, 60))
    assert (kept.episodes, kept.seconds, kept.untimed) == (60, 3.0, 10)


def test_a_run_is_complete_by_the_plan_of_its_recipe_not_by_a_shorter_one() -> None:
    assert manifest(STEPS, session(0, 100), finished=True).shortfall == ""
    cut = manifest(replace(STEPS, episodes=50), session(0, 50), finished=True)
    assert not cut.completion.complete
    assert "50 of 100 episodes" in cut.shortfall
    cosine = manifest(replace(STEPS, episodes=50, schedule="cosine"), session(0, 50), finished=True)
    assert not cosine.completion.complete
    assert "50 of 100 episodes" in cosine.shortfall
    assert "cosine" in cosine.shortfall
    assert replace(cut, changes="32C in place of 64C").shortfall.startswith("32C in place of 64C; ")


def test_a_manifest_on_disk_holds_plain_and_derived_values_and_gives_its_sessions_back(
    tmp_path: Path, tiny: Benchmark
) -> None:
    run = Run(tmp_path, RECIPE, tiny)
    run.start()
    record = record_by_hand(run, "tiny/one")
    assert record.write().sessions == ()  # nothing trained yet
    list(run.train())
    kept = record.write()
    facts = read_json(tmp_path / MANIFEST)
    assert (facts["name"], facts["seed"], facts["episodes"], facts["complete"]) == ("tiny/one", 0, 2, True)
    assert facts["content"] == content_hash(tiny)
    assert [(each.first, each.last) for each in kept.sessions] == [(0, 2)]
    assert read_sessions(tmp_path, content_hash(tiny)) == kept.sessions
    again = Run(tmp_path, RECIPE, tiny)
    again.resume()
    assert record_by_hand(again, "").base.name == "tiny/one"
    longer = Run(tmp_path, replace(RECIPE, plan=replace(RECIPE.plan, episodes=3)), tiny)
    longer.resume()
    assert record_by_hand(longer, "").base.name == "none"


def test_a_run_resumed_by_hand_keeps_the_plan_and_the_changes_of_its_manifest(tmp_path: Path, tiny: Benchmark) -> None:
    run = Run(tmp_path, RECIPE, tiny)
    run.start()
    cut = Manifest("tiny/one", RECIPE, 100, "tiny", content_hash(tiny), changes="32C in place of 64C", altered=True)
    Record(cut, run).write()
    list(run.train())
    again = Run(tmp_path, RECIPE, tiny)
    again.resume()
    kept = record_by_hand(again, "").write()
    assert (kept.name, kept.planned, kept.changes, kept.altered) == ("tiny/one", 100, "32C in place of 64C", True)
    assert not kept.completion.complete


@pytest.mark.parametrize("planned", ["x", None, 10**18])
def test_a_damaged_plan_in_a_manifest_is_not_kept(tmp_path: Path, tiny: Benchmark, planned: object) -> None:
    run = Run(tmp_path, RECIPE, tiny)
    run.start()
    facts = record_by_hand(run, "tiny/one").write().as_json()
    (tmp_path / MANIFEST).write_text(json.dumps({**facts, "planned": planned}))
    kept = record_by_hand(run, "").base
    assert (kept.name, kept.planned) == ("none", 2)


def test_what_was_trained_without_a_record_is_one_session_without_a_time(tmp_path: Path, tiny: Benchmark) -> None:
    run = Run(tmp_path, RECIPE, tiny)
    run.start()
    list(run.train())
    (tmp_path / MANIFEST).unlink(missing_ok=True)
    (unknown,) = Record(manifest(RECIPE.plan), run).sessions
    assert (unknown.first, unknown.last, unknown.seconds) == (0, 2, None)


def test_sessions_are_refused_when_the_data_or_the_file_changed(tmp_path: Path) -> None:
    assert read_sessions(tmp_path, "hash") == ()
    (tmp_path / MANIFEST).write_text('{"content": "hash", "sessions": []}')
    assert read_sessions(tmp_path, "hash") == ()
    with pytest.raises(DataError, match=r"hash, now\W+other"):
        read_sessions(tmp_path, "other")
    (tmp_path / MANIFEST).write_text('{"content": "hash", "sessions": [{}]}')
    with pytest.raises(CheckpointError, match=r"manifest\.json"):
        read_sessions(tmp_path, "hash")


def test_the_content_hash_follows_pixels_classes_and_splits_but_not_the_name_of_the_data() -> None:
    table = blobs(classes=6, images=3, size=8)
    names = table.classes

    def hash_of(table: ImageTable, sizes: tuple[int, int] = (2, 2), name: str = "a") -> str:
        first, second = sizes[0], sum(sizes)
        parts = (names[:first], names[first:second], names[second:])
        splits = (table.split(part, group) for part, group in zip(("train", "val", "test"), parts, strict=True))
        return content_hash(Benchmark(name, *splits))

    whole = hash_of(table)
    assert hash_of(table, name="b") == whole
    assert hash_of(table, (3, 1)) != whole
    changed = table.images.clone()
    changed[-1, 0, 0, 0] ^= 1
    assert hash_of(replace(table, images=changed)) != whole
    assert hash_of(replace(table, images=table.images.to(memory_format=torch.contiguous_format))) == whole
