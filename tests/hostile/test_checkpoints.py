"""A checkpoint is taken as a whole or refused: nothing unchecked reaches an optimiser, a builder or the disk."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from handful.errors import CheckpointError
from handful.meta.checkpoint import read_checkpoint, write_checkpoint
from handful.meta.config import Plan, Recipe, recipe_from_json
from handful.meta.lock import held
from handful.meta.manifest import MANIFEST, read_sessions
from handful.meta.model import FewShotModel
from handful.meta.run import LAST, LOG, RECIPE, Run, build, load_model, read_recipe
from tests.hostile.runs import RECIPE_OF_A_TINY_RUN, tiny_run

Tensors = dict[str, Tensor]
Facts = dict[str, Any]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run of two episodes, with averages."""
    folder = tmp_path_factory.mktemp("run")
    tiny_run(folder, episodes=2)
    return folder


def _copied(run: Path, to: Path, change: Callable[[Tensors, Facts], None]) -> Path:
    tensors, facts = read_checkpoint(run / LAST)
    change(tensors, facts)
    write_checkpoint(to / LAST, tensors, facts)
    (to / RECIPE).write_bytes((run / RECIPE).read_bytes())
    return to


def _resumed(folder: Path) -> Run:
    from tests.hostile.runs import tiny_benchmark

    run = Run(folder, read_recipe(folder), tiny_benchmark())
    run.resume()
    return run


FIRST = "embedding.blocks.0.0.weight"


def _cut(tensors: Tensors, facts: Facts) -> None:
    tensors[f"optimiser.exp_avg.{FIRST}"] = tensors[f"optimiser.exp_avg.{FIRST}"].flatten()[:1]


def _drop(tensors: Tensors, facts: Facts) -> None:
    for name in [name for name in tensors if name.startswith("optimiser.")]:
        del tensors[name]


def _double(tensors: Tensors, facts: Facts) -> None:
    tensors[f"optimiser.exp_avg_sq.{FIRST}"] = tensors[f"optimiser.exp_avg_sq.{FIRST}"].double()


def _long_step(tensors: Tensors, facts: Facts) -> None:
    tensors[f"optimiser.step.{FIRST}"] = torch.zeros(7)


def _extra(tensors: Tensors, facts: Facts) -> None:
    tensors[f"optimiser.max_exp_avg_sq.{FIRST}"] = torch.zeros(1)


def _average(tensors: Tensors, facts: Facts) -> None:
    tensors[f"average.{FIRST}"] = tensors[f"average.{FIRST}"][:1]


def _no_average(tensors: Tensors, facts: Facts) -> None:
    del tensors[f"average.{FIRST}"]


def _negative(tensors: Tensors, facts: Facts) -> None:
    facts["training"]["episode"] = -5


def _text(tensors: Tensors, facts: Facts) -> None:
    facts["training"]["best"] = {"mean": "high"}


@pytest.mark.parametrize(
    "change",
    [_cut, _drop, _double, _long_step, _extra, _average, _no_average, _negative, _text],
    ids=lambda f: f.__name__,
)
def test_a_state_whose_tensors_are_not_exactly_the_expected_ones_is_refused(
    trained: Path, tmp_path: Path, change: Callable[[Tensors, Facts], None]
) -> None:
    folder = _copied(trained, tmp_path, change)
    with pytest.raises(CheckpointError, match="training state"):
        _resumed(folder)


@pytest.mark.parametrize("name", [LOG, "best-mean.safetensors", MANIFEST, ".lock"])
def test_a_link_that_leads_out_of_a_run_is_refused(name: str, trained: Path, tmp_path: Path) -> None:
    """The folder may come from somebody else, and training writes to all of these."""
    folder, victim = tmp_path / "run", tmp_path / "mine"
    folder.mkdir()
    victim.write_text("precious")
    (folder / name).symlink_to(victim)
    with pytest.raises(CheckpointError, match="outside of the folder"), held(_copied(trained, folder, lambda *_: None)):
        raise AssertionError
    assert victim.read_text() == "precious"


def test_a_log_that_is_no_file_is_not_read(trained: Path, tmp_path: Path) -> None:
    folder = _copied(trained, tmp_path, lambda *_: None)
    os.mkfifo(folder / LOG)
    with pytest.raises(CheckpointError, match=r"log\.jsonl is not a regular file"):
        _resumed(folder)


