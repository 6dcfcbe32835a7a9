"""The methods that the paper reran for comparison, and its pre-trained baseline of appendix A.

`authors` trains a method as its own authors' released code does: a model for each number of shots, with its network,
ways, rates and schedule, and with the batch norm of that code, which makes MAML and RelationNet transductive. `paper`
trains it with the text's policy for R2-D2, as far as the method allows: one model for all shots, S images per episode,
the same schedule, inductive. `modern` adds to a method's own recipe an initialisation that learns sooner. A starred row
of table 1 is the paper's wide net with dropout. On CIFAR-FS, which is newer than the methods, they keep their settings
for miniImageNet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Literal

from handful.meta.config import Network, Option, Plan, Recipe
from handful.paper.recipes.originals import COMMON, SHOTS, WAYS, constant_plan, single_shot
from handful.paper.recipes.own import (
    BINARY,
    LITERAL,
    PICTURES,
    REPRODUCING,
    SETTINGS,
    TEXT,
    NamedRecipe,
    Variant,
    binary,
    cited,
    multiclass,
    setting_of,
)
from handful.paper.recipes.own import sources as ours_sources

Sources = dict[str, str]
Label = Literal["32C", "64C", "net", "wide"]
"""The network in a recipe's name: by its filters, `net` for the method's own if they differ, or `wide`."""

_STARRED: Sources = {
    "width": f"{TEXT}: the capacity of starred baselines matches R2-D2's",
    "dropout": f"{TEXT}: dropout on the last two layers; probabilities as for R2-D2",
    "concatenate": f"{TEXT}: the architecture is R2-D2's",
}


@dataclass(frozen=True)
class Method:
    """A baseline: its recipe and sources by data set, ways and shots, and what the paper's policy changes."""

    own: Callable[[str, int, int], tuple[Recipe, Sources]]
    networks: Mapping[Label, Network]
    fixed_way: bool = False
    """Whether it only works with one number of ways, which must then be that of the test."""
    policy: Mapping[str, Option] = field(default_factory=dict)
    """Options for the paper's policy: those that close a leak of the original, or let one model serve all shots."""
    policy_sources: Mapping[str, str] = field(default_factory=dict)


def _protonet(data: str, way: int, shot: int) -> tuple[Recipe, Sources]:
    """Snell et al. 2017; with the text's changes in two-way problems."""
    code, paper = "code of Snell et al., scripts/train/few_shot/run_train.py", "paper of Snell et al., section 3"
    omniglot, two_way = data == "omniglot", way == 2
    ways = 60 if omniglot else 2 if two_way else {1: 30, 5: 20}[shot]
    plan = Plan(episodes=1_000_000, rate=1e-3, validate_every=100)
    recipe = single_shot("protonet", data, ways, shot, 5 if omniglot else 15, "plain-64C", plan, {})
    recipe = replace(recipe, norm_start="uniform", val_episodes=100, val_fresh=True)
    sources = {
        "width": "code of Snell et al., protonets/models/few_shot.py",
        "norm_start": "PyTorch 0.4, for which README.md of their code is written",
        "way": f"{code}, data.way" if omniglot else f"{paper}.2",
        "images_per_class": f"{code}, data.query" if omniglot else f"{paper}.2: 15 queries per class",
        "val_query": f"{code}, data.test_query",
        "val_episodes": f"{code}, data.test_episodes",
        "val_fresh": "code of Snell et al., protonets/data/base.py: validation episodes are drawn each time",
        "plan.episodes": f"{code}, train.epochs x data.train_episodes",
        "plan.optimiser": f"{code}, train.optim_method",
        "plan.rate": f"{code}, train.learning_rate",
        "plan.decay": "code of Snell et al., scripts/train/few_shot/train.py: StepLR halves the rate",
        "plan.decay_every": f"{code}, train.decay_every: 20 epochs of 100 episodes",
        "plan.patience": f"{code}, train.patience: 200 epochs",
        "plan.validate_every": f"{code}, data.train_episodes: an epoch has 100 episodes",
    }
    if not two_way:
        return recipe, sources
    sources |= {
        "norm": f"{TEXT}: group norm; code of the authors, fewshots/utils/norm.py",
        "way": f"{TEXT}: two-way training, without more ways than at test time",
        "plan.decay": f"{TEXT}: annealing by a factor of 0.99",
        "plan.patience": "code of the authors, scripts/train/experiments.sh, train.patience of its two-way runs",
    }
    slower = replace(plan, decay=0.99, patience=50_000)
    return replace(recipe, norm="group-unbiased", norm_start="ones", plan=slower), sources


