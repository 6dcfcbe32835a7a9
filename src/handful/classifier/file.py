"""The file of a classifier: safetensors with a JSON header, without executable code, checked when read."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from handful import __version__
from handful.classifier.duplicates import near_limit
from handful.classifier.embedder import (
    PACKAGED,
    AnyEmbedder,
    Embedder,
    Joined,
    backbone_embedder,
    choose_embedder,
    named_embedder,
    trained_embedder,
)
from handful.classifier.examples import Options, Source, State
from handful.classifier.heads import maker
from handful.classifier.inputs import Labels, Matrix
from handful.classifier.prior import Prior
from handful.embeddings.preprocessing import preprocessing_from_json
from handful.errors import CheckpointError, DataError, HandfulError, InvalidOptionError, NewerFormatError
from handful.meta.checkpoint import read_checkpoint, write_checkpoint
from handful.meta.run import TrainedModel, trained_model
from handful.solvers.factor import restored_factor

KIND = "classifier"
MOST_PARTS = 8
"""The most embeddings that a file may join."""
MOST_TARGETS = 250_000_000
"""Limit on examples times classes, because targets take 8 bytes each, whatever the size of the file."""
_DIGEST = re.compile(r"([0-9a-f]{64})?")
"""The digest of an example. Files are named after it, so anything else is refused."""
LABELS = {"U": str, "i": int, "u": int, "f": float, "b": bool}


def write_file(path: Path, state: State, embedder: AnyEmbedder | None, thumbnails: bool) -> None:
    """Write a classifier, completely or not at all."""
    if state.classes.dtype.kind not in LABELS and not all(isinstance(each, str) for each in state.classes):
        raise InvalidOptionError(
            f"Labels of type {state.classes.dtype} cannot be saved. Use text, integers, floats or booleans."
        )
    if len(state.codes) * len(state.classes) > MOST_TARGETS:
        raise InvalidOptionError(
            f"{path} was not written, because it could not be read back: {len(state.codes):,} examples times "
            f"{len(state.classes):,} classes are more than {MOST_TARGETS:,}. Use fit --scheduler for so many."
        )
    options, prior = state.options, state.options.prior
    pictures = [source.thumbnail if thumbnails else b"" for source in state.sources]
    tensors = {
        "features": state.factor.X,
        "factor": state.factor.L,
        "origin": torch.from_numpy(np.ascontiguousarray(state.origin)),
        "codes": torch.from_numpy(state.codes),
        "thumbnail_sizes": torch.tensor([len(each) for each in pictures], dtype=torch.int64),
        "thumbnails": torch.from_numpy(np.frombuffer(b"".join(pictures), dtype=np.uint8).copy()),
        **_coefficients(state),
        **({} if prior is None else {"prior": torch.from_numpy(prior.vectors)}),
        **_embedding_tensors(embedder),
    }
    facts = {
        "kind": KIND,
        "handful": __version__,
        "classes": state.classes.tolist(),
        "label_type": "U" if state.classes.dtype.kind == "O" else state.classes.dtype.kind,
        "learner": options.learner,
        "lam_option": options.lam if options.lam == "auto" else float(options.lam),
        "balance": bool(options.balance),
        "tune_limit": int(options.tune_limit),
        "form": state.factor.form,
        "lam": float(state.factor.lam),
        "head_lam": state.head_lam,
        "scale": state.scale,
        "near": state.near,
        "tuned_at": state.tuned_at,
        "version": state.version,
        "prior_labels": None if prior is None else prior.labels.tolist(),
        "prior_weight": state.prior_weight,
        "names": [source.name for source in state.sources],
        "digests": [source.digest for source in state.sources],
        "embedding": None if embedder is None else _embedding_facts(embedder),
    }
    write_checkpoint(path, tensors, facts)


def read_file(path: Path, embedding: Any = None, device: str = "cpu") -> tuple[State, AnyEmbedder | None]:
    """Read a classifier from a file. `embedding` is needed if it was made with the user's own network."""
    if not path.is_file():
        raise CheckpointError(f"There is no classifier {path}. Create one: handful fit FOLDER -o {path}")
    try:
        tensors, facts = read_checkpoint(path)
    except NewerFormatError:
        raise
    except CheckpointError as error:
        raise CheckpointError(
            f"{path} is not a classifier that handful saved, or is incomplete ({error.__cause__ or error}). "
            f"Copy it again, or create it again with handful fit."
        ) from error
    if facts.get("kind") != KIND:
        raise CheckpointError(
            f"{path} was written by handful, but it is not a classifier with examples. Is it a checkpoint of a run? "
            f"Use one that was fitted with --scheduler with handful predict --scheduler."
        )
    try:
        state = _state(tensors, facts)
        embedder = _embedder(tensors, facts["embedding"], embedding, path, device)
    except (CheckpointError, InvalidOptionError, DataError):
        raise
    except (HandfulError, KeyError, TypeError, ValueError, IndexError, RuntimeError, AttributeError) as error:
        raise CheckpointError(f"{path} does not hold a complete classifier: {str(error).rstrip('.')}.") from error
    return state, embedder


