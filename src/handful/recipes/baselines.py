"""The methods that the paper reran for comparison, and its pre-trained baseline of appendix A.

`authors` trains a method as its own authors' released code does: a model for each number of shots, with its ways, rates
and schedule, and with the batch norm of that code, which makes MAML transductive. `paper` trains it by the policy that
the text gives for R2-D2, as far as the method allows: one model for all shots, S images an episode, the same schedule,
inductive. A starred row of table 1 is the wide net with dropout. The paper's text does not give the baselines' own
embeddings; block 4 alone of the 64C net (32C for MAML on miniImageNet) stands for them, and GNN's [64, 96, 128, 256]
filters are replaced by 64C.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from handful.meta.config import Option, Plan, Recipe
from handful.recipes.ours import LITERAL, binary, multiclass
from handful.recipes.settings import BINARY, SETTINGS, NamedRecipe, Variant, Width

SHOTS = (1, 5)


@dataclass(frozen=True)
class Method:
    """A baseline as its own authors train it: ways and queries for each number of shots, rates and schedule."""

    learner: str
    way: dict[int, int]
    query: dict[int, int]
    plans: dict[int, Plan]
    fixed_way: bool = False
    """Whether it has outputs for one number of ways only, which must then be the test's."""
    options: dict[str, Option] = field(default_factory=dict)
    policy: dict[str, Option] = field(default_factory=dict)
    """Options for the paper's policy: what closes a leak of the original, or lets one model serve all shots."""


_PROTO = Plan(rate=1e-3, decay_every=2_000, validate_every=500)
_MAML = Plan(
    episodes=240_000, rate=1e-3, schedule="constant", episodes_per_step=4, clip=10.0, validate_every=1_000, patience=0
)
_RELATION = Plan(episodes=500_000, rate=1e-3, decay_every=100_000, clip=0.5, validate_every=5_000, patience=0)
_GNN = Plan(episodes=400_000, rate=1e-3, decay_every=75_000, episodes_per_step=5, validate_every=5_000, patience=0)

METHODS = {
    "protonet": Method("protonet", {1: 30, 5: 20}, {1: 15, 5: 15}, {1: _PROTO, 5: _PROTO}),
    "maml": Method(
        "maml",
        {1: 5, 5: 5},
        {1: 15, 5: 15},
        {1: _MAML, 5: _MAML},
        fixed_way=True,
        options={"steps": 5, "test_steps": 10, "rate": 0.01, "statistics": "batch"},
        policy={"statistics": "support"},
    ),
    "relation": Method(
        "relation", {1: 5, 5: 5}, {1: 15, 5: 10}, {1: _RELATION, 5: _RELATION}, policy={"average": True}
    ),
    "gnn": Method(
        "gnn",
        {1: 5, 5: 5},
        {1: 4, 5: 4},  # 5 or 2 episodes of 20 queries a step: its 100 or 40 graphs
        {1: _GNN, 5: replace(_GNN, episodes=180_000, decay_every=30_000, episodes_per_step=2)},
        fixed_way=True,
    ),
}


def own_code(
    method: str, data: str, shot: int, width: Width, *, two_way: bool = False, starred: bool = False
) -> Recipe:
    """A baseline as its own authors train it, for one number of shots."""
    spec = METHODS[method]
    way = 2 if two_way else spec.way[shot]
    proto = two_way and method == "protonet"  # of table 3 the text says: group norm, rate times 0.99
    plan = replace(spec.plans[shot], decay=0.99, patience=50_000) if proto else spec.plans[shot]
    return Recipe(
        data=data,
        width=width,
        norm="group" if proto else "batch",
        dropout=SETTINGS[data].dropout if starred else 0.0,
        concatenate=starred,
        learner=spec.learner,
        options={**({"way": way} if spec.fixed_way else {}), **spec.options},
        way=way,
        images_per_class=shot + spec.query[shot],
        min_shot=shot,
        max_shot=shot,
        plan=plan,
        val_ways=(2,) if two_way else (5,),
        val_shots=(shot,),
        val_query=15,
    )


def by_policy(method: str, data: str, width: Width, *, two_way: bool = False, starred: bool = False) -> Recipe:
    """A baseline trained as the text trains R2-D2, but on its own embedding and, where it must be, five-way."""
    spec = METHODS[method]
    base = binary(data, "r2d2", "paper") if two_way else multiclass(data, width, "paper")
    way = 5 if spec.fixed_way and not two_way else base.way
    return replace(
        base,
        width=width,
        dropout=base.dropout if starred else 0.0,
        concatenate=starred,
        learner=spec.learner,
        options={**({"way": way} if spec.fixed_way else {}), **spec.options, **spec.policy},
        way=way,
        images_per_class=base.way * base.images_per_class // way,
        val_query=15,
    )


def _named(method: str, data: str, width: Width, two_way: bool, starred: bool) -> dict[str, NamedRecipe]:
    stem = f"{data}{BINARY if two_way else ''}/{method}-{width}"
    about = "table 3" if two_way else SETTINGS[data].table
    found = {f"{stem}/paper": NamedRecipe(by_policy(method, data, width, two_way=two_way, starred=starred), about)}
    for shot in SHOTS:
        recipe = own_code(method, data, shot, width, two_way=two_way, starred=starred)
        found[f"{stem}-{shot}shot/authors"] = NamedRecipe(recipe, about)
    return found


def own_width(method: str, data: str) -> Width:
    """The embedding that stands for a baseline's own."""
    return "32C" if method == "maml" and data == "mini-imagenet" else "64C"


def baselines() -> dict[str, NamedRecipe]:
    """The reran rows of tables 1 and 3, prototypical networks on Omniglot, and appendix A."""
    found = _named("protonet", "omniglot", "64C", False, False)
    for data in ("cifar-fs", "mini-imagenet"):
        for method in METHODS:
            found |= _named(method, data, own_width(method, data), False, False)
            found |= _named(method, data, own_width(method, data), True, False)
            if method != "relation":
                found |= _named(method, data, "wide", False, True)
        found |= _transfer(data)
    return found


def _transfer(data: str) -> dict[str, NamedRecipe]:
    """Appendix A: plain classification of the training classes, then the variant's own ridge regression."""
    widths: tuple[Width, ...] = ("64C", "wide")
    variants: tuple[Variant, ...] = ("paper", "authors")
    return {
        f"{data}/transfer-{width}/{variant}": NamedRecipe(
            replace(
                multiclass(data, width, variant),
                learner="transfer",
                options={"classes": SETTINGS[data].classes, **_ridge(variant)},
            ),
            "appendix A",
        )
        for width in widths
        for variant in variants
    }


def _ridge(variant: Variant) -> dict[str, Option]:
    """What R2-D2's recipe of the variant says of its ridge regression, but for what only meta-learning can learn."""
    return {name: value for name, value in LITERAL.items() if name != "learn_lam"} if variant == "paper" else {}
