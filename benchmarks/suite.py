"""What is measured: each function runs one comparison and gives its rows, target beside figure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks.contest import Contestant, Ratio, Setting, Times, compete, ratio, readable

OURS, PEERS = "benchmarks.tasks:", "benchmarks.peer_tasks:"
TEST = 10_000
"""Test episodes; whoever is too slow for them runs some, and its time is extrapolated."""


@dataclass(frozen=True)
class Row:
    """One line of the results: how many times longer `against` takes than `ours` (or the share, for `at most`)."""

    work: str
    ours: str
    against: str
    value: Ratio
    target: float
    at_most: bool = False
    unit: str = "x"

    @property
    def met(self) -> bool:
        """Whether the median reaches the target."""
        return self.value.median <= self.target if self.at_most else self.value.median >= self.target


@dataclass(frozen=True)
class Outcome:
    """Everything that one comparison brought."""

    rows: list[Row]
    times: list[Times]
    notes: list[str]


def whole_evaluation(setting: Setting) -> Outcome:
    """10,000 test episodes, embedding included, against episode by episode and easyfsl."""
    done = Outcome([], [], [])
    plans = [("32C", 3, 67, 100), ("64C", 3, 67, 100), ("wide", 2, 100, 60)]
    for width, rounds, episodes, target in plans[:1] if setting.quick else plans:
        few = episodes if width != "wide" else 30
        options = {"width": width, "learner": "r2d2"}
        ours = Contestant(f"handful, R2-D2, {width}", f"{OURS}evaluation", {**options, "episodes": TEST})
        others = [
            _some(f"plain PyTorch, episode by episode, {width}", f"{OURS}plain_evaluation", {"width": width}, few),
            _some(f"easyfsl ProtoNet, {width}", f"{PEERS}easyfsl_evaluation", {"width": width}, episodes, peer=True),
            _some(f"handful, episode by episode, {width}", f"{OURS}evaluation", {**options, "route": "episodes"}, few),
        ]
        times = compete([ours, *others], setting.rounds(rounds), setting, warm=width != "wide")
        work = f"{TEST:,} test episodes, 5-way 1-shot, embedding included, {width}"
        _add(done, times, [(work, ours.name, each.name, target) for each in others])
        said = times[ours.name].said
        done.notes.append(f"{width}: {said['data']}; route taken: {said['route']}.")
    return done


def after_embedding(setting: Setting) -> Outcome:
    """The same once features are there, against prototypes on the same features and scikit-learn an episode."""
    done = Outcome([], [], [])
    names = {"r2d2": "R2-D2", "lrd2": "LR-D2, 5 steps", "protonet": "prototypes"}
    for width in ("32C",) if setting.quick else ("32C", "64C", "wide"):
        options = {"width": width, "episodes": TEST}
        ours = {
            key: Contestant(f"handful, {name}, {width} features", f"{OURS}after_embedding", {**options, "learner": key})
            for key, name in names.items()
        }
        easyfsl = _some(
            f"easyfsl ProtoNet, {width} features", f"{PEERS}easyfsl_features", {"width": width}, 200, peer=True
        )
        scikit = {
            key: _some(f"scikit-learn {name}, {width} features", f"{OURS}scikit", {"width": width, "learner": key}, 100)
            for key, name in (("r2d2", "RidgeClassifier"), ("lrd2", "LogisticRegression"))
        }
        rounds = setting.rounds(2 if width == "wide" else 4)
        times = compete([*ours.values(), easyfsl, *scikit.values()], rounds, setting, warm=width != "wide")
        work = f"{TEST:,} test episodes after embedding, {width}"
        pairs = [(work, each.name, easyfsl.name, 25.0) for each in ours.values()]
        _add(done, times, [*pairs, *((work, ours[key].name, each.name, 100.0) for key, each in scikit.items())])
    return done


def table_4(setting: Setting) -> Outcome:
    """Table 4 of the paper: 10,000 episodes of 10 images at 84x84, an episode at a time."""
    plans = [
        ("R2-D2 32C", "32C", "r2d2", 40),
        ("ProtoNet 32C", "32C", "protonet", 40),
        ("LR-D2 one-vs-all, 1 step, 32C", "32C", "lrd2-1", 40),
        ("MAML, 10 steps, 32C", "32C", "maml", 10),
        ("R2-D2 64C", "64C", "r2d2", 20),
        ("R2-D2 wide", "wide", "r2d2", 10),
    ]
    contestants = [
        _some(name, f"{OURS}table_4", {"width": width, "learner": learner}, episodes)
        for name, width, learner, episodes in (plans[:4] if setting.quick else plans)
    ]
    times = compete(contestants, setting.rounds(4), setting)
    done = Outcome([], list(times.values()), [])
    ridge, proto, logistic, maml = (times[each.name] for each in contestants[:4])
    work = f"table 4: {TEST:,} episodes of 10 images, 84x84"
    done.rows.extend(
        [
            Row(work, _named(ridge), _named(proto), ratio(ridge, proto), 1.3, at_most=True),
            Row(work, _named(logistic), _named(ridge), ratio(logistic, ridge), 2.0, at_most=True),
            Row(work, _named(ridge), _named(maml), ratio(maml, ridge), 5.0),
        ]
    )
    return done


def training(setting: Setting) -> Outcome:
    """A meta-training step against the authors' structure and the bare embedding, and what sampling takes of it."""
    done = Outcome([], [], [])
    for width, rounds, target in (("64C", 10, 2.0),) if setting.quick else (("64C", 10, 2.0), ("wide", 5, 1.4)):
        names = {
            "training_step": "handful",
            "authors_step": "the authors' structure",
            "bare_step": "the bare embedding",
        }
        contestants = [
            Contestant(f"{name}, {width}", f"{OURS}{task}", {"width": width}) for task, name in names.items()
        ]
        sampling = Contestant(
            f"sampling and augmenting, {width}", f"{OURS}sampling", {"augment": True, "episodes": 20}, scale=1 / 20
        )
        times = compete([*contestants, sampling], setting.rounds(rounds), setting)
        ours, authors, bare = (times[each.name] for each in contestants)
        drawn, work = times[sampling.name], f"a meta-training step, {width}, S = 240, 32x32"
        done.times.extend(times.values())
        done.rows.append(Row(work, _named(ours), _named(authors), ratio(authors, ours), target))
        done.rows.append(Row(work, _named(ours), _named(bare), ratio(ours, bare), 1.08, at_most=True))
        share = Ratio(tuple(100 * value for value in ratio(drawn, ours).values))
        done.rows.append(
            Row(f"sampling with augmentation, {width}", _named(drawn), _named(ours), share, 3.0, True, "%")
        )
    return done


