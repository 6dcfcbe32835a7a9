"""The choice of embeddings: shipped, installed, meta-trained with handful, or the user's own network."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from handful.classifier.inputs import Matrix, Picture, pixels_of
from handful.embeddings import efficientnet
from handful.embeddings.backbones import PACKAGES, backbone, is_backbone
from handful.embeddings.preprocessing import Preprocessing
from handful.embeddings.runtime import RuntimeNetwork, has_runtime, lite_graph
from handful.errors import DataError, InvalidOptionError, NotFiniteError, ShapeError
from handful.meta.features import folded
from handful.meta.model import FewShotModel
from handful.meta.run import TrainedModel, read_run

CHARACTERS = Path(__file__).parent.parent / "weights" / "characters.safetensors"
"""The weights for drawings that come with the package, next to their model card."""
DRAWN_DATA = ("glyphs", "omniglot", "omniglot-nearest")
"""Data sets whose ink is bright on black."""
SAMPLE = 12
"""Number of pictures to inspect when deciding whether they are drawings."""
Network = Callable[[Tensor], Any]
Kind = Literal["characters", "photographs", "run", "named", "own"]
PACKAGED = {"photographs": efficientnet.LITE0, "efficientnet-lite2": efficientnet.LITE2}
"""Embeddings whose weights come in separate packages."""
ALIASES = {"photographs-large": "photographs+efficientnet-lite2"}
"""Short names for combinations of embeddings."""


@dataclass(frozen=True)
class ImageEmbedding:
    """Your own network with its preprocessing, for FewShotClassifier(embedding=...).

    The network takes float images (n, channels, size, size), in [0, 1] unless `mean` and `std` are given, and returns
    features (n, e) or feature maps (n, e, h, w), which are averaged. `name` identifies a callable that is not an
    `nn.Module` in the cache and in saved files; without a name its features are not cached.
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
        """How images are prepared for the network."""
        return Preprocessing(
            self.size, self.size, self.channels, self.fit, self.bright_ink, tuple(self.mean), tuple(self.std)
        )


@dataclass(frozen=True)
class Embedder:
    """Maps pixels to features of length 1, so that only their direction matters."""

    kind: Kind
    preprocessing: Preprocessing
    network: Network = field(repr=False)
    digest: str
    """Identifies weights and preprocessing; empty if they cannot be identified."""
    origin: str = ""
    """The run or name that it came from."""
    trained: TrainedModel | None = field(default=None, repr=False)
    """The model, if handful trained it; it is small enough to be stored in a classifier's file."""
    device: str = "cpu"
    former: str = ""
    """The digest in older files, which did not tell apart networks with the same weights and different layers."""

    @property
    def parts(self) -> tuple[Embedder, ...]:
        """The embedder itself: several are joined by `Joined`."""
        return (self,)

    @property
    def name(self) -> str:
        """The `embedding=` that gives this embedder, if it can be expressed as text."""
        return self.kind if self.kind in ("characters", "photographs") else self.origin or self.kind

    def __str__(self) -> str:
        return self.name if self.kind in ("named", "characters") else f"{self.kind} ({self.origin or 'a function'})"

    def __call__(self, pixels: NDArray[np.uint8]) -> Matrix:
        """Pixels (n, h, w, c) -> features (n, e), in float64."""
        with torch.no_grad():
            images = self.preprocessing.tensor(pixels).contiguous(memory_format=torch.channels_last)
            features = torch.as_tensor(self.network(images.to(self.device))).cpu()
        features = pooled(features)
        if features.ndim != 2 or len(features) != len(pixels):
            raise ShapeError(
                f"The embedding returned features of shape {tuple(features.shape)} for {len(pixels)} images; "
                f"expected ({len(pixels)}, e). For a network with another output, pass a function that selects it."
            )
        if not bool(torch.isfinite(features).all()):
            raise NotFiniteError("The embedding returned features that are not finite. Check its weights.")
        return unit_rows(features.double().numpy())


@dataclass(frozen=True)
class Joined:
    """Several embedders side by side: their features, with equal weight, in one row of length 1."""

    parts: tuple[Embedder, ...]
    name: str
    kind: Literal["joined"] = "joined"

    @property
    def digest(self) -> str:
        """Identifies all parts; empty if one of them cannot be identified."""
        digests = [part.digest for part in self.parts]
        return hashlib.sha256(" ".join(digests).encode()).hexdigest() if all(digests) else ""

    def __str__(self) -> str:
        return self.name


