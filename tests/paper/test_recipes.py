"""Named recipes hold what the paper and its authors' code say, and every recipe survives JSON."""

from __future__ import annotations

import json

import pytest
import torch

from handful.errors import CheckpointError, InvalidOptionError
from handful.meta.config import Recipe, recipe_from_json
from handful.meta.run import build, validation_queries
from handful.paper.recipes import NAMED, named_recipe
from handful.paper.recipes.own import SWITCHES, setting_of


def test_episodes_have_the_papers_sizes() -> None:
    sizes = {
        "omniglot/r2d2-wide/authors": (60, 600),
        "cifar-fs/r2d2-64C/paper": (20, 240),
        "mini-imagenet/r2d2-wide/authors": (16, 240),
        "cifar-fs/lrd2-5steps-64C/authors": (10, 200),
        "cifar-fs/lrd2-5steps-64C/paper": (10, 240),
        "cifar-fs-binary/lrd2-wide/authors": (2, 32),
    }
    for name, expected in sizes.items():
        recipe = named_recipe(name)
        assert (recipe.way, recipe.way * recipe.images_per_class) == expected, name


def test_every_episode_fits_its_data_set() -> None:
    for name, entry in NAMED.items():
        recipe, setting = entry.recipe, setting_of(entry.recipe.data)
        assert recipe.way <= setting.classes, name
        assert recipe.max_shot < recipe.images_per_class <= setting.images, name
        for way in recipe.val_ways:
            for shot in recipe.val_shots:
                query = validation_queries(recipe, way, shot, setting.images)
                assert 1 <= query <= setting.images - shot, name


def test_the_authors_code_and_the_text_differ_where_they_are_known_to() -> None:
    text, code = named_recipe("cifar-fs/r2d2-64C/paper"), named_recipe("cifar-fs/r2d2-64C/authors")
    assert text.options == {"scale": 10.0, "learn_lam": True, "lam_per_example": False, "intercept": False}
    assert code.options == {"scale": 10.0, "direct_scale": True}
    assert named_recipe("mini-imagenet/r2d2-64C/authors").options == {"scale": 1e-4, "direct_scale": True}
    assert named_recipe("cifar-fs-binary/r2d2-wide/paper").dropout == 0.4
    assert named_recipe("cifar-fs-binary/r2d2-wide/authors").dropout == 0.3


def test_every_recipe_survives_json() -> None:
    for name, entry in NAMED.items():
        assert recipe_from_json(json.loads(json.dumps(entry.recipe.as_json()))) == entry.recipe, name


def test_variants_of_an_experiment_stand_side_by_side() -> None:
    for stem in ("cifar-fs/r2d2-64C", "omniglot/r2d2-64C"):
        assert all(f"{stem}/{variant}" in NAMED for variant in ("paper", "authors", "modern"))
    ours = {name.rsplit("/", 1)[0] for name in NAMED if "r2d2-wide" in name or "lrd2" in name or "r2d2-lam" in name}
    for stem in ours - {"cifar-fs/lrd2-5steps-64C", "omniglot/lrd2-32C"}:
        assert {f"{stem}/paper", f"{stem}/authors"} <= NAMED.keys()


def test_each_switch_of_the_ablation_changes_one_thing() -> None:
    whole = named_recipe("cifar-fs/r2d2-64C/authors").as_json()
    for name in SWITCHES:
        changed = named_recipe(f"cifar-fs/r2d2-64C-{name}/authors").as_json()
        fields = {key for key in whole if whole[key] != changed[key]}
        assert fields in ({"images_per_class", "way"}, {"max_shot"}, *({key} for key in whole)), name
        assert fields, name


def test_prototypical_networks_follow_their_own_code_or_the_papers_policy() -> None:
    own, policy = named_recipe("cifar-fs/protonet-64C-1shot/authors"), named_recipe("cifar-fs/protonet-64C/paper")
    assert (own.way, own.images_per_class, own.min_shot, own.max_shot, own.plan.rate) == (30, 16, 1, 1, 1e-3)
    assert (policy.way, policy.images_per_class, policy.max_shot, policy.plan.rate) == (20, 12, 9, 5e-3)
    characters = named_recipe("omniglot/protonet-64C-5shot/authors")
    assert (characters.way, characters.images_per_class, characters.width) == (60, 10, "plain-64C")
    starred = named_recipe("cifar-fs/protonet-wide/paper")
    assert (starred.dropout, starred.concatenate, policy.dropout, policy.concatenate) == (0.4, True, 0.0, False)


