"""A run is made once, goes on where it stopped, and tells in its manifest how far it came."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from safetensors.torch import load_file
from torch import nn

from handful.data.table import Benchmark
from handful.errors import CheckpointError, DataError
from handful.meta.config import complete_at
from handful.meta.manifest import MANIFEST, Manifest, Session
from handful.meta.run import CPU, LAST, Run, build
from handful.meta.train import Progress, TrainingState
from handful.paper.jobs import Departures, Job, Standing, Until, job, standing, train_job
from handful.paper.report import minutes_of

NAME = "cifar-fs/protonet-64C-1shot/authors"


def silent(name: str, total: int, steps: Iterator[Progress]) -> Iterable[Progress]:
    return steps


def train(job: Job, small: Benchmark, seconds: float = 0.0, content: str = "hash") -> Manifest:
    return train_job(job, small, content, seconds, CPU, silent)


def short(out: Path, episodes: int = 3, seed: int = 0) -> Job:
    return job("cifar-fs/r2d2-64C/authors", seed, out, Departures(episodes, width="32C"))


def test_folders_follow_the_recipe_and_the_seed(tmp_path: Path) -> None:
    folders = {
        job(NAME, 0, tmp_path).folder,
        job(NAME, 1, tmp_path).folder,
        job(NAME, 0, tmp_path, Departures(episodes=10)).folder,
        job(NAME, 0, tmp_path, Departures(width="32C")).folder,
        job("cifar-fs/protonet-64C-5shot/authors", 0, tmp_path).folder,
    }
    assert len(folders) == 5
    assert job(NAME, 0, tmp_path, Departures(episodes=10**9)).folder == job(NAME, 0, tmp_path).folder
    assert job(NAME, 0, tmp_path).folder.name.startswith("cifar-fs--protonet-64C-1shot--authors-")


def test_a_cut_cosine_schedule_ends_at_the_cut_and_a_step_schedule_stays(tmp_path: Path) -> None:
    modern = job("cifar-fs/r2d2-64C/modern", 0, tmp_path, Departures(episodes=300))
    assert modern.recipe.plan.rate_at(300) == pytest.approx(0.0, abs=1e-12)  # cos(pi) in floating point
    assert modern.changes == ""
    assert modern.recipe.plan.rate_at(150) == pytest.approx(modern.recipe.plan.rate / 2)
    authors = job("cifar-fs/r2d2-64C/authors", 0, tmp_path, Departures(episodes=300))
    assert authors.recipe.plan.rate_at(299) == authors.recipe.plan.rate
    cosine = job("cifar-fs/r2d2-64C/authors", 0, tmp_path, Departures(episodes=300, width="32C", schedule="cosine"))
    assert cosine.recipe.plan.rate_at(300) == pytest.approx(0.0, abs=1e-12)
    assert cosine.changes == "32C in place of 64C; cosine in place of step schedule"


def test_a_cosine_run_cut_by_time_tells_how_far_its_rate_fell(tmp_path: Path) -> None:
    planned = job("cifar-fs/r2d2-64C/modern", 0, tmp_path)
    half = planned.recipe.plan.episodes // 2
    session = Session("now", 1.0, 0, half, {}, {})
    manifest = Manifest(planned.name, planned.recipe, planned.planned, "cifar-fs", "hash", (session,))
    assert manifest.shortfall.endswith("episodes, its learning rate still at 50%")
    assert replace(manifest, finished=True).shortfall == ""


def test_a_cut_respects_several_episodes_a_step(tmp_path: Path) -> None:
    cut = job("cifar-fs/maml-64C-1shot/authors", 0, tmp_path, Departures(episodes=6))
    assert (cut.recipe.plan.episodes, cut.planned) == (8, 240_000)
    seldom = job("cifar-fs/maml-64C-1shot/authors", 0, tmp_path, Departures(validate_every=10))
    assert (seldom.recipe.plan.validate_every, seldom.changes) == (12, "validated every 10 episodes")


def test_some_recipes_may_have_a_cut_of_their_own(tmp_path: Path) -> None:
    cuts = Departures(900, (("maml", 200), ("cifar-fs/maml", 7)), validate_every=0)
    assert job("cifar-fs/maml-64C/paper", 0, tmp_path, cuts).recipe.plan.episodes == 200
    other = job("cifar-fs/protonet-64C/paper", 0, tmp_path, cuts)
    assert (other.recipe.plan.episodes, other.recipe.plan.validate_every, other.changes) == (900, 0, "not validated")


@pytest.mark.slow
def test_a_run_stopped_and_called_again_ends_in_the_same_bits(small: Benchmark, tmp_path: Path) -> None:
    whole, parts = short(tmp_path / "whole"), short(tmp_path / "parts")
    done = train(whole, small)
    first = train(parts, small, seconds=1e-9)
    assert (first.episodes, first.finished) == (1, False)
    assert first.shortfall == "32C in place of 64C; 1 of 120,000 episodes, 100% of the summed learning rate left"
    assert standing(parts) == Standing(1, over=False)
    second = train(parts, small)
    assert standing(parts) == Standing(3, over=True, complete=True)
    assert (second.episodes, second.finished, len(second.sessions)) == (3, True, 2)
    assert [(session.first, session.last) for session in second.sessions] == [(0, 1), (1, 3)]
    assert second.seconds == pytest.approx(sum(session.seconds or 0 for session in second.sessions))
    assert not second.untimed
    assert done.finished
    ends, goes = load_file(whole.folder / LAST), load_file(parts.folder / LAST)
    assert all(value.equal(goes[name]) for name, value in ends.items())
    before = (parts.folder / LAST).stat().st_mtime_ns
    assert train(parts, small).sessions == second.sessions
    assert (parts.folder / LAST).stat().st_mtime_ns == before


def test_the_manifest_holds_what_repeats_the_run(small: Benchmark, tmp_path: Path) -> None:
    run = short(tmp_path, 1, seed=7)
    train(run, small)
    facts = json.loads((run.folder / MANIFEST).read_text())
    assert facts["seed"] == facts["recipe"]["seed"] == 7
    assert (facts["content"], facts["episodes"], facts["planned"]) == ("hash", 1, 120_000)
    assert "1 of 120,000 episodes" in facts["shortfall"]
    assert facts["complete"] is False
    assert {"torch", "handful", "python", "numpy"} <= facts["sessions"][0]["versions"].keys()
    assert facts["sessions"][0]["machine"]["cores"] >= 1


def test_a_run_made_by_hand_is_taken_whatever_its_folder_is_called(small: Benchmark, tmp_path: Path) -> None:
    wanted = short(tmp_path, 1)
    by_hand = Run(tmp_path / "runs" / "mine", wanted.recipe, small)
    by_hand.start()
    for _ in by_hand.train():
        pass
    assert short(tmp_path, 1, seed=1).folder.name != "mine"
    found = short(tmp_path, 1)
    assert found.folder.name == "mine"
    before = (found.folder / LAST).stat().st_mtime_ns
    manifest = train(found, small)
    assert (found.folder / LAST).stat().st_mtime_ns == before
    assert (manifest.episodes, manifest.finished, manifest.untimed) == (1, True, 1)
    assert manifest.sessions[0].versions.keys() == {"handful", "torch"}
    assert minutes_of(manifest) == "not recorded"
    assert train(found, small).sessions == manifest.sessions


def test_a_folder_with_another_recipe_than_its_name_says_is_refused(small: Benchmark, tmp_path: Path) -> None:
    wanted = short(tmp_path, 1)
    Run(wanted.folder, short(tmp_path, 2).recipe, small).start()
    with pytest.raises(CheckpointError, match=r"r2d2-64C--authors-.* recipe"):
        train(wanted, small)


def test_a_run_on_other_data_is_refused(small: Benchmark, tmp_path: Path) -> None:
    run = short(tmp_path, 1)
    train(run, small)
    with pytest.raises(DataError, match="data hash hash, now another hash"):
        train(run, small, content="another hash")


def test_a_run_that_diverges_says_so(small: Benchmark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = TrainingState.advance

    def spoil(state: TrainingState) -> None:
        honest(state)
        state.model.learner.scale.data.fill_(float("nan"))  # type: ignore[union-attr]

    monkeypatch.setattr(TrainingState, "advance", spoil)
    manifest = train(short(tmp_path), small)
    assert not manifest.finished
    assert manifest.failure.startswith("The loss became nan at episode 1")
    assert "became nan" in json.loads((short(tmp_path).folder / MANIFEST).read_text())["shortfall"]


def soon_complete(out: Path, validate_every: int = 0) -> Job:
    """A run of 40 episodes whose rate is a tenth after every second one: little is left after a few."""
    made = job("cifar-fs/r2d2-64C/authors", 0, out, Departures(width="32C"))
    plan = replace(made.recipe.plan, episodes=40, decay=0.1, decay_every=2, validate_every=validate_every)
    quick = replace(made.recipe, way=5, plan=plan, val_episodes=2, val_query=5)
    return replace(made, recipe=quick, planned=40, folder=out / "runs" / "soon")


@pytest.mark.slow
def test_a_run_ends_by_itself_when_it_is_complete_and_goes_on_only_if_asked(small: Benchmark, tmp_path: Path) -> None:
    run = soon_complete(tmp_path)
    assert complete_at(run.recipe.plan) == 6  # of 2.222 rates 0.012 are left after 5 episodes, 0.002 after 6
    done = train(run, small)
    assert (done.episodes, done.finished) == (6, False)
    assert str(done.completion).startswith("complete: 0.")
    assert standing(run) == Standing(6, over=False, complete=True)
    before = (run.folder / LAST).stat().st_mtime_ns
    assert train(run, small).sessions == done.sessions
    assert (run.folder / LAST).stat().st_mtime_ns == before
    assert train_job(run, small, "hash", 0.0, CPU, silent, "end").episodes == 40


@pytest.mark.slow
def test_a_complete_run_ends_with_a_validation(small: Benchmark, tmp_path: Path) -> None:
    done = train(soon_complete(tmp_path, validate_every=4), small)
    assert done.episodes == 8


def test_group_norm_with_a_channel_per_group_is_called_instance_norm(tmp_path: Path) -> None:
    name = "cifar-fs-binary/r2d2-wide/authors"
    small_net = job(name, 0, tmp_path, Departures(width="32C"))
    norms = [each for each in build(small_net.recipe, (3, 32, 32)).modules() if isinstance(each, nn.GroupNorm)]
    alone = any(each.num_groups == each.num_channels for each in norms)
    assert norms
    assert ("instance norm" in small_net.changes) is alone
    assert "instance norm" not in job(name, 0, tmp_path, Departures(width="64C")).changes
    assert small_net.altered
    assert not job(name, 0, tmp_path, Departures(10, validate_every=5)).altered


@pytest.mark.slow
def test_now_trains_nothing_and_keeps_what_the_manifest_says(
    small: Benchmark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = short(tmp_path)
    first = train(run, small, seconds=1e-9)
    before = {path.name: path.read_bytes() for path in run.folder.glob("*.*") if path.suffix != ".lock"}
    assert train_job(run, small, "hash", 0.0, CPU, silent, "now") == first
    facts = json.loads(before[MANIFEST])
    (run.folder / MANIFEST).write_text(json.dumps({**facts, "failure": "The loss became nan at episode 2"}))
    assert train_job(run, small, "hash", 0.0, CPU, silent, "now").failure == "The loss became nan at episode 2"
    assert (run.folder / LAST).read_bytes() == before[LAST]


@pytest.mark.parametrize(
    ("standing", "until", "stops"),
    [
        (Standing(9), "complete", False),
        (Standing(9), "end", False),
        (Standing(9), "now", True),
        (Standing(9, complete=True), "complete", True),
        (Standing(9, complete=True), "end", False),
        (Standing(9, over=True, complete=True), "end", True),
    ],
)
def test_what_is_left_to_train_depends_on_when_to_stop(standing: Standing, until: Until, stops: bool) -> None:
    assert standing.stops(until) is stops
