"""R2-D2 and LR-D2 by the text and by the authors' code: the paper's episodes, and one switch at a time."""

from __future__ import annotations

from handful.meta.config import Recipe
from handful.paper.recipes import named_recipe
from handful.paper.recipes.own import REPRODUCING, SWITCHES, cited, setting_of, with_options


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
    assert code.options == {"scale": 10.0, "direct_scale": True}
    assert named_recipe("mini-imagenet/r2d2-64C/authors").options == {"scale": 1e-4, "direct_scale": True}
    assert named_recipe("cifar-fs-binary/r2d2-wide/paper").dropout == 0.4
    assert named_recipe("cifar-fs-binary/r2d2-wide/authors").dropout == 0.3


def test_each_switch_of_the_ablation_changes_one_thing() -> None:
    whole = named_recipe("cifar-fs/r2d2-64C/authors").as_json()
    for name in SWITCHES:
        changed = named_recipe(f"cifar-fs/r2d2-64C-{name}/authors").as_json()
        fields = {key for key in whole if whole[key] != changed[key]}
        assert fields in ({"images_per_class", "way"}, {"max_shot"}, *({key} for key in whole)), name
        assert fields, name


def test_settings_hold_however_the_images_were_resized() -> None:
    assert setting_of("omniglot-nearest") is setting_of("omniglot")
    assert [setting_of(data).size for data in ("omniglot", "cifar-fs", "mini-imagenet")] == [600, 240, 240]


def test_the_authors_code_resizes_omniglot_by_nearest_neighbour_and_validates_after_every_epoch() -> None:
    for variant in REPRODUCING:
        assert named_recipe(f"omniglot/r2d2-64C/{variant}").data == "omniglot-nearest"
        assert named_recipe(f"cifar-fs/r2d2-64C/{variant}").data == "cifar-fs"
    every = {variant: named_recipe(f"cifar-fs/r2d2-64C/{variant}").plan.validate_every for variant in REPRODUCING}
    assert every == {"paper": 500, "authors": 100}


def test_options_are_added_to_a_recipe_and_replace_those_of_the_same_name() -> None:
    base = Recipe(options={"lam": 1.0, "scale": 2.0})
    changed = with_options(lam=3.0, learn_lam=True)(base)
    assert changed.options == {"lam": 3.0, "scale": 2.0, "learn_lam": True}
    assert base.options == {"lam": 1.0, "scale": 2.0}


def test_one_source_is_cited_for_several_fields() -> None:
    assert cited("text", "way plan.rate") == {"way": "text", "plan.rate": "text"}