_MAML_CLIP = 10.0


def _maml(data: str, way: int, shot: int) -> tuple[Recipe, Sources]:
    """Finn et al. 2017: from appendix A.1 of the paper, and from the released code if they differ or it says more.

    The code sums the losses of all queries and divides by K; ours is their mean, so the limit for each entry of the
    gradient shrinks by K / (N Q). Adam's steps are the same for both.
    """
    code, paper = "code of Finn et al., ", "paper of Finn et al., appendix A.1"
    omniglot = data == "omniglot"
    few = omniglot and way == 5
    query = shot if omniglot else 15
    per_step = {5: 32, 20: 16}[way] if omniglot else {1: 4, 5: 2}[shot]
    plan = constant_plan(60_000, per_step)
    options: dict[str, Option] = {
        "way": way,
        "steps": 1 if few else 5,
        "test_steps": 3 if few else 5 if omniglot else 10,
        "rate": 0.4 if few else 0.1 if omniglot else 0.01,
        "sum_over_classes": True,
        "keep_norms": True,
        "statistics": "batch",
    }
    if not omniglot:
        plan = replace(plan, clip_value=_MAML_CLIP * shot / (way * query))
    width: Network = "maml-64C-strided" if omniglot else "maml-32C"
    sources = {
        "width": f"{code}utils.py and maml.py: conv_block, forward_conv",
        **cited(f"{code}main.py, num_classes", "way val_ways"),
        "images_per_class": f"{code}main.py: {'K queries' if omniglot else '15 queries'} per class",
        **cited(paper, "options.steps options.test_steps options.rate plan.episodes_per_step"),
        "options.sum_over_classes": f"{code}utils.py, xent: a vector of losses divided by K",
        "options.keep_norms": f"{code}maml.py: batch norm's shifts are no part of `weights`",
        "options.statistics": f"{code}utils.py, normalize: batch norm stays in training mode (transductive)",
        "plan.episodes": f"{paper}: 60,000 iterations",
        "plan.rate": f"{code}main.py, meta_lr",
        "plan.schedule": f"{code}maml.py: Adam at one rate",
        "plan.validate_every": f"{code}main.py, SAVE_INTERVAL",
        "plan.statistics": "no effect: MAML normalises each episode by itself",
        "plan.clip_value": f"{code}maml.py: +-10 of a loss that is N Q / K times ours",
    }
    recipe = single_shot("maml", data, way, shot, query, width, plan, options)
    return replace(recipe, val_ways=(way,)), sources


def _relation(data: str, way: int, shot: int) -> tuple[Recipe, Sources]:
    """Sung et al. 2018, from the script for miniImageNet."""
    code = f"code of Sung et al., miniimagenet/miniimagenet_train_{'one' if shot == 1 else 'few'}_shot.py"
    plan = Plan(episodes=500_000, rate=1e-3, decay_every=100_000, clip=0.5, validate_every=5_000, patience=0)
    options: dict[str, Option] = {
        "padding": 0 if data == "mini-imagenet" else 1,
        "start": "original",
        "statistics": "batch",
    }
    small = "our choice: without padding, maps of 32-pixel images vanish"
    sources = {
        "width": f"{code}, CNNEncoder",
        "way": f"{code}, class_num",
        "images_per_class": f"{code}, batch_num_per_class (README.md: 15 and 10 queries)",
        "options.padding": f"{code}, RelationNetwork" if data == "mini-imagenet" else small,
        "options.start": f"{code}, weights_init",
        "options.statistics": f"{code}: networks are never put into evaluation mode (transductive)",
        "plan.episodes": f"{code}, episode",
        "plan.rate": f"{code}, learning_rate",
        "plan.decay_every": f"{code}, StepLR",
        "plan.clip": f"{code}: 0.5 for the embedding and for the relation module; ours for both together",
        "plan.validate_every": f"{code}: every 5,000 episodes",
    }
    return single_shot("relation", data, way, shot, {1: 15, 5: 10}[shot], "relation-net", plan, options), sources


