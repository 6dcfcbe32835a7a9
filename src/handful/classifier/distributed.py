"""Ridge classification of more examples than one machine holds, with Dask: two passes over blocks that workers read.

The first pass reduces every block to sums (n, sum of x, X^T X, X^T Y) that merge by addition, so memory does not
grow with the examples. The second holds out every example exactly, from the fit to all of them. Blocks are summed in an
order that depends only on their numbers, so neither the number of workers nor the death of one changes a bit.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial, reduce
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from handful._io import from_json, replacing
from handful.classifier.answers import ScoreEstimate, estimate_score
from handful.classifier.embedder import choose_embedder
from handful.classifier.features import embed
from handful.classifier.heads import LinearMap, balanced, observed
from handful.classifier.inputs import Labels, Matrix, Picture
from handful.classifier.selection import GRID, RIDGE_SCALE, calibrate, prior_cost, probabilities
from handful.classifier.shards import Block, Blocks, FeatureShards, digest_of_names, write_index, write_shard
from handful.errors import CheckpointError, HandfulError, InvalidOptionError, NotEnoughClassesError, ShapeError
from handful.meta.checkpoint import read_checkpoint, write_checkpoint
from handful.solvers.factor import Moments

KIND = "linear classifier"
GROUP = 8
"""Blocks that one task sums before it sends its result."""
SAMPLE = 5_000
"""The most examples that are used to choose lambda and the scale."""
ROWS = 1_024
"""Images per shard."""
WAIT = 10
"""Seconds to wait for a scheduler."""


@contextmanager
def cluster(scheduler: str) -> Iterator[Any]:
    """A Dask client for tcp://HOST:PORT, or for local:N with N worker processes on this machine."""
    missing = [name for name in ("distributed", "pyarrow") if find_spec(name) is None]
    if missing:
        raise HandfulError(f"This needs {' and '.join(missing)}: pip install 'handful[dask]'.")
    from distributed import Client, LocalCluster

    kind, _, count = scheduler.partition(":")
    here = {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0"}
    if kind == "local" and count.isdecimal() and int(count):
        with (
            LocalCluster(n_workers=int(count), threads_per_worker=1, **here) as workers,
            Client(workers) as client,
        ):
            yield client
        return
    if "://" not in scheduler:
        raise InvalidOptionError(
            f"A scheduler must be tcp://HOST:PORT or local:N for N processes, but got '{scheduler}'."
        )
    try:
        client = Client(scheduler, timeout=WAIT)
    except (OSError, TimeoutError, ValueError) as error:
        raise HandfulError(
            f"There is no Dask scheduler at {scheduler} ({error}). Start one with `dask scheduler`, or use local:N."
        ) from error
    with client:
        yield client


def summed(client: Any, task: Callable[[Any, int], Any], given: Any, count: int) -> Any:
    """The sum of task(given, 0), ..., task(given, count - 1), computed by workers and summed in a fixed order.

    Parts are summed along a binary tree, and sums have priority over new tasks, so workers hold few parts at a time.
    """
    shared = _sent(client, given)
    held: list[tuple[int, Any]] = []  # the number of groups in a part, and the part
    for start in range(0, count, GROUP):
        numbers = range(start, min(start + GROUP, count))
        size, part = 1, client.submit(_group, task, shared, numbers, pure=False, priority=0)
        while held and held[-1][0] == size:
            size, part = 2 * size, _added(client, held.pop()[1], part)
        held.append((size, part))
    return reduce(partial(_added, client), [part for _, part in held]).result()


def _added(client: Any, left: Any, right: Any) -> Any:
    return client.submit(operator.add, left, right, pure=False, priority=1)


def _sent(client: Any, given: Any) -> Any:
    """A value that all tasks share; it is sent once, and again if the worker that holds it dies."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sending large graph")
        return client.submit(_same, given, pure=False)


def _same(given: Any) -> Any:
    return given


def _group(task: Callable[[Any, int], Any], given: Any, numbers: range) -> Any:
    return reduce(operator.add, (task(given, number) for number in numbers))


@dataclass(frozen=True)
class LinearClassifier:
    """A ridge classifier without its examples: scores are features @ weights + bias."""

    classes: tuple[str, ...]
    map: LinearMap
    scale: float
    lam: float
    estimate: ScoreEstimate
    embedding: str = ""
    """The name of the embedding; empty for a classifier that was fitted to features."""

    def predict_proba(self, features: Matrix) -> Matrix:
        """Probabilities (q, way) of features (q, e)."""
        if features.shape[-1] != len(self.map.weights):
            raise ShapeError(
                f"The classifier needs {len(self.map.weights)} features per image, but got {features.shape[-1]}. "
                f"It was fitted to another embedding."
            )
        return probabilities(self.map(features), self.scale)

    def save(self, path: Path) -> None:
        """Write everything to one file."""
        tensors = {"weights": torch.from_numpy(self.map.weights), "bias": torch.from_numpy(self.map.bias)}
        facts = {"classes": list(self.classes), "scale": self.scale, "lam": self.lam, "embedding": self.embedding}
        score = [self.estimate.accuracy, self.estimate.low, self.estimate.high, self.estimate.examples]
        write_checkpoint(path, tensors, {"kind": KIND, **facts, "estimate": score})


def load_linear(path: Path) -> LinearClassifier:
    """Load a classifier that `LinearClassifier.save` wrote."""
    tensors, facts = read_checkpoint(path)
    if facts.get("kind") != KIND:
        raise CheckpointError(f"{path} was not fitted with Dask. Use it without --scheduler.")
    try:
        classes, found = (
            tuple(map(str, facts["classes"])),
            LinearMap(tensors["weights"].numpy(), tensors["bias"].numpy()),
        )
        if found.weights.shape[1:] != (len(classes),) or found.bias.shape != (len(classes),):
            raise ValueError(f"its weights {found.weights.shape} do not fit {len(classes)} classes")
        if not all(each.dtype == np.float64 and np.isfinite(each).all() for each in (found.weights, found.bias)):
            raise ValueError("its weights are not finite float64 numbers")
        accuracy, low, high, examples = from_json(tuple[float, float, float, int], facts["estimate"], "estimate")
        scale, lam = (from_json(float, facts[name], name) for name in ("scale", "lam"))
        if not (0 <= low <= accuracy <= high <= 1 and examples >= 0 and scale > 0 and lam > 0):
            raise ValueError("its estimate, scale or lambda cannot be true")
        score = ScoreEstimate(accuracy, low, high, examples, weight=examples + 1.0)
        return LinearClassifier(classes, found, scale, lam, score, str(facts["embedding"]))
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path} does not hold a complete classifier: {error}.") from error


def fit(
    blocks: Blocks, client: Any, lam: float | Literal["auto"] = "auto", *, balance: bool = True, embedding: str = ""
) -> LinearClassifier:
    """Fit a ridge classifier to all blocks, with lambda, scale and accuracy from leave-one-out."""
    way, sample = len(blocks.classes), _sample(blocks)
    origin = sample.features.mean(0)
    moments: Moments = summed(client, partial(_moments, blocks), origin, len(blocks))
    counts = moments.y_sum.numpy()
    if way < 2 or (counts == 0).any():
        raise NotEnoughClassesError(f"Each of at least two classes needs examples, but {way} have {counts.min():g}.")
    if counts.max() < 2:
        raise NotEnoughClassesError(
            "No class has two examples, so none can be held out to choose lambda and the scale. Add examples, or fit "
            "without --scheduler."
        )
    ridge = _Ridge.of(moments, origin, balance)
    held_out = ridge.rotated(sample)
    strength = ridge.chosen_lam(held_out) if lam == "auto" else float(lam)
    if not 0 < strength < np.inf:
        raise InvalidOptionError(f"lam must be 'auto' or a positive number, but got {lam!r}.")
    scale = calibrate(ridge.held_out(held_out, strength), held_out.codes, RIDGE_SCALE).scale
    right: _Right = summed(client, partial(_held_out, blocks, strength), ridge, len(blocks))
    score = estimate_score(np.arange(right.examples) < right.right)
    return LinearClassifier(blocks.classes, ridge.map(strength), scale, strength, score, embedding)


def _sample(blocks: Blocks) -> Block:
    """Whole blocks, evenly spaced, until there are enough examples."""
    first = blocks.read(0)
    wanted = min(len(blocks), max(1, SAMPLE // max(1, len(first.codes))))
    found = [blocks.read(number) for number in np.unique(np.linspace(0, len(blocks) - 1, wanted).astype(int))]
    return Block(np.concatenate([each.features for each in found]), np.concatenate([each.codes for each in found]))


def _moments(blocks: Blocks, origin: Matrix, number: int) -> Moments:
    block, way = blocks.read(number), len(blocks.classes)
    if (block.codes < 0).any():
        raise InvalidOptionError(f"Block {number} holds examples without a class, which cannot be learnt from.")
    X, codes = block.features - origin, torch.from_numpy(block.codes)
    xy = torch.zeros(way, X.shape[1], dtype=torch.float64).index_add_(0, codes, torch.from_numpy(X)).T
    counts = torch.bincount(codes, minlength=way).double()
    return Moments(len(X), torch.from_numpy(X.sum(0)), counts, torch.from_numpy(X.T @ X), xy)


@dataclass(frozen=True)
class _Right:
    """The number of held-out examples, and how many of them were classified correctly."""

    right: int
    examples: int

    def __add__(self, other: _Right) -> _Right:
        return _Right(self.right + other.right, self.examples + other.examples)


def _held_out(blocks: Blocks, lam: float, ridge: _Ridge, number: int) -> _Right:
    block = ridge.rotated(blocks.read(number))
    return _Right(int((ridge.held_out(block, lam).argmax(1) == block.codes).sum()), len(block.codes))


@dataclass(frozen=True)
class _Ridge:
    """The spectrum of centred features and their products with the targets, which makes each further lambda cheap."""

    mean: Matrix
    values: Matrix
    vectors: Matrix
    products: Matrix
    """vectors^T X^T Y (e, way) of centred features and targets."""
    counts: Matrix
    size: float
    balance: bool

    @staticmethod
    def of(moments: Moments, origin: Matrix, balance: bool) -> _Ridge:
        """The spectrum from sums over features minus their origin."""
        n, mean, counts = moments.n, moments.x_sum.numpy() / moments.n, moments.y_sum.numpy()
        S = moments.xx.numpy() - n * np.outer(mean, mean)
        values, vectors = np.linalg.eigh(S)
        products = vectors.T @ (moments.xy.numpy() - np.outer(mean, counts))
        size = float(np.trace(S)) / n or 1.0
        return _Ridge(mean + origin, np.maximum(values, 0), vectors, products, counts, size, balance)

    def rotated(self, block: Block) -> Block:
        """Examples rotated to the vectors, for `held_out`, except those that are alone in their class."""
        known = self.counts[block.codes] > 1
        return Block((block.features[known] - self.mean) @ self.vectors, block.codes[known])

    def held_out(self, rotated: Block, lam: float) -> Matrix:
        """Leave-one-out scores of examples: y - (y - f) / slack, where slack is 1 minus the leverage."""
        Z, n, shrinkage = rotated.features, self.counts.sum(), 1 / (self.values + lam)
        own = np.arange(len(Z)), rotated.codes
        slack = 1 - 1 / n - np.square(Z) @ shrinkage
        predictions = (Z @ (shrinkage[:, None] * self.products) + self.counts / n) / slack[:, None]
        predictions[own] += 1 - 1 / slack
        shares = np.tile(self.counts / (n - 1), (len(Z), 1))
        shares[own] -= 1 / (n - 1)
        return (balanced if self.balance else observed)(predictions, shares)

    def chosen_lam(self, rotated: Block) -> float:
        """The most probable lambda of the grid, found by holding out the examples of a sample."""

        def cost(multiple: float) -> float:
            scores = self.held_out(rotated, multiple * self.size)
            return prior_cost(multiple) + calibrate(scores, rotated.codes, RIDGE_SCALE, precision=0.05).loss

        chosen: float = min(GRID, key=cost)
        return chosen * self.size

    def map(self, lam: float) -> LinearMap:
        """Scores as one linear map of features."""
        weights = self.vectors @ (self.products / (self.values[:, None] + lam))
        shares = self.counts / self.counts.sum()
        scored = balanced if self.balance else observed
        offset = scored(np.zeros((1, len(shares))), shares)[0]
        slope = scored(np.ones((1, len(shares))), shares)[0] - offset
        return LinearMap(weights * slope, (shares - self.mean @ weights) * slope + offset)


def embed_shards(
    pictures: Sequence[Picture], labels: Sequence[str], embedding: str, folder: Path, client: Any, rows: int = ROWS
) -> FeatureShards:
    """Embed images into shards, on a disk that all workers can read; existing shards are kept."""
    classes, codes = np.unique(np.asarray(labels, dtype=str), return_inverse=True)
    embedder, codes = choose_embedder(embedding, pictures), codes.astype(np.int64)
    name = embedder.name if embedding == "auto" else embedding
    names, starts = [picture.name for picture in pictures], range(0, len(pictures), rows)
    sizes = [min(rows, len(pictures) - start) for start in starts]
    digest = digest_of_names(names, codes, f"{name} {embedder.digest}")
    shards = write_index(folder, [str(each) for each in classes], sizes, name, digest)
    parts = {number: slice(starts[number], starts[number] + sizes[number]) for number in shards.missing()}
    tasks = [
        client.submit(_embed_shard, shards, number, names[part], codes[part], name, embedder.digest, pure=False)
        for number, part in parts.items()
    ]
    client.gather(tasks)
    return shards


@lru_cache(maxsize=1)
def _embedder_here(embedding: str) -> Any:
    """The embedding of this worker, loaded once."""
    return choose_embedder(embedding, ())


def _features_of(names: Sequence[str], embedding: str, digest: str = "") -> Matrix:
    embedder = _embedder_here(embedding)
    if digest and embedder.digest != digest:
        raise InvalidOptionError(
            f"A worker has different weights for '{embedding}' than the machine that started the job."
        )
    return embed([Picture(name) for name in names], embedder, None, thumbnails=False).features


def _embed_shard(
    shards: FeatureShards, number: int, names: Sequence[str], codes: Labels, embedding: str, digest: str
) -> None:
    write_shard(shards, number, Block(_features_of(names, embedding, digest), codes, names))


def predict_shards(model: LinearClassifier, blocks: Blocks, out: Path, client: Any) -> list[Path]:
    """Write the label and probability of every example, one Parquet file per block; existing files are kept."""
    out.mkdir(parents=True, exist_ok=True)
    paths = [out / f"part-{number:06d}.parquet" for number in range(len(blocks))]
    shared = _sent(client, model)
    tasks = [
        client.submit(_predict_block, shared, blocks, number, path, pure=False)
        for number, path in enumerate(paths)
        if not path.exists()
    ]
    client.gather(tasks)
    return paths


def _predict_block(model: LinearClassifier, blocks: Blocks, number: int, path: Path) -> None:
    block = blocks.read(number)
    features = block.features if len(block.features) else _features_of(block.names, model.embedding)
    _write_parquet(path, block.names or [f"{number}/{row}" for row in range(len(features))], model, features)


@dataclass(frozen=True)
class ImagePaths:
    """Images to predict, in blocks; workers embed a block when they read it."""

    names: tuple[str, ...]
    classes: tuple[str, ...] = ()
    rows: int = ROWS

    def __len__(self) -> int:
        return len(range(0, len(self.names), self.rows))

    def read(self, number: int) -> Block:
        """A block with names only; features come from the classifier's embedding."""
        part = self.names[number * self.rows : (number + 1) * self.rows]
        return Block(np.empty((0, 0)), np.full(len(part), -1), part)


def _write_parquet(path: Path, names: Sequence[str], model: LinearClassifier, features: Matrix) -> None:
    import pyarrow
    from pyarrow import parquet

    probabilities = model.predict_proba(features)
    best = probabilities.argmax(1)
    columns = {
        "image": list(names),
        "label": [model.classes[each] for each in best],
        "probability": probabilities[np.arange(len(best)), best],
    }
    with replacing(path) as temporary:
        parquet.write_table(pyarrow.table(columns), temporary)
