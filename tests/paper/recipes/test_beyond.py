"""Every learner has a recipe that trains it in minutes and one with its originators' hyper-parameters."""

from dataclasses import replace

import torch

from handful.learners.registry import LEARNERS
from handful.meta.train import smoothed
from handful.paper.recipes import NAMED, named_recipe
from handful.paper.recipes.beyond import QUICK


def test_every_learner_has_a_quick_recipe_of_one_shot_problems():
    assert {each.learner for each in QUICK.values()} == set(LEARNERS)
    for name in QUICK:
        recipe = named_recipe(f"omniglot/{name}-32C/quick")
        assert (recipe.width, recipe.min_shot, recipe.max_shot, recipe.plan.schedule) == ("32C", 1, 1, "cosine")


def test_every_learner_of_other_authors_has_a_recipe_of_theirs():
    known = {entry.recipe.learner for name, entry in NAMED.items() if name.endswith(("/authors", "/metaoptnet"))}
    assert known == set(LEARNERS) - {"softmax", "frn"}  # new here; pre-trained by its authors, which no recipe does


def test_the_two_transductive_originals_say_so():
    transductive = {name for name, entry in NAMED.items() if entry.recipe.options.get("statistics") == "batch"}
    own = ("/maml-", "/relation-64C")
    assert transductive == {name for name in NAMED if any(word in name for word in own) and name.endswith("/authors")}
    for name in transductive:
        assert "(transductive)" in NAMED[name].sources["options.statistics"]


def test_starts_that_learn_sooner_are_no_part_of_the_originals():
    for name, entry in NAMED.items():
        if entry.recipe.learner in ("gnn", "snail", "transfer"):
            key = "normalise" if entry.recipe.learner == "transfer" else "vote"
            plain = name.endswith(("/authors", "/paper"))
            assert entry.recipe.options.get(key, True) is not plain, name


def test_models_for_all_shots_do_not_add_up_examples():
    for name, entry in NAMED.items():
        if entry.recipe.learner == "relation" and entry.recipe.min_shot < entry.recipe.max_shot:
            assert entry.recipe.options["average"], name


def test_modern_training_is_the_same_on_both_sets_of_pictures_but_for_its_length_and_the_papers_episodes():
    small, large = (named_recipe(f"{data}/r2d2-64C/modern") for data in ("cifar-fs", "mini-imagenet"))
    assert (large.way, large.images_per_class, large.plan.episodes) == (16, 15, 5_000)
    assert large == replace(
        small, data=large.data, way=16, images_per_class=15, plan=replace(small.plan, episodes=5_000)
    )


def test_label_smoothing_of_metaoptnet_leaves_nine_tenths_to_the_true_class():
    recipe = named_recipe("mini-imagenet/svm-resnet12/metaoptnet")
    targets = smoothed(torch.eye(recipe.way), recipe.plan.label_smoothing)
    torch.testing.assert_close(targets.diagonal(), torch.full((5,), 0.9))