_GNN_RUNS = {
    ("mini", 5, 1): (100, 80_000),
    ("mini", 5, 5): (40, 90_000),
    ("omniglot", 5, 1): (300, 100_000),
    ("omniglot", 5, 5): (100, 80_000),
    ("omniglot", 20, 1): (100, 80_000),
    ("omniglot", 20, 5): (100, 80_000),
}
"""Graphs per update and number of updates, from README.md of their code, which has no 20-way 5-shot run."""


def _gnn(data: str, way: int, shot: int) -> tuple[Recipe, Sources]:
    """Garcia and Bruna 2018. Their episodes have one query and ours have one per class, so ours are fewer."""
    code, readme = "code of Garcia and Bruna, main.py", "code of Garcia and Bruna, README.md"
    omniglot = data == "omniglot"
    kind = "omniglot" if omniglot else "mini"
    graphs, updates = _GNN_RUNS[kind, way if omniglot else 5, shot]
    per_step = graphs // way
    plan = Plan(
        episodes=updates * per_step,
        optimiser="adam" if omniglot else "adam-l2",
        rate=1e-3,
        decay_every=(10_000 if omniglot else 15_000) * per_step,
        weight_decay=0.0 if omniglot else 1e-6,
        episodes_per_step=per_step,
        statistics="step",
        validate_every=2_000 * per_step,
        patience=0,
    )
    options: dict[str, Option] = {
        "way": way,
        "size": 0,
        "vote": False,
        "query_label": "zeros",
        "form": "omniglot" if omniglot else "mini-imagenet",
    }
    models = "code of Garcia and Bruna, models/"
    one = f"our choice: one query per class, and as many graphs per update as {readme}"
    unknown = "; our choice for 20-way 5-shot: as 20-way 1-shot" if (way, shot) == (20, 5) else ""
    sources = {
        "width": f"{models}models.py",
        "norm_start": "PyTorch before 1.2, the only one when their code was released",
        "way": f"{readme}, train_N_way",
        "images_per_class": one,
        "val_ways": f"{readme}, test_N_way",
        "options.size": f"{models}models.py: the embedding's own linear layer ends it",
        "options.vote": f"{models}gnn_iclr.py: layers start as PyTorch starts them",
        "options.query_label": "code of Garcia and Bruna, models/models.py: zeros (their text: uniform)",
        "options.form": f"{models}gnn_iclr.py",
        "plan.episodes": f"{readme}, iterations{unknown}",
        "plan.rate": f"{code}, lr",
        "plan.decay_every": f"{readme}, dec_lr",
        "plan.optimiser": f"{code}: weight decay as part of Adam's gradient",
        "plan.weight_decay": f"{code}: on miniImageNet alone",
        "plan.episodes_per_step": one + unknown,
        "plan.validate_every": f"{code}, test_interval",
    }
    recipe = single_shot("gnn", data, way, shot, 1, "gnn-net", plan, options)
    return replace(recipe, norm_start="uniform", val_ways=(way,)), sources


