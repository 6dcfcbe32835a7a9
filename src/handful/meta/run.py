"""A training run on disk, which can be stopped and resumed: a folder with its recipe, log and checkpoints."""

from __future__ import annotations

import json
import time
from collections.abc import Generator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from handful import __version__, data
from handful._io import MEGABYTE, from_json, parse_json, read_bytes, read_json, write_atomically
from handful.data.augment import AUGMENTATIONS, Compose
from handful.data.loading import load_recorded
from handful.data.mixing import TURNS
from handful.data.table import Benchmark
from handful.embeddings import build_embedding
from handful.episodes import EpisodeSampler, FixedShots, RandomShots
from handful.errors import CheckpointError, DataError, InvalidOptionError, NotEnoughClassesError
from handful.learners.adapting import EpisodeNorm
from handful.learners.registry import build_learner
from handful.meta.checkpoint import read_checkpoint, write_checkpoint
from handful.meta.config import Recipe, prolongs, recipe_from_json
from handful.meta.engine import CPU, Engine
from handful.meta.evaluate import DEFAULT_MEMORY, evaluate
from handful.meta.features import embed_pool_within
from handful.meta.model import FewShotModel
from handful.meta.state import Scores, TrainingState, model_tensors, require_alike
from handful.meta.train import Progress, diverging, episode_seed, seeded, train

_FRESH = 0xF4E5
"""Makes the seeds of fresh validation episodes different from those of training."""
LARGEST = 1024
"""Largest image size in pixels per side that can be packed; a header that claims more is refused."""
MOST_LOG = 256 * MEGABYTE
RECIPE, LOG, LAST = "recipe.json", "log.jsonl", "last.safetensors"


def build(recipe: Recipe, image_shape: tuple[int, int, int]) -> FewShotModel:
    """The untrained model of a recipe; its weights depend only on the recipe's seed."""
    with seeded(recipe.seed):
        embedding = build_embedding(
            recipe.width,
            image_shape[0],
            recipe.norm,
            recipe.dropout,
            recipe.concatenate,
            recipe.shrink,
            side=image_shape[-1],
        )
        built = build_learner(recipe.learner, embedding, image_shape, recipe.options)
        model = FewShotModel(*built, together=recipe.together)
        if recipe.norm_start == "uniform":
            start_gammas_uniformly(model)
        return model


def start_gammas_uniformly(model: nn.Module) -> None:
    """Initialise the scales of every batch norm uniformly in (0, 1), as PyTorch did before 1.2."""
    for module in model.modules():
        if isinstance(module, EpisodeNorm) or (isinstance(module, _BatchNorm) and module.affine):
            nn.init.uniform_(module.weight)


def benchmark_of(recipe: Recipe, recorded: bool = False) -> Benchmark:
    """The data set that a recipe names; if it was `recorded` in a file, a folder must have been used here before."""
    return (load_recorded if recorded else data.load)(recipe.data, split=recipe.split or None)


def score_name(recipe: Recipe, way: int, shot: int) -> str:
    """The name of a validation score: `5-shot`, or `20-way-5-shot` for all numbers of ways except the first."""
    return f"{shot}-shot" if way == recipe.val_ways[0] else f"{way}-way-{shot}-shot"