AnyEmbedder = Embedder | Joined


def pooled(features: Tensor) -> Tensor:
    """Feature maps (n, e, h, w), or the tokens (n, t, e) of a transformer, averaged to (n, e)."""
    if features.ndim == 4:
        return features.mean((-2, -1))
    return features.mean(1) if features.ndim == 3 else features


def unit_rows(features: Matrix) -> Matrix:
    """Rows divided by their length; rows of zeros are not changed."""
    lengths = np.linalg.norm(features, axis=1, keepdims=True)
    units: Matrix = features / np.where(lengths > 0, lengths, 1)
    return units


def candidates(embedding: Any) -> list[Any]:
    """The embeddings from which leave-one-out chooses: those of "auto:A,B", or the only one."""
    if not (isinstance(embedding, str) and embedding.startswith("auto:")):
        return [embedding]
    names = [name.strip() for name in embedding.removeprefix("auto:").split(",")]
    if not all(names):
        raise InvalidOptionError(f"Name the embeddings to choose from, as in auto:characters,photographs: {embedding}.")
    return names


def choose_embedder(embedding: Any, pictures: Sequence[Picture], device: str = "cpu") -> AnyEmbedder:
    """The embedder for the `embedding` argument; "auto" looks at some of the pictures."""
    if isinstance(embedding, str):
        return _from_text(embedding, pictures, device)
    if isinstance(embedding, Path):
        return run_embedder(embedding, device)
    if isinstance(embedding, ImageEmbedding):
        return own_embedder(embedding, device)
    if isinstance(embedding, FewShotModel):
        raise InvalidOptionError("A FewShotModel does not know its image size. Give the path of its run instead.")
    if callable(embedding):
        return own_embedder(ImageEmbedding(embedding), device)
    raise InvalidOptionError(
        f"embedding must be 'auto', 'characters', 'photographs', the path of a run, a network or a function, "
        f"but got {embedding!r}."
    )


def _from_text(text: str, pictures: Sequence[Picture], device: str) -> AnyEmbedder:
    if text == "auto":
        return _from_text(automatic(pictures), pictures, device)
    if text in PACKAGED or text == "characters":
        return named_embedder(text, device)
    if text in ALIASES or ("+" in text and not Path(text).exists()):
        parts = [_from_text(name.strip(), pictures, device) for name in ALIASES.get(text, text).split("+")]
        return Joined(tuple(part for each in parts for part in each.parts), text)
    if is_backbone(text):
        return backbone_embedder(text, device)
    return run_embedder(Path(text), device)


