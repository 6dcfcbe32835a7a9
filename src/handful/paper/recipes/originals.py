"""Methods whose numbers the paper quotes rather than reruns, trained as their own authors train them.

Matching networks, Siamese networks, Meta-LSTM and SNAIL have rows in tables 1 and 2; ANIL has none. If a paper gives
no value and no code was released, we use another team's published rerun, or our own choice with its reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from handful.meta.config import Network, Option, Plan, Recipe
from handful.paper.recipes.own import NamedRecipe, as_resized_by_the_authors, cited, setting_of

SHOTS = (1, 5)
WAYS = (5, 20)
"""Numbers of ways of Omniglot's problems."""

COMMON: dict[str, str] = {
    "data": "text, section 4.1 (classes and splits); Omniglot's 1-bit images resized by nearest neighbour, as released "
    "code does",
    "width": "text, section 4.2 (filters)",
    "concatenate": "the original's features are those of its last block",
    "learner": "the row's method",
    **cited("the original trains a model for each number of shots", "min_shot max_shot"),
    **cited("the ways of the row's test", "options.way val_ways"),
    "plan.statistics": "the original passes all images of an update through the network in one batch",
    "val_shots": "the shots of the row's test",
    "val_query": "our choice: 15 per class, as most originals test",
    "plan.validate_every": "our choice: often enough to choose a checkpoint, seldom enough to cost little",
    "plan.patience": "our choice: the original stops at its last iteration, not when a score stalls",
}
"""Sources for every original, unless it has its own."""


def single_shot(
    learner: str, data: str, way: int, shot: int, query: int, width: Network, plan: Plan, options: Mapping[str, Option]
) -> Recipe:
    """A recipe for one number of shots, also used in validation, with 5 validation ways unless training has fewer."""
    return Recipe(
        data=as_resized_by_the_authors(data),
        width=width,
        concatenate=False,
        learner=learner,
        options=options,
        way=way,
        images_per_class=shot + query,
        min_shot=shot,
        max_shot=shot,
        plan=plan,
        val_ways=(min(way, 5),),
        val_shots=(shot,),
        val_query=15,
    )


def constant_plan(steps: int, per_step: int = 1, rate: float = 1e-3, clip: float = 0.0) -> Plan:
    """A plan with this many updates at a constant rate, validated every thousand updates."""
    return Plan(
        episodes=steps * per_step,
        rate=rate,
        schedule="constant",
        episodes_per_step=per_step,
        statistics="step",
        clip=clip,
        validate_every=1_000 * per_step,
        patience=0,
    )


_VINYALS = "paper of Vinyals et al., "
_RAVI = "code of Ravi and Larochelle, config/"
_MATCHING_CODE = f"{_RAVI}baselines/train-matching-net.lua: their rerun"
_MATCHING_SOURCES = {
    "width": f"{_VINYALS}section 4.1.1: four blocks of 64 filters",
    "way": f"{_VINYALS}section 4.1: training matches the test's ways and shots",
    "images_per_class": f"{_RAVI}1-shot-5-class.lua: 15 queries per class",
    "options.scale": f"{_VINYALS}section 2.1.1: a softmax over cosines",
    "plan.episodes": f"{_MATCHING_CODE}, nEpisode",
    "plan.schedule": f"{_MATCHING_CODE} has no schedule",
}


def matching(data: str, way: int, shot: int) -> NamedRecipe:
    """Matching networks: with full context embeddings on miniImageNet and without on Omniglot, like the quoted rows."""
    if data == "omniglot":
        recipe = single_shot("matching", data, way, shot, 15, "plain-64C", constant_plan(75_000), {"scale": 1.0})
        rate = "our choice: no value is published; that of Snell et al. for the same network"
        sources = {**_MATCHING_SOURCES, "plan.rate": rate}
        return NamedRecipe(replace(recipe, val_ways=(way,)), "table 2", COMMON | sources)
    options: dict[str, Option] = {"scale": 1.0, "context": True, "context_steps": 3}
    plan = constant_plan(75_000, rate=1e-4)
    context = f"{_VINYALS}table 2: the row with full context embeddings and no fine-tuning"
    sources = {
        **_MATCHING_SOURCES,
        "options.context": context,
        "options.context_steps": f"{_MATCHING_CODE}, steps",
        "plan.rate": f"{_MATCHING_CODE}, learningRate",
    }
    return NamedRecipe(
        single_shot("matching", data, way, shot, 15, "plain-64C", plan, options), "table 1", COMMON | sources
    )