def validation_queries(recipe: Recipe, way: int, shot: int, images: int) -> int:
    """Queries per class in a validation episode, for classes with this many images."""
    if recipe.val_query:
        return recipe.val_query
    return min(recipe.way * recipe.images_per_class // way, images) - shot


class Run:
    """A run folder: `recipe.json`, `log.jsonl`, `last.safetensors` and a best checkpoint for each validation score."""

    def __init__(self, folder: Path, recipe: Recipe, benchmark: Benchmark, engine: Engine = CPU) -> None:
        self.folder, self.recipe, self.benchmark, self.engine = folder, recipe, benchmark, engine
        if recipe.plan.parts > 1:
            engine.share(recipe.plan.parts, "passes per update (--episodes-per-step)")  # raises now instead of later
        elif engine.world > 1 and engine.compiled:
            raise InvalidOptionError(
                "A compiled embedding cannot share the images of one episode among processes. Leave out --compile, or "
                "give each process an episode with --episodes-per-step."
            )
        if recipe.plan.validate_every and not len(benchmark.val):
            raise NotEnoughClassesError(
                f"{benchmark.name} has no validation classes. Turn validation off with --validate-every 0, or divide "
                f"the classes differently with --split."
            )
        self.model = build(recipe, benchmark.train.image_shape).to(engine.device)
        if engine.compiled:
            self.model.embedding.compile()
        self.episodes = _episodes(recipe, benchmark)
        self.state = TrainingState(self.model, recipe.plan, _classifier(recipe, self.model, benchmark, engine))

    def start(self) -> None:
        """Create the folder; raises if it already holds a run, unless that failed before its first update."""
        if not self.engine.leads:
            return
        if (self.folder / RECIPE).exists() and any((self.folder / name).exists() for name in (LOG, LAST)):
            raise InvalidOptionError(
                f"{self.folder} already holds a run. Add --resume to continue it, or choose another folder with --out."
            )
        facts = {"handful": __version__, "torch": torch.__version__, "recipe": self.recipe.as_json()}
        write_atomically(self.folder / RECIPE, json.dumps(facts, indent=2).encode())

    def restart(self) -> None:
        """Start over, replacing whatever run the folder holds."""
        for old in (RECIPE, LOG, *(path.name for path in self.folder.glob("*.safetensors"))):
            (self.folder / old).unlink(missing_ok=True)
        self.start()

    def resume(self) -> None:
        """Continue from the last checkpoint, and for longer than planned if this recipe is longer than the folder's.

        Log lines after the checkpoint are dropped, because they will be written again.
        """
        if (self.folder / LAST).exists():
            tensors, facts = read_checkpoint(self.folder / LAST)
            if not prolongs(recipe_from_json(facts.get("recipe")), self.recipe):
                raise CheckpointError(
                    f"{self.folder / LAST} was trained with another recipe than the {RECIPE} next to it, so files of "
                    f"two runs were mixed. Restore the right file, or start a new run with another --out."
                )
            self.state.restore(tensors, facts.get("training", {}))
        self._prolong()
        log = self.folder / LOG
        if self.engine.leads and log.exists():
            try:
                lines = read_bytes(log, MOST_LOG).decode(errors="replace").splitlines()
            except DataError as error:
                raise CheckpointError(f"{log} {error}.") from error
            kept = [line for line in lines if _episode_of(line) <= self.state.episode]
            write_atomically(log, "".join(f"{line}\n" for line in kept).encode())

    def _prolong(self) -> None:
        """Write the recipe to the folder if it is longer than the folder's."""
        if not self.engine.leads or (old := read_recipe(self.folder)) == self.recipe:
            return
        if self.state.finished and self.state.episode < self.recipe.plan.episodes:
            raise InvalidOptionError(
                f"The run in {self.folder} ended at episode {self.state.episode:,} because no validation score had "
                f"risen for {old.plan.patience:,} episodes. Raise --patience too, or turn it off with --patience 0."
            )
        facts = {**read_json(self.folder / RECIPE), "recipe": self.recipe.as_json()}
        write_atomically(self.folder / RECIPE, json.dumps(facts, indent=2).encode())

    def train(self, save_every: int = 500, save_seconds: float = 120.0) -> Generator[Progress, None, None]:
        """Train to the end of the plan and save every `save_every` episodes; closing it early saves too.

        An exception does not change the last checkpoint, because it may have happened in the middle of an update, or
        the weights may be unusable.
        """
        self.engine.wait_for_all()  # no process may write a checkpoint that another one still has to read
        saved, moment = self.state.episode, time.perf_counter()
        for progress in train(self.model, self.episodes, validate=self.validate, state=self.state, engine=self.engine):
            self._log(progress)
            for name in progress.improved:
                self._save_best(name)
            late = time.perf_counter() - moment >= save_seconds
            if self.state.finished:
                self._keep_average()  # before the checkpoint that ends the run, in case the process is killed between
            if progress.scores or late or progress.episode - saved >= save_every or self.state.finished:
                self._save(LAST)
                saved, moment = progress.episode, time.perf_counter()
            try:
                yield progress
            except GeneratorExit:
                if progress.episode != saved:
                    self._save(LAST)
                if not self.state.finished:
                    self._keep_average()
                raise

    def validate(self, model: FewShotModel) -> Scores:
        """Accuracies on validation classes, one for each number of ways and shots."""
        recipe, val = self.recipe, self.benchmark.val
        pool = embed_pool_within(model.embedding, val, DEFAULT_MEMORY, self.engine)
        seed = episode_seed(recipe.seed ^ _FRESH, self.state.episode) if recipe.val_fresh else recipe.seed
        scores = {}
        for way in recipe.val_ways:
            for shot in recipe.val_shots:
                query = validation_queries(recipe, way, shot, int(val.counts.min()))
                episodes = EpisodeSampler(val, FixedShots(way, shot, query), seed)
                done = evaluate(model, episodes, recipe.val_episodes, engine=self.engine, pool=pool)
                scores[score_name(recipe, way, shot)] = done.mean
        return scores

    def best(self, which: str = "mean") -> FewShotModel:
        """The model as it was at its best validation score so far."""
        return load_model(self.folder, which)

    def _keep_average(self) -> None:
        """If there is no validation to keep averaged weights, keep the final ones as the best."""
        if self.state.average and self.state.average.count and not self.recipe.plan.validate_every:
            rate = self.recipe.plan.rate_at(self.state.episode)
            with diverging("Averaging the weights failed: ", self.state, rate):
                self.state.judge(self.episodes, self.engine)
            self._save_best("mean")

    def _save_best(self, score: str) -> None:
        self._save(f"best-{score}.safetensors", model_tensors(self.state.judged))

    def _save(self, name: str, tensors: Mapping[str, Tensor] | None = None) -> None:
        if not self.engine.leads:
            return
        tensors = self.state.tensors() if tensors is None else tensors
        shape = list(self.benchmark.train.image_shape)
        facts = {"training": self.state.facts(), "recipe": self.recipe.as_json(), "image_shape": shape}
        write_checkpoint(self.folder / name, tensors, facts)

    def _log(self, progress: Progress) -> None:
        if not self.engine.leads:
            return
        line = {
            "episode": progress.episode,
            "loss": round(progress.loss, 6),
            "accuracy": round(progress.accuracy, 6),
            "rate": progress.rate,
            **({"validation": dict(progress.scores), "improved": progress.improved} if progress.scores else {}),
        }
        with (self.folder / LOG).open("a") as file:
            file.write(json.dumps(line) + "\n")


def _classifier(recipe: Recipe, model: FewShotModel, benchmark: Benchmark, engine: Engine) -> nn.Module | None:
    """A linear layer from the model's features to all training classes and their turns, if the plan needs it."""
    if not recipe.plan.classify:
        return None
    with torch.no_grad():
        size = model.eval().embed(torch.zeros(1, *benchmark.train.image_shape, device=engine.device)).numel()
    with seeded(recipe.seed):
        return nn.Linear(size, (TURNS if recipe.turned else 1) * len(benchmark.train)).to(engine.device)


def _episodes(recipe: Recipe, benchmark: Benchmark) -> EpisodeSampler:
    """The training episodes of a recipe."""
    shape = RandomShots(
        recipe.way, recipe.images_per_class, recipe.min_shot, recipe.max_shot, recipe.plan.episodes_per_step
    )
    transform = Compose(tuple(AUGMENTATIONS[name] for name in recipe.augment)) if recipe.augment else None
    return EpisodeSampler(
        benchmark.train, shape, recipe.seed, transform=transform, turned=recipe.turned, mixed=recipe.mixed
    )


def read_recipe(folder: Path) -> Recipe:
    """The recipe of a run folder."""
    path = folder / RECIPE
    try:
        return recipe_from_json(read_json(path)["recipe"])
    except (FileNotFoundError, NotADirectoryError) as error:
        raise CheckpointError(
            f"{folder} is not a run: it has no {RECIPE}. Give a folder written by handful train --out."
        ) from error
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}.") from error


