"""Every learner has a recipe that trains it in minutes and one with its originators' hyper-parameters."""

from handful.learners.registry import BUILDERS
from handful.recipes import NAMED, named_recipe
from handful.recipes.learners import QUICK


def test_every_learner_has_a_quick_recipe_of_one_shot_problems():
    assert {each.learner for each in QUICK.values()} == set(BUILDERS)
    for name in QUICK:
        recipe = named_recipe(f"omniglot/{name}-32C/quick")
        assert (recipe.width, recipe.min_shot, recipe.max_shot, recipe.plan.schedule) == ("32C", 1, 1, "cosine")


def test_every_learner_of_other_authors_has_a_recipe_of_theirs():
    known = {entry.recipe.learner for name, entry in NAMED.items() if name.endswith(("/authors", "/metaoptnet"))}
    assert known == set(BUILDERS) - {"softmax"}  # which is new here


def test_the_transductive_originals_say_so():
    for name in ("omniglot/maml-64C-1shot/authors", "mini-imagenet/meta-lstm-32C-5shot/authors"):
        assert named_recipe(name).options["statistics"] == "batch"
    assert named_recipe("omniglot/maml-32C/quick").options.get("statistics", "support") == "support"