def convolutions(setting: Setting) -> Outcome:
    """The embedding with our kernels against the same one with PyTorch's, in training and at test."""
    done = Outcome([], [], [])
    plans: list[tuple[str, int, str, dict[str, int], float]] = [
        ("64C", 32, "bare_step", {"images": 240}, 1.25),
        ("64C", 28, "bare_step", {"images": 600, "channels": 1}, 1.25),
        ("wide", 32, "bare_step", {"images": 240}, 1.7),
        ("wide", 84, "bare_step", {"images": 240}, 1.4),
        ("wide", 32, "folded_pass", {"images": 100}, 1.6),
    ]
    kinds = {"bare_step": "a step of the bare embedding", "folded_pass": "embedding at test"}
    for width, size, task, batch, target in plans[:1] if setting.quick else plans:
        options: dict[str, Any] = {"width": width, "size": size, **batch}
        grey = " grey" if batch.get("channels") == 1 else ""
        work = f"{kinds[task]}, {width}, {batch['images']}{grey} images, {size}x{size}"
        ours = Contestant(f"our kernels, {work}", f"{OURS}{task}", options)
        plain = Contestant(f"PyTorch's, {work}", f"{OURS}{task}", {**options, "plain": True})
        _add(done, compete([ours, plain], setting.rounds(5), setting), [(work, ours.name, plain.name, target)])
    return done