@dataclass(frozen=True)
class TrainedModel:
    """A model from a checkpoint, and the recipe that it was trained with."""

    model: FewShotModel
    recipe: Recipe
    episodes: int
    """Number of episodes that it was trained for."""
    image_shape: tuple[int, int, int]
    """Channels, height and width of the images."""


def require_fitting(trained: tuple[int, int, int], given: tuple[int, int, int], name: str) -> None:
    """Raise if images differ in channels or size from those that the model was trained on."""
    if trained != given:
        (was, *size), (now, *other) = trained, given
        raise DataError(
            f"The model was trained on {_kind(was)} images of {size[0]} x {size[1]} pixels, but those of {name} are "
            f"{_kind(now)} and {other[0]} x {other[1]}. Pack them in that size and colour: handful data add NAME "
            f"--from FOLDER --size {size[0]}{' --grey' if was == 1 else ''}."
        )


def _kind(channels: int) -> str:
    return {1: "grey", 3: "colour"}.get(channels, f"{channels}-channel")


def load_model(run: str | Path, which: str = "mean") -> FewShotModel:
    """The trained model from a run folder (by default its checkpoint with the best validation mean) or a checkpoint."""
    return read_run(run, which).model


def read_run(run: str | Path, which: str = "mean") -> TrainedModel:
    """The model of a run folder or checkpoint file, in evaluation mode, and its recipe."""
    path = _checkpoint_of(Path(run), which)
    tensors, facts = read_checkpoint(path)
    try:
        weights = {key.removeprefix("model."): value for key, value in tensors.items() if key.startswith("model.")}
        trained = trained_model(weights, facts["recipe"], facts["image_shape"], facts["training"]["episode"])
    except (LookupError, ValueError, TypeError) as error:
        raise CheckpointError(f"{path} does not hold a complete model: {str(error).rstrip('.')}.") from error
    beside = path != Path(run) and (path.parent / RECIPE).exists()
    if beside and not prolongs(trained.recipe, read_recipe(path.parent)):
        raise CheckpointError(
            f"{path} was trained with another recipe than the {RECIPE} next to it, so files of two runs were mixed. "
            f"To use it anyway, give the checkpoint file itself."
        )
    return trained