def _coefficients(state: State) -> dict[str, Tensor]:
    """The solution without the prior, for other readers of the file: dual coefficients or weights, and the bias."""
    factor, targets = state.factor, torch.from_numpy(state.targets)
    solution = factor.solve(targets)
    if factor.form == "primal":
        return {"weights": solution.weights, "bias": solution.bias}
    return {"dual": (targets - solution(factor.X)) / factor.lam, "bias": solution.bias}


def _state(tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> State:
    features, L, origin = (_matrix(tensors[name]) for name in ("features", "factor", "origin"))
    codes = tensors["codes"].numpy()
    classes = _classes(facts)
    _require_shapes(features, origin, codes, classes)
    numbers = {name: float(facts[name]) for name in ("lam", "head_lam", "scale")}
    if not all(np.isfinite(value) and value > 0 for value in numbers.values()):
        raise ValueError(f"lambda and scale must be positive, but are {numbers}")
    maker(str(facts["learner"]))
    lam = facts["lam_option"]
    options = Options(
        str(facts["learner"]), lam if lam == "auto" else float(lam), bool(facts["balance"]), int(facts["tune_limit"]),
        _prior(tensors, facts, features.shape[1]),
    )  # fmt: skip
    factor = restored_factor(torch.from_numpy(features), numbers["lam"], torch.from_numpy(L), facts["form"])
    sources = _sources(tensors, facts, len(codes))
    return State(
        options, classes, codes.astype(np.int64), sources, origin, factor, numbers["head_lam"], numbers["scale"],
        _near(facts, features, codes, sources), int(facts["tuned_at"]), version=int(facts.get("version", 1)),
        prior_weight=_prior_weight(facts),
    )  # fmt: skip


def _classes(facts: Mapping[str, Any], name: str = "classes", fewest: int = 2) -> NDArray[Any]:
    kind = LABELS[facts["label_type"]]
    if not all(type(each) is kind for each in facts[name]):
        raise ValueError("its class names are not of the type that it says")
    classes = np.array(facts[name])
    if len(np.unique(classes)) != len(classes) or len(classes) < fewest:
        raise ValueError(f"its {name} are not {fewest} or more different ones")
    return classes


def _prior(tensors: Mapping[str, Tensor], facts: Mapping[str, Any], e: int) -> Prior | None:
    """The class vectors of a file; older files have none."""
    if facts.get("prior_labels") is None:
        return None
    labels, vectors = _classes(facts, "prior_labels", 1), _matrix(tensors["prior"])
    if vectors.shape != (len(labels), e) or facts["learner"] != "ridge":
        raise ValueError(f"its prior of shape {vectors.shape} does not match its classes, features or learner")
    return Prior(labels, vectors)


def _prior_weight(facts: Mapping[str, Any]) -> float:
    weight = float(facts.get("prior_weight", 0.0))
    if not (np.isfinite(weight) and weight >= 0):
        raise ValueError(f"the weight of its prior is {weight}")
    return weight


def _require_shapes(features: NDArray[Any], origin: NDArray[Any], codes: NDArray[Any], classes: NDArray[Any]) -> None:
    n, e = features.shape
    if origin.shape != (e,) or codes.shape != (n,):
        raise ValueError(f"its tensors have shapes {features.shape}, {origin.shape}, {codes.shape}")
    if n * len(classes) > MOST_TARGETS:
        raise ValueError(f"it has {n:,} examples of {len(classes):,} classes, {n * len(classes):,} pairs of the two")
    if sorted(set(codes.tolist())) != list(range(len(classes))):
        raise ValueError("its examples do not belong to its classes")


def _near(facts: Mapping[str, Any], features: Matrix, codes: Labels, sources: Sequence[Source]) -> float:
    """The distance of near duplicates, which files of 0.1 do not have."""
    if "near" not in facts:
        return near_limit(features, codes, np.array([bool(source.name) for source in sources]))
    near = float(facts["near"])
    if not (np.isfinite(near) and near >= 0):
        raise ValueError(f"the distance of near duplicates must be 0 or more, but is {near}")
    return near


def _sources(tensors: Mapping[str, Tensor], facts: Mapping[str, Any], n: int) -> tuple[Source, ...]:
    sizes, content = tensors["thumbnail_sizes"].tolist(), tensors["thumbnails"].numpy().tobytes()
    names, digests = facts["names"], facts["digests"]
    if not len(sizes) == len(names) == len(digests) == n or min(sizes, default=0) < 0 or sum(sizes) != len(content):
        raise ValueError("its examples, names and thumbnails differ in number")
    if not all(isinstance(each, str) and _DIGEST.fullmatch(each) for each in digests):
        raise ValueError("its digests are not SHA-256 in hexadecimal")
    ends = np.cumsum(sizes)
    return tuple(
        Source(str(name), str(digest), content[end - size : end])
        for name, digest, size, end in zip(names, digests, sizes, ends, strict=True)
    )


def _matrix(tensor: Tensor) -> NDArray[np.float64]:
    if tensor.dtype != torch.float64 or not bool(torch.isfinite(tensor).all()):
        raise ValueError("a tensor of it is not of finite float64 numbers")
    return tensor.numpy()


def _embedding_facts(embedder: AnyEmbedder) -> dict[str, Any]:
    if isinstance(embedder, Joined):
        return {"kind": "joined", "name": embedder.name, "parts": [_embedding_facts(part) for part in embedder.parts]}
    trained = embedder.trained
    return {
        "kind": embedder.kind,
        "origin": embedder.origin,
        "digest": embedder.digest,
        "preprocessing": embedder.preprocessing.as_json(),
        "recipe": None if trained is None else trained.recipe.as_json(),
        "episodes": None if trained is None else trained.episodes,
        "image_shape": None if trained is None else list(trained.image_shape),
    }


def _embedding_tensors(embedder: AnyEmbedder | None) -> dict[str, Tensor]:
    return {
        f"{prefix}{name}": value
        for prefix, part in _parts(embedder)
        if part.trained is not None
        for name, value in part.trained.model.state_dict().items()
    }


def _parts(embedder: AnyEmbedder | None) -> list[tuple[str, Embedder]]:
    """Each part of an embedding with the prefix of its tensors' names."""
    if isinstance(embedder, Joined):
        return [(f"embedding.{number}.", part) for number, part in enumerate(embedder.parts)]
    return [] if embedder is None else [("embedding.", embedder)]


def _embedder(
    tensors: Mapping[str, Tensor], facts: Mapping[str, Any] | None, embedding: Any, path: Path, device: str
) -> AnyEmbedder | None:
    if facts is None:
        return None
    if facts["kind"] != "joined":
        return _single_embedder(tensors, facts, "embedding.", embedding, path, device)
    if not 2 <= len(facts["parts"]) <= MOST_PARTS:
        raise ValueError(f"its embedding has {len(facts['parts'])} parts")
    parts = tuple(
        _single_embedder(tensors, part, f"embedding.{number}.", None, path, device)
        for number, part in enumerate(facts["parts"])
    )
    return Joined(parts, str(facts["name"]))


def _single_embedder(
    tensors: Mapping[str, Tensor], facts: Mapping[str, Any], prefix: str, embedding: Any, path: Path, device: str
) -> Embedder:
    wanted, origin = preprocessing_from_json(facts["preprocessing"]), str(facts["origin"])
    found: AnyEmbedder
    if facts["kind"] in ("characters", "run"):
        found = trained_embedder(_trained(tensors, facts, prefix), facts["kind"], origin, device)
    elif facts["kind"] == "photographs":
        found = named_embedder("photographs", device)
    elif facts["kind"] == "named":
        found = named_embedder(origin, device) if origin in PACKAGED else backbone_embedder(origin, device)
    elif embedding is None:
        raise CheckpointError(
            f"{path} was made with your own network ('{facts['origin']}'), which is not in the file. "
            f"Load it with FewShotClassifier.load(path, embedding=...)."
        )
    else:
        found = choose_embedder(embedding, (), device)
    known = (found.digest, found.former or found.digest) if isinstance(found, Embedder) else ()
    if not isinstance(found, Embedder) or facts["digest"] not in known or found.preprocessing != wanted:
        raise CheckpointError(
            f"{path} was made with another embedding ('{facts['origin']}', {str(facts['digest'])[:12]}...) than the "
            f"one available ('{found.name}', {found.digest[:12]}...), so its examples cannot be used with it. "
            f"Fit the classifier again, or provide the embedding that it was made with."
        )
    return found


def _trained(tensors: Mapping[str, Tensor], facts: Mapping[str, Any], prefix: str) -> TrainedModel:
    weights = {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}
    return trained_model(weights, facts["recipe"], facts["image_shape"], facts["episodes"])
