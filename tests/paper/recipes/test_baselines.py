"""The paper's baselines follow their own papers and code, or the paper's policy where it reran them."""

from __future__ import annotations

import pytest
import torch

from handful.meta.run import build
from handful.paper.recipes import NAMED, named_recipe


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


def test_a_source_on_cifar_fs_says_that_the_original_has_other_data() -> None:
    entry = NAMED["cifar-fs/maml-64C-1shot/authors"]
    assert entry.sources["plan.rate"] == "code of Finn et al., main.py, meta_lr, for miniImageNet"