def sampling(setting: Setting) -> Outcome:
    """5-way 5-shot episodes with 15 queries, against easyfsl's TaskSampler and a DataLoader."""
    ours = Contestant("handful sampler", f"{OURS}sampling", {"augment": False, "episodes": 512}, scale=1 / 512)
    easyfsl = Contestant("easyfsl sampler", f"{PEERS}easyfsl_sampling", {"episodes": 100}, scale=1 / 100, peer=True)
    times = compete([ours, easyfsl], setting.rounds(7), setting)
    done = Outcome([], [], [])
    _add(done, times, [("sampling an episode, 5-way 5-shot, 15 queries", ours.name, easyfsl.name, 8.0)])
    return done


def heads(setting: Setting) -> Outcome:
    """The solvers' comparisons, which run in one process each, and qpth's layer."""
    done = Outcome([], [], [])
    rounds = 3 if setting.quick else 7
    plans: list[tuple[str, str, dict[str, Any], float]] = [
        ("ridge solve, forward and backward, 16 episodes, e = 8064", "ridge_weights", {}, 1.4),
        ("LR-D2 one-vs-all, 5 steps, forward and backward, e = 8064", "logistic_head", {"steps": 5}, 10.0),
        ("LR-D2 one-vs-all, 10 steps, forward and backward, e = 8064", "logistic_head", {"steps": 10}, 20.0),
    ]
    for work, name, options, target in plans:
        asked = {"name": name, "options": {**options, "rounds": rounds}}
        times = compete([Contestant(work, f"{OURS}duel", asked)], 3, setting, warm=False)
        rows = [{key: value / 1e3 for key, value in said.items()} for said in times[work].all_said]
        mine, theirs = next(iter(rows[0])), list(rows[0])[-1]
        value = Ratio(tuple(row[theirs] / row[mine] for row in rows))
        said = {key: f"{key}: {readable(seconds)}" for key, seconds in rows[-1].items()}
        done.rows.append(Row(work, said[mine], said[theirs], value, target))
        done.times.append(times[work])
    for shot in (1, 5):
        options = {"e": 3584, "shot": shot, "repeats": 20}
        ours = Contestant(f"handful ridge_predictions, {shot}-shot", f"{OURS}ridge_forward_backward", options, 1 / 20)
        qpth = Contestant(f"qpth QP layer, {shot}-shot", f"{PEERS}qpth_ridge", options, 1 / 20, peer=True)
        work = f"ridge head, forward and backward, 5-way {shot}-shot, e = 3584"
        _add(done, compete([ours, qpth], setting.rounds(7), setting), [(work, ours.name, qpth.name, 8.0)])
    return done


SUITE: dict[str, Callable[[Setting], Outcome]] = {
    "evaluation": whole_evaluation,
    "features": after_embedding,
    "table-4": table_4,
    "training": training,
    "convolutions": convolutions,
    "sampling": sampling,
    "heads": heads,
}


def _some(name: str, task: str, options: dict[str, Any], episodes: int, peer: bool = False) -> Contestant:
    """A contestant that runs some episodes, its time extrapolated to all."""
    return Contestant(name, task, {**options, "episodes": episodes}, TEST / episodes, peer)


def _add(done: Outcome, times: dict[str, Times], pairs: list[tuple[str, str, str, float]]) -> None:
    done.times.extend(times.values())
    for work, ours, against, target in pairs:
        if against in times:
            mine, theirs = times[ours], times[against]
            done.rows.append(Row(work, _named(mine), _named(theirs), ratio(theirs, mine), target))


def _named(times: Times) -> str:
    return f"{times.name}: {readable(times.median)}"
