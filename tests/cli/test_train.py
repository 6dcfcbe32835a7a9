"""`handful train` reads the learner's options and a recipe's values from its flags."""

from __future__ import annotations

import pytest

from handful.cli.main import _parse
from handful.cli.train import Train, parse_options
from handful.errors import InvalidOptionError
from handful.paper.recipes import named_recipe


def test_a_named_recipe_gives_the_flags_their_defaults() -> None:
    name = "cifar-fs/r2d2-64C/authors"
    command = _parse(["train", "--out", "x", "--recipe", name])
    assert isinstance(command, Train)
    assert command._recipe() == named_recipe(name)
    changed = _parse(["train", "--out", "x", "--recipe", name, "--way", "7", "--set", "lam=3"])
    assert isinstance(changed, Train)
    assert changed._recipe().way == 7
    assert changed._recipe().options == {**named_recipe(name).options, "lam": 3}


def test_learner_options_are_read_by_kind() -> None:
    words = ("lam=10", "rate=1e-3", "learn_lam=true", "prior=diagonal")
    assert parse_options(words) == {"lam": 10, "rate": 1e-3, "learn_lam": True, "prior": "diagonal"}
    with pytest.raises(InvalidOptionError, match="name=value"):
        parse_options(("lam",))