def siamese() -> NamedRecipe:
    """Koch et al. 2015: pairs, so one model for all ways and shots; table 2 quotes its rerun by Vinyals et al."""
    koch = "paper of Koch et al., section 3"
    plan = Plan(
        optimiser="sgd", rate=1e-2, momentum=0.5, decay=0.99, decay_every=1_000, weight_decay=1e-4, validate_every=1_000
    )
    recipe = single_shot("siamese", "omniglot", 20, 1, 1, "plain-64C", plan, {"hidden": 4096})
    pairs = "our choice: every pair of 20 images with 20 others; true pairs weigh half, as Koch et al. draw them"
    sources = {
        "width": f"{_VINYALS}section 4.1.1: their rerun, on 28x28 images, has their own network",
        **cited(pairs, "way images_per_class"),
        **cited(f"{koch}.2: pairs", "min_shot max_shot"),
        "val_ways": "text, table 2: both numbers of ways",
        "val_shots": "text, table 2: both numbers of shots",
        "options.hidden": f"{koch}.1, figure 4",
        "plan.optimiser": f"{koch}.2: momentum",
        "plan.rate": f"our choice within the range [1e-4, 1e-1] of {koch}.2",
        "plan.momentum": f"{koch}.2: starts at 0.5; ours stays there",
        "plan.decay": f"{koch}.2: one percent per epoch",
        "plan.patience": f"{koch}.2: 20 epochs without a lower validation error",
        "plan.decay_every": "our choice: an epoch of 1,000 updates",
        "plan.weight_decay": f"our choice within the range [0, 0.1] of {koch}.2",
    }
    return NamedRecipe(replace(recipe, val_ways=WAYS, val_shots=SHOTS), "table 2", COMMON | sources)


def meta_lstm(shot: int) -> NamedRecipe:
    """Ravi and Larochelle 2017 on miniImageNet, from their released configuration."""
    config = f"{_RAVI}lstm/train-imagenet-{shot}shot.lua"
    code = "code of Ravi and Larochelle, model/lstm/"
    options: dict[str, Option] = {
        "way": 5,
        "steps": {1: 12, 5: 8}[shot],
        "hidden": 20,
        "rate": 0.011,
        "keep": 0.989,
        "feedback": "logit",
        "divide_twice": True,
        "statistics": "batch-in-training",
    }
    plan = constant_plan({1: 75_000, 5: 50_000}[shot], clip=0.25)
    recipe = single_shot("meta-lstm", "mini-imagenet", 5, shot, 15, "plain-32C", plan, options)
    sources = {
        "width": "code of Ravi and Larochelle, model/lstm-classifier.lua",
        "norm_start": "Torch 7's SpatialBatchNormalization",
        "way": f"{_RAVI}{shot}-shot-5-class.lua",
        "images_per_class": f"{_RAVI}{shot}-shot-5-class.lua: 15 queries per class",
        "val_query": f"{_RAVI}{shot}-shot-5-class.lua",
        "val_episodes": f"{config}, nValidationEpisode",
        "val_fresh": f"{code}train-lstm.lua: validation episodes are drawn each time",
        "options.steps": f"{config}, nEpochs of one batch each",
        "options.hidden": f"{code}meta-learner-lstm.lua",
        "options.rate": f"{code}meta-learner-lstm.lua: sigma(-4.5), the middle of its start",
        "options.keep": f"{code}meta-learner-lstm.lua: sigma(4.5), the middle of its start",
        "options.feedback": f"{code}lstm-helper.lua",
        "options.divide_twice": f"{code}meta-learner-lstm.lua: a mean loss, and gradParameters:div",
        "options.statistics": f"{code}meta-learner-lstm.lua: running averages of the support at test time",
        "plan.episodes": f"{config}, nEpisode",
        "plan.rate": f"{config}, learningRate",
        "plan.schedule": f"{config} has no schedule",
        "plan.clip": f"{config}, maxGradNorm",
        "plan.validate_every": f"{config}, printPer",
    }
    recipe = replace(recipe, norm_start="uniform", val_episodes=100, val_fresh=True)
    return NamedRecipe(recipe, "table 1", COMMON | sources)