def automatic(pictures: Sequence[Picture]) -> str:
    """'characters' for drawings; otherwise 'photographs-large', or 'photographs' if only that is installed."""
    step = max(1, len(pictures) // SAMPLE)
    glances = []
    for picture in pictures[::step][:SAMPLE]:
        with suppress(DataError):  # unreadable images are reported later, all together
            glances.append(pixels_of(picture, picture.read(), Preprocessing(64, 64, 3, "squash").decoding))
    if not glances or looks_drawn(glances):
        return "characters"
    if find_spec(PACKAGED["photographs"].package) is None:
        raise DataError(
            "These images look like photographs, and the embedding for photographs is not installed. Type "
            "pip install 'handful[images]', or choose with embedding= or --embedding: a run of handful train, "
            "timm:NAME, hf:NAME, onnx:FILE, or 'characters' for drawings."
        )
    whole = all(find_spec(which.package) is not None for which in PACKAGED.values())
    return "photographs-large" if whole else "photographs"


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


def named_embedder(name: str, device: str = "cpu") -> Embedder:
    """An embedding that comes with handful or with a package."""
    if name == "characters":
        return trained_embedder(read_run(CHARACTERS), "characters", "characters", device)
    return _photo_embedder(name, device, torch.get_num_threads())


@lru_cache(maxsize=4)
def _photo_embedder(name: str, device: str, threads: int) -> Embedder:
    """A photo network, in ONNX Runtime if installed; the features agree to 5e-6, so both share a digest."""
    which = PACKAGED[name]
    preprocessing = Preprocessing(which.side, which.side, 3, "crop")
    published = efficientnet.published_efficientnet(which)
    digest = digest_of(published, preprocessing, which.name.title().replace("-", "").replace("net", "Net"))
    network = folded(published).to(device)
    fast = RuntimeNetwork(lite_graph(network), name) if device == "cpu" and has_runtime() else network
    if name == "photographs":
        return Embedder("photographs", preprocessing, fast, digest, f"{which.package} 0.1.0", device=device)
    return Embedder("named", preprocessing, fast, digest, name, device=device)


def torch_network(embedder: Embedder) -> nn.Module | None:
    """The PyTorch network, even if the embedder uses ONNX Runtime; None for a function or an ONNX file."""
    if embedder.name in PACKAGED:
        return folded(efficientnet.published_efficientnet(PACKAGED[embedder.name]))
    return embedder.network if isinstance(embedder.network, nn.Module) else None


def backbone_embedder(name: str, device: str = "cpu") -> Embedder:
    """The embedding of a network from another package, by name."""
    found = backbone(name)
    if not isinstance(found.network, nn.Module):
        digest = _hash(found.digest, found.preprocessing)
        return Embedder("named", found.preprocessing, found.network, digest, found.name)
    digest = digest_of(found.network, found.preprocessing)
    network = folded(found.network).to(device)
    return Embedder("named", found.preprocessing, network, digest, found.name, device=device)


def run_embedder(run: Path, device: str = "cpu") -> Embedder:
    """The embedding of a run folder or checkpoint of `handful train`."""
    if not run.exists():
        known = ["auto", "characters", *PACKAGED, *ALIASES]
        near = get_close_matches(str(run), known, 1)
        hint = f" Did you mean '{near[0]}'?" if near else ""
        raise InvalidOptionError(
            f"There is no embedding '{run}': not {', '.join(known[:-1])} or {known[-1]}, nor a network by name "
            f"({', '.join(f'{package}:...' for package in PACKAGES)}), nor the path of a run.{hint}"
        )
    return trained_embedder(read_run(run), "run", str(run), device)


def trained_embedder(
    trained: TrainedModel, kind: Literal["characters", "run"], origin: str, device: str = "cpu"
) -> Embedder:
    """The embedding of a model that handful trained."""
    channels, height, width = trained.image_shape
    if channels not in (1, 3):
        raise InvalidOptionError(f"The run {origin} was trained on images of {channels} channels, not 1 or 3.")
    preprocessing = Preprocessing(
        height, width, 1 if channels == 1 else 3, "squash", bright_ink=trained.recipe.data in DRAWN_DATA
    )
    network = nn.Sequential(trained.model.embedding, nn.Flatten(1))
    digest = digest_of(network, preprocessing)
    return Embedder(kind, preprocessing, folded(network).to(device), digest, origin, trained, device)


def own_embedder(own: ImageEmbedding, device: str = "cpu") -> Embedder:
    """An embedding around the user's network or function, which is not changed."""
    preprocessing = own.preprocessing
    if isinstance(own.network, nn.Module):
        kind = type(own.network).__name__
        digest = digest_of(own.network, preprocessing, f"{kind} {own.network!r}")  # layers without weights matter too
        network, former = folded(own.network).to(device), digest_of(own.network, preprocessing)
        return Embedder("own", preprocessing, network, digest, own.name or kind, device=device, former=former)
    digest = _hash(own.name, preprocessing) if own.name else ""
    return Embedder("own", preprocessing, own.network, digest, own.name)


def digest_of(network: nn.Module, preprocessing: Preprocessing, name: str = "") -> str:
    """SHA-256 of a network's class or name, its weights and the preprocessing."""
    digest = hashlib.sha256(_hash(name or type(network).__name__, preprocessing).encode())
    for key, value in sorted(network.state_dict().items()):
        digest.update(f"{key} {value.dtype} {tuple(value.shape)}".encode())
        digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _hash(name: str, preprocessing: Preprocessing) -> str:
    return hashlib.sha256(f"{name} {json.dumps(preprocessing.as_json(), sort_keys=True)}".encode()).hexdigest()