def trained_model(weights: Mapping[str, Tensor], recipe: Any, image_shape: Any, episodes: Any) -> TrainedModel:
    """The model of a file, built from its header, in evaluation mode.

    A ValueError says what does not match; sizes are compared with the weights before anything of their size is built.
    """
    known, shape = recipe_from_json(recipe), from_json(tuple[int, int, int], image_shape, "image_shape")
    if not all(1 <= size <= LARGEST for size in shape):
        raise ValueError(f"its images have the shape {shape}")
    try:
        with torch.device("meta"):  # shapes without memory
            require_alike(weights, build(known, shape).state_dict())
        model = build(known, shape)
        model.load_state_dict(weights)
    except (RuntimeError, TypeError, OverflowError, ZeroDivisionError, KeyError) as error:
        raise ValueError(f"its recipe does not describe a model ({str(error).splitlines()[0]})") from error
    return TrainedModel(model.eval(), known, from_json(int, episodes, "episode"), shape)


def _checkpoint_of(run: Path, which: str) -> Path:
    if not run.is_dir():
        return run
    best = run / f"best-{which}.safetensors"
    if which == "last" or (which == "mean" and not best.exists()):
        return run / LAST
    if not best.exists():
        raise CheckpointError(f"{run} has no checkpoint '{which}'; it has {', '.join(_names(run)) or 'none'}.")
    return best


def _names(folder: Path) -> list[str]:
    return sorted(path.stem.removeprefix("best-") for path in folder.glob("*.safetensors"))


def read_log(folder: Path) -> list[tuple[int, Scores]]:
    """The episode and the validation scores, if any, of each line of a run's log; incomplete lines are skipped."""
    found: list[tuple[int, Scores]] = []
    try:
        lines = read_bytes(folder / LOG, MOST_LOG).splitlines()
    except (OSError, DataError):
        return found
    for text in lines:
        with suppress(LookupError, TypeError, ValueError, AttributeError):
            line = parse_json(text)
            scores = from_json(dict[str, float], line.get("validation", {}), "validation")
            found.append((from_json(int, line["episode"], "episode"), scores))
    return found


def _episode_of(line: str) -> int:
    try:
        return int(parse_json(line)["episode"])
    except (LookupError, TypeError, ValueError):
        return 2**62