_MISHRA = "paper of Mishra et al., "
_RERUN = "reimplementation by eambutu, snail-pytorch, src/train.py; no code was released"


def snail(data: str, way: int, width: Network) -> NamedRecipe:
    """SNAIL: one model for 1 to 5 shots, but for one number of ways."""
    options: dict[str, Option] = {"way": way, "shot": 5, "size": 0, "vote": False, "first_dilation": 2}
    recipe = single_shot("snail", data, way, 5, 1, width, constant_plan(20_000, 32, rate=1e-4), options)
    shots = "text, section 4.2: SNAIL trains with a random number of shots; up to 5, the most that is tested"
    sources = {
        "width": f"{_MISHRA}section 5.1: the network of Vinyals et al. on Omniglot, a ResNet or a shallow one (32C) on "
        "miniImageNet",
        "dropout": f"{_MISHRA}appendix: 0.9 read as the share that is kept",
        "way": f"{_MISHRA}section 5.1: the test's",
        "images_per_class": "our choice: 6 - K queries per class; the original asks one query per sequence",
        **cited(shots, "min_shot max_shot"),
        "options.shot": f"{_MISHRA}section 5.1: dilations grow until they reach over all N K + 1 positions",
        "options.size": f"{_MISHRA}section 5.1: the network's features as they are",
        "options.vote": "our choice: the paper names no special start, so layers start as PyTorch starts them",
        "options.first_dilation": f"{_MISHRA}section 3.1: dilations 2^i from i = 1 on, as the pseudo-code runs",
        "plan.rate": _RERUN,
        "plan.schedule": f"{_RERUN}: constant",
        "plan.episodes_per_step": _RERUN,
        "plan.episodes": "our choice: 20,000 updates; the paper names no number",
    }
    dropout = 0.1 if width == "snail-resnet" else 0.0
    recipe = replace(recipe, min_shot=1, val_ways=(way,), val_shots=SHOTS, dropout=dropout)
    return NamedRecipe(recipe, setting_of(data).table, COMMON | sources)


def anil(shot: int) -> NamedRecipe:
    """Raghu et al. 2020: MAML's settings, with only the last layer adapted."""
    raghu = "paper of Raghu et al.: the settings of MAML, of Finn et al."
    options: dict[str, Option] = {"way": 5, "steps": 5, "test_steps": 10, "rate": 0.01}
    recipe = single_shot("anil", "mini-imagenet", 5, shot, 15, "plain-32C", constant_plan(30_000, 4), options)
    fields = "width way images_per_class options.steps options.test_steps options.rate plan.episodes plan.rate"
    sources = cited(raghu, f"{fields} plan.schedule plan.episodes_per_step")
    sources["plan.statistics"] = "our choice: one pass for all episodes of an update is faster"
    return NamedRecipe(recipe, "as its authors train it", COMMON | sources)


def originals() -> dict[str, NamedRecipe]:
    """The quoted rows of tables 1 and 2, and ANIL."""
    found = {
        "omniglot/siamese-64C/authors": siamese(),
        "mini-imagenet/snail-resnet/authors": snail("mini-imagenet", 5, "snail-resnet"),
        "mini-imagenet/snail-32C/authors": snail("mini-imagenet", 5, "plain-32C"),
    }
    for way in WAYS:
        found[f"omniglot/snail-64C-{way}way/authors"] = snail("omniglot", way, "plain-64C")
    for shot in SHOTS:
        found |= {
            f"mini-imagenet/matching-fce-64C-{shot}shot/authors": matching("mini-imagenet", 5, shot),
            f"mini-imagenet/meta-lstm-32C-{shot}shot/authors": meta_lstm(shot),
            f"mini-imagenet/anil-32C-{shot}shot/authors": anil(shot),
        }
        for way in WAYS:
            found[f"omniglot/matching-64C-{way}way-{shot}shot/authors"] = matching("omniglot", way, shot)
    return found
