"""Methods that the paper quotes, as their own authors train them: one model per number of shots, at one rate."""

from __future__ import annotations

from handful.paper.recipes.originals import SHOTS, anil, constant_plan, matching, meta_lstm, originals, siamese, snail


def test_a_constant_plan_counts_updates_and_never_stops_early() -> None:
    plan = constant_plan(75_000, per_step=4, rate=1e-4)
    assert (plan.episodes, plan.episodes_per_step, plan.validate_every, plan.patience) == (300_000, 4, 4_000, 0)
    assert {plan.rate_at(episode) for episode in (0, 150_000, 299_999)} == {1e-4}


def test_a_model_is_trained_and_validated_with_the_shots_of_its_test() -> None:
    for shot in SHOTS:
        for entry in (matching("mini-imagenet", 5, shot), meta_lstm(shot), anil(shot)):
            recipe = entry.recipe
            assert (recipe.min_shot, recipe.max_shot, recipe.val_shots) == (shot, shot, (shot,))
            assert recipe.images_per_class > shot


def test_siamese_networks_learn_from_pairs_and_serve_all_columns() -> None:
    recipe = siamese().recipe
    assert (recipe.min_shot, recipe.max_shot, recipe.images_per_class) == (1, 1, 2)
    assert (recipe.val_ways, recipe.val_shots) == ((5, 20), (1, 5))
    assert (recipe.plan.optimiser, recipe.plan.momentum) == ("sgd", 0.5)


def test_matching_networks_have_context_on_mini_imagenet_alone() -> None:
    assert matching("mini-imagenet", 5, 1).recipe.options == {"scale": 1.0, "context": True, "context_steps": 3}
    characters = matching("omniglot", 20, 5).recipe
    assert characters.options == {"scale": 1.0}
    assert (characters.val_ways, characters.data) == ((20,), "omniglot-nearest")


def test_meta_lstm_takes_the_steps_of_its_released_configurations() -> None:
    assert [meta_lstm(shot).recipe.options["steps"] for shot in SHOTS] == [12, 8]
    assert {meta_lstm(shot).recipe.options["feedback"] for shot in SHOTS} == {"logit"}


def test_a_learner_of_fixed_way_is_validated_with_as_many_classes() -> None:
    for name, entry in originals().items():
        way = entry.recipe.options.get("way")
        assert way is None or entry.recipe.val_ways == (way,), name
    assert snail("omniglot", 20, "plain-64C").recipe.options["way"] == 20