_OTHER_SHOTS = "our choice: lets one model serve all shots"
METHODS = {
    "protonet": Method(_protonet, {"64C": "plain-64C", "wide": "wide"}),
    "maml": Method(
        _maml,
        {"32C": "maml-32C", "64C": "maml-64C", "wide": "wide"},
        fixed_way=True,
        policy={"statistics": "support"},
        policy_sources={"options.statistics": "our choice: the support's statistics, so that no query sees another"},
    ),
    "relation": Method(
        _relation,
        {"64C": "relation-net"},
        policy={"average": True, "statistics": "running"},
        policy_sources={
            "options.average": f"{_OTHER_SHOTS}: the mean of a class in place of its sum",
            "options.statistics": "our choice: running averages at test time, so that no query sees another",
        },
    ),
    "gnn": Method(_gnn, {"net": "gnn-net", "wide": "wide"}, fixed_way=True),
}


def own_width(method: str, data: str) -> Label:
    """The label of the method's own network in the name of a recipe."""
    if method == "gnn":
        return "net"
    return "32C" if method == "maml" and data == "mini-imagenet" else "64C"


def _on_network(recipe: Recipe, sources: Sources, method: str, label: Label) -> tuple[Recipe, Sources]:
    """The recipe with the network of this label; the wide one has dropout and the features of both blocks."""
    width = METHODS[method].networks[label]
    if label != "wide":
        widened = {"width": f"{TEXT}: 64 filters, which become 32 for miniImageNet"} if label == "64C" else {}
        return replace(recipe, width=width), sources | (widened if method == "maml" else {})
    reduced = {"size": 128} if method == "gnn" else {}
    starred = replace(
        recipe,
        width=width,
        dropout=setting_of(recipe.data).dropout,
        concatenate=True,
        options={**recipe.options, **reduced},
    )
    last = {"options.size": f"{TEXT}: a fully connected layer; as many features as the original's"} if reduced else {}
    return starred, sources | _STARRED | last


def original(method: str, data: str, way: int, shot: int, label: Label) -> NamedRecipe:
    """A baseline as its own authors train it, for one number of ways and shots at test time."""
    recipe, sources = METHODS[method].own(data, way, shot)
    if data == "cifar-fs":
        sources = {name: f"{source}, for miniImageNet" for name, source in sources.items()}
    if way == 2 and method != "protonet":
        sources |= cited("text, table 3: two-way problems", "way options.way")
    if data != "omniglot":
        recipe, sources = _on_network(recipe, sources, method, label)
    about = "table 3" if way == 2 else SETTINGS[data].table
    return NamedRecipe(recipe, about, {**COMMON, **sources})


def reran(method: str, data: str, label: Label, *, two_way: bool = False) -> NamedRecipe:
    """A baseline trained as the text trains R2-D2, but with its own network and, if necessary, five-way."""
    spec = METHODS[method]
    base = binary(data, "r2d2", "paper") if two_way else multiclass(data, "64C", "paper")
    own, own_sources = spec.own(data, 2 if two_way else 5, 1)
    own, own_sources = (own, own_sources) if data == "omniglot" else _on_network(own, own_sources, method, label)
    way = own.way if spec.fixed_way else base.way
    recipe = replace(
        base,
        width=own.width,
        norm="group" if two_way and method == "protonet" else "batch",
        dropout=own.dropout,
        concatenate=own.concatenate,
        learner=own.learner,
        options={**own.options, **spec.policy},
        way=way,
        images_per_class=base.way * base.images_per_class // way,
    )
    kept = ("width", "dropout", "concatenate", *(name for name in own_sources if name.startswith("options.")))
    mine = {name: source for name, source in {**COMMON, **own_sources}.items() if name in kept or name == "options.way"}
    fixed = {"way": "the method has outputs for one number of ways"} if spec.fixed_way else {}
    named = {"learner": "the row's method", "images_per_class": f"{TEXT}: S / ways", **fixed}
    about = "table 3" if two_way else SETTINGS[data].table
    return NamedRecipe(recipe, about, {**ours_sources(base, "paper"), **mine, **named, **spec.policy_sources})