def test_maml_follows_its_own_paper_and_code() -> None:
    names = ("cifar-fs/maml-64C-5shot/authors", "cifar-fs/maml-64C/paper")
    code, policy = (named_recipe(name) for name in names)
    assert [recipe.options["statistics"] for recipe in (code, policy)] == ["batch", "support"]
    assert [recipe.way * recipe.images_per_class for recipe in (code, policy)] == [100, 240]
    inner = {
        "omniglot/maml-64C-5way-1shot": (1, 3, 0.4, 32, 0.0),
        "omniglot/maml-64C-20way-5shot": (5, 5, 0.1, 16, 0.0),
        "mini-imagenet/maml-32C-1shot": (5, 10, 0.01, 4, 10 / 75),
        "mini-imagenet/maml-32C-5shot": (5, 10, 0.01, 2, 10 * 5 / 75),
        "mini-imagenet-binary/maml-32C-1shot": (5, 10, 0.01, 4, 10 / 30),
    }
    for name, expected in inner.items():
        recipe = named_recipe(f"{name}/authors")
        steps = tuple(recipe.options[key] for key in ("steps", "test_steps", "rate"))
        assert (*steps, recipe.plan.episodes_per_step, pytest.approx(recipe.plan.clip_value)) == expected, name
        assert recipe.plan.episodes == 60_000 * recipe.plan.episodes_per_step


def test_group_norm_stands_in_two_way_problems_of_three_methods_alone() -> None:
    grouped = {name for name, entry in NAMED.items() if entry.recipe.norm != "batch"}
    assert {NAMED[name].recipe.learner for name in grouped} == {"r2d2", "lrd2", "protonet"}
    assert grouped == {
        name
        for name, entry in NAMED.items()
        if "-binary/" in name and entry.recipe.learner in ("r2d2", "lrd2", "protonet")
    }


def test_an_update_of_gnn_has_as_many_graphs_as_the_released_commands() -> None:
    graphs = {
        "mini-imagenet/gnn-net-1shot": 100,
        "mini-imagenet/gnn-net-5shot": 40,
        "omniglot/gnn-net-5way-1shot": 300,
        "omniglot/gnn-net-20way-1shot": 100,
        "cifar-fs-binary/gnn-net-5shot": 40,
    }
    for name, count in graphs.items():
        recipe = named_recipe(f"{name}/authors")
        queries = recipe.way * (recipe.images_per_class - recipe.max_shot)
        assert queries * recipe.plan.episodes_per_step == count, name


def test_pre_trained_features_get_the_ridge_regression_of_the_variant() -> None:
    ridges = {}
    for variant in ("paper", "authors"):
        meta = build(named_recipe(f"cifar-fs/r2d2-64C/{variant}"), (3, 32, 32)).learner
        plain = build(named_recipe(f"cifar-fs/transfer-64C/{variant}"), (3, 32, 32)).learner
        support, query, targets = torch.rand(10, 1152), torch.rand(4, 1152), torch.eye(5).repeat_interleave(2, 0)
        ours, theirs = (each.eval().fit(support, targets)(query).argsort(-1) for each in (meta, plain))
        assert torch.equal(ours, theirs)  # the scale and the shift of all logits may differ, their order may not
        ridges[variant] = meta.lam_per_example, meta.intercept
    assert ridges == {"paper": (False, False), "authors": (True, True)}


def test_the_binary_run_of_ten_steps_is_the_table_3_run() -> None:
    stem = "cifar-fs-binary/lrd2"
    assert named_recipe(f"{stem}-10steps-wide/authors") == named_recipe(f"{stem}-wide/authors")


def test_unknown_names_and_fields_are_refused() -> None:
    with pytest.raises(InvalidOptionError, match=r"'omni'.*omniglot/"):
        named_recipe("omni")
    with pytest.raises(CheckpointError, match="flavour"):
        recipe_from_json({**Recipe().as_json(), "flavour": "sweet"})
