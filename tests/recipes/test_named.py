"""Named recipes hold what the paper and its authors' code say, and every recipe survives JSON."""

from __future__ import annotations

import json

import pytest

from handful.errors import CheckpointError, InvalidOptionError
from handful.recipes import NAMED, Recipe, named_recipe, parse_options, recipe_from_json


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


def test_the_authors_code_and_the_text_differ_where_they_are_known_to() -> None:
    text, code = named_recipe("cifar-fs/r2d2-64C/paper"), named_recipe("cifar-fs/r2d2-64C/authors")
    assert text.options == {"scale": 10.0, "learn_lam": True, "lam_per_example": False, "intercept": False}
    assert code.options == {"scale": 10.0}
    assert named_recipe("mini-imagenet/r2d2-64C/authors").options == {"scale": 1e-4}
    assert named_recipe("cifar-fs-binary/r2d2-wide/paper").dropout == 0.4
    assert named_recipe("cifar-fs-binary/r2d2-wide/authors").dropout == 0.3


@pytest.mark.parametrize("name", NAMED)
def test_a_recipe_survives_json(name: str) -> None:
    recipe = NAMED[name].recipe
    assert recipe_from_json(json.loads(json.dumps(recipe.as_json()))) == recipe


def test_unknown_names_and_fields_are_refused() -> None:
    with pytest.raises(InvalidOptionError, match=r"no recipe 'omni'\. Near it: omniglot/"):
        named_recipe("omni")
    with pytest.raises(CheckpointError, match="does not know: flavour"):
        recipe_from_json({**Recipe().as_json(), "flavour": "sweet"})


def test_learner_options_are_read_by_kind() -> None:
    words = ("lam=10", "rate=1e-3", "learn_lam=true", "prior=diagonal")
    assert parse_options(words) == {"lam": 10, "rate": 1e-3, "learn_lam": True, "prior": "diagonal"}
    with pytest.raises(InvalidOptionError, match="name=value"):
        parse_options(("lam",))