def test_a_whole_state_is_resumed(trained: Path, tmp_path: Path) -> None:
    assert _resumed(_copied(trained, tmp_path, lambda tensors, facts: None)).state.episode == 2


def test_a_checkpoint_of_another_recipe_is_neither_resumed_nor_evaluated(trained: Path, tmp_path: Path) -> None:
    folder = _copied(trained, tmp_path, lambda tensors, facts: facts["recipe"].update(seed=1))
    with pytest.raises(CheckpointError, match=r"last\.safetensors .*recipe\.json"):
        _resumed(folder)
    with pytest.raises(CheckpointError, match=r"last\.safetensors .*recipe\.json"):
        load_model(folder, "last")
    assert load_model(folder / LAST)  # a file by its own name is taken as it is


@pytest.mark.parametrize(
    "options",
    [
        {"learner": "gnn", "options": {"hidden": 10**6}},
        {"learner": "siamese", "options": {"hidden": 10_000}},
        {"learner": "gnn", "options": {"layers": 10**9}},
        {"learner": "maml", "options": {"way": 10**12}},
        {"learner": "nobody"},
        {"width": "1000000C"},
        {"dropout": "much"},
        {"plan": {"episodes": 1.5}},
        {"plan": []},
        {"val_shots": 5},
    ],
    ids=str,
)
def test_a_recipe_of_absurd_sizes_or_types_is_refused_before_anything_is_built(
    trained: Path, tmp_path: Path, options: dict[str, Any]
) -> None:
    folder = _copied(trained, tmp_path, lambda tensors, facts: facts["recipe"].update(options))
    with pytest.raises(CheckpointError):
        load_model(folder / LAST)


def test_shapes_are_compared_before_anything_of_their_size_is_built(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = {"learner": "siamese", "options": {"hidden": 10_000}}
    folder, devices = _copied(trained, tmp_path, lambda tensors, facts: facts["recipe"].update(large)), []

    def noting(*args: Any) -> FewShotModel:
        devices.append(torch.get_default_device().type)
        return build(*args)

    monkeypatch.setattr("handful.meta.run.build", noting)
    with pytest.raises(CheckpointError, match="not hold a complete model"):
        load_model(folder / LAST)
    assert devices == ["meta"]


@pytest.mark.parametrize(
    "shape", [[1, 10**6, 10**6], [1, 28], [0, 28, 28], [1, 28, "28"], None, [1, 2**62, 4]], ids=str
)
def test_an_image_shape_that_cannot_be_is_refused(trained: Path, tmp_path: Path, shape: Any) -> None:
    folder = _copied(trained, tmp_path, lambda tensors, facts: facts.update(image_shape=shape))
    with pytest.raises(CheckpointError, match=r"last\.safetensors"):
        load_model(folder / LAST)


def test_every_recipe_survives_the_way_to_a_file_and_back() -> None:
    recipe = replace(RECIPE_OF_A_TINY_RUN, options={"lam": 1e9}, augment=("flip",), val_ways=(5, 20))
    assert recipe_from_json(json.loads(json.dumps(recipe.as_json()))) == recipe
    assert recipe_from_json(recipe.as_json()) == recipe
    assert recipe_from_json({}) == Recipe(plan=Plan())


@pytest.mark.parametrize(
    "text", [b"", b"\xff", b"[" * 9999, b"[]", b'{"recipe": 3}', b'{"recipe": {"plan": {"rate": 1e999}}}', b"null"]
)
def test_a_damaged_recipe_is_one_clear_error(tmp_path: Path, text: bytes) -> None:
    (tmp_path / RECIPE).write_bytes(text)
    with pytest.raises(CheckpointError):
        read_recipe(tmp_path)


@pytest.mark.parametrize(
    "text", [b"", b"\xff", b"{}", b'{"content": "a", "sessions": 4}', b'{"content": "a", "sessions": [{"first": "x"}]}']
)
def test_a_damaged_manifest_is_one_clear_error(tmp_path: Path, text: bytes) -> None:
    (tmp_path / MANIFEST).write_bytes(text)
    with pytest.raises(CheckpointError, match=r"manifest\.json"):
        read_sessions(tmp_path, "a")
