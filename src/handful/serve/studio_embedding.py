"""The embeddings of a project: the available ones, the one in use, and its features of every image."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec

from handful.classifier.embedder import ALIASES, PACKAGED, AnyEmbedder, automatic, choose_embedder
from handful.classifier.features import embed
from handful.classifier.file import read_file
from handful.classifier.inputs import Matrix, Picture
from handful.errors import DataError, InvalidOptionError
from handful.serve.studio_store import Project

TITLES = {
    "characters": "Drawings: comes with handful, fast",
    "photographs": "Photographs: EfficientNet-Lite0",
    "photographs-large": "Photographs: two networks, slower and usually better",
    "file": "The embedding of the opened file",
}
OPENED = "opened.handful"
"""A copy of the file that a project was made from."""
GLANCES = 12
"""Number of images that are inspected to choose an embedding."""


class Embeddings:
    """The features of a project's images; call its methods under the lock of the session."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._loaded: dict[str, AnyEmbedder] = {}
        self.active = ""
        """The embedding in use; empty before the first image."""
        self.features: dict[str, Matrix] = {}
        """The features of the images by the embedding in use."""

    def __repr__(self) -> str:
        return f"Embeddings({self.active or 'none yet'!r}, {len(self.features)} images)"

    def names(self) -> list[str]:
        """The names of the embeddings that can be chosen."""
        return [*_installed(), *(["file"] if (self._project.folder / OPENED).exists() else [])]

    @property
    def chosen(self) -> str:
        """The embedding that was chosen last, or "auto"."""
        return str(self._project.facts.get("embedding", "auto"))

    def require(self, name: str) -> None:
        """Raise if an embedding is not available, or cannot embed all images."""
        if name not in self.names():
            raise InvalidOptionError(f"The embedding must be one of {', '.join(self.names())}, but got {name[:40]!r}.")
        whole = [item for item in self._project.items() if not self._project.image(item).exists()]
        if name != "file" and whole:
            raise InvalidOptionError(
                f"{len(whole)} images came with a .handful file, which holds their features but not the images "
                f"themselves, so another embedding cannot be used. Delete them, or start from the images."
            )

    def embedder(self, name: str) -> AnyEmbedder:
        """An embedding by name, loaded on first use."""
        if name not in self._loaded:
            if name == "file":
                _, found = read_file(self._project.folder / OPENED, None)
                if found is None:
                    raise DataError("This file was made from features, so it has no embedding for images.")
                self._loaded[name] = found
            else:
                self._loaded[name] = choose_embedder(name, ())
        return self._loaded[name]

    def missing(self, name: str) -> list[str]:
        """The images that this embedding has not embedded yet."""
        items = self._project.items()
        done = self.features if name == self.active else self.known(name)
        return [item for item in items if item not in done]

    def known(self, name: str, items: Sequence[str] | None = None) -> dict[str, Matrix]:
        """The features of all or some images of the project that this embedding has already embedded."""
        return self._project.features(
            self.embedder(name).digest, [*self._project.items()] if items is None else [*items]
        )

    def activate(self) -> bool:
        """Use the chosen embedding if it has embedded every image, or if none is in use; returns whether it changed."""
        name = self.chosen
        if name in ("auto", self.active) or (self.active and self.missing(name)):
            return False
        self.active, self.features = name, self.known(name)
        return True

    def recall(self) -> None:
        """Restore the features of images that were deleted and added again."""
        back = [item for item in self._project.items() if item not in self.features]
        if back and self.active:
            self.features |= self.known(self.active, back)

    def choose(self) -> str:
        """The embedding that suits some of the images, and a message if the best one is not installed."""
        complaint = ""
        try:
            name = automatic([self.picture(item) for item in [*self._project.items()][:GLANCES]])
        except DataError as error:
            name, complaint = "characters", f"{error} Until then the embedding for drawings is used."
        self._project.settle({"embedding": name})
        return complaint

    def picture(self, item: str) -> Picture:
        """An image of the project."""
        return Picture(self._project.items()[item]["name"], self._project.image(item).read_bytes())

    def look(self, name: str, pictures: Sequence[Picture]) -> Matrix:
        """The features (n, e) of images; this needs no lock."""
        return embed(pictures, self.embedder(name), None, thumbnails=False).features


@cache
def _installed() -> tuple[str, ...]:
    """The installed embeddings by name, cached because looking for packages takes a millisecond."""
    named = ["characters"]
    if find_spec(PACKAGED["photographs"].package) is not None:
        named.append("photographs")
    if all(find_spec(which.package) is not None for which in PACKAGED.values()):
        named += ALIASES
    return tuple(named)