def baselines() -> dict[str, NamedRecipe]:
    """The reran rows of tables 1 to 3, ProtoNet, MAML and GNN on Omniglot, appendix A, and faster starts."""
    found = {"omniglot/protonet-64C/paper": reran("protonet", "omniglot", "64C")}
    for shot in SHOTS:
        found[f"omniglot/protonet-64C-{shot}shot/authors"] = original("protonet", "omniglot", 5, shot, "64C")
        for way in WAYS:
            for method in ("maml", "gnn"):
                label = own_width(method, "omniglot")
                name = f"omniglot/{method}-{label}-{way}way-{shot}shot/authors"
                found[name] = original(method, "omniglot", way, shot, label)
    for data in PICTURES:
        for method, spec in METHODS.items():
            own = own_width(method, data)
            for label in (own, "wide") if "wide" in spec.networks else (own,):
                found |= _variants(method, data, label, two_way=False)
            found |= _variants(method, data, own, two_way=True)
        for way in (5, 2):
            found |= _inductive(data, way)
        found |= _transfer(data) | _faster_starts(data)
    return found


def _group(data: str, way: int) -> str:
    return f"{data}{BINARY}" if way == 2 else data


def _variants(method: str, data: str, label: Label, *, two_way: bool) -> dict[str, NamedRecipe]:
    stem = f"{_group(data, 2 if two_way else 5)}/{method}-{label}"
    own = {f"{stem}-{k}shot/authors": original(method, data, 2 if two_way else 5, k, label) for k in SHOTS}
    return {f"{stem}/paper": reran(method, data, label, two_way=two_way), **own}


def _inductive(data: str, way: int) -> dict[str, NamedRecipe]:
    """RelationNet as its authors train it, but tested with running averages, for the inductive row."""
    found = {}
    for shot in SHOTS:
        entry = original("relation", data, way, shot, "64C")
        recipe = replace(entry.recipe, options={**entry.recipe.options, "statistics": "running"})
        sources = {**entry.sources, "options.statistics": METHODS["relation"].policy_sources["options.statistics"]}
        name = f"{_group(data, way)}/relation-inductive-64C-{shot}shot/authors"
        found[name] = NamedRecipe(recipe, entry.about, sources)
    return found


def _transfer(data: str) -> dict[str, NamedRecipe]:
    """Appendix A: plain classification of the training classes, then the variant's own ridge regression."""
    widths: tuple[Literal["64C", "wide"], ...] = ("64C", "wide")
    found = {}
    for width, variant in product(widths, REPRODUCING):
        base = multiclass(data, width, variant)
        options = {"classes": SETTINGS[data].classes, "normalise": False, **_ridge(variant)}
        sources = {
            **ours_sources(base, variant),
            "learner": "text, appendix A",
            "options.classes": "text, appendix A: as many outputs as training classes",
            "options.normalise": "text, appendix A: a fully-connected layer was simply added",
            **cited("our choice: batches as R2-D2's episodes", "way images_per_class"),
        }
        recipe = replace(base, learner="transfer", options=options)
        found[f"{data}/transfer-{width}/{variant}"] = NamedRecipe(recipe, "appendix A", sources)
    return found


def _ridge(variant: Variant) -> dict[str, Option]:
    """The ridge regression options of the variant's R2-D2 recipe, except those that only meta-learning can learn."""
    return {name: value for name, value in LITERAL.items() if name != "learn_lam"} if variant == "paper" else {}


def _faster_starts(data: str) -> dict[str, NamedRecipe]:
    """`modern`: GNN's and SNAIL's logits start as a vote of the labels, Transfer's layer sees normalised features."""
    if data != "cifar-fs":
        return {}
    gnn, transfer = reran("gnn", data, "net").recipe, _transfer(data)[f"{data}/transfer-64C/authors"].recipe
    vote: dict[str, Option] = {"way": 5}
    about = "a start that learns sooner"
    small = replace(gnn, width="64C", options=vote)
    return {
        f"{data}/gnn-64C/modern": NamedRecipe(small, about),
        f"{data}/snail-64C/modern": NamedRecipe(replace(small, learner="snail", options={**vote, "shot": 5}), about),
        f"{data}/transfer-64C/modern": NamedRecipe(
            replace(transfer, options={"classes": SETTINGS[data].classes}), about
        ),
    }
