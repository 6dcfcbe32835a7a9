"""The embeddings of a project: which can be chosen, which one is in use, and the features of every image by it."""

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
"""The copy of the file that a project was made from."""
GLANCES = 12
"""Images by which an embedding is chosen."""


class Embeddings:
    """What a project's images look like to the embedding in use; called under the lock of its session."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._loaded: dict[str, AnyEmbedder] = {}
        self.active = ""
        """The one in use; empty before the first image."""
        self.features: dict[str, Matrix] = {}
        """The features of the images by the one in use."""

    def __repr__(self) -> str:
        return f"Embeddings({self.active or 'none yet'!r}, {len(self.features)} images)"

    def names(self) -> list[str]:
        """Those that can be chosen here."""
        return [*_installed(), *(["file"] if (self._project.folder / OPENED).exists() else [])]

    @property
    def chosen(self) -> str:
        """The one that was asked for last, or "auto"."""
        return str(self._project.facts.get("embedding", "auto"))

    def require(self, name: str) -> None:
        """Refuse an embedding that is not here, or that cannot see all images."""
        if name not in self.names():
            raise InvalidOptionError(f"The embedding is one of {', '.join(self.names())}, but got {name[:40]!r}.")
        whole = [item for item in self._project.items() if not self._project.image(item).exists()]
        if name != "file" and whole:
            raise InvalidOptionError(
                f"{len(whole)} images came with a .handful file, which holds their features and not the images "
                f"themselves, so another embedding cannot see them. Delete them, or start from the images."
            )

    def embedder(self, name: str) -> AnyEmbedder:
        """An embedding by name, loaded at its first use."""
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
        """The images that this embedding has not seen."""
        items = self._project.items()
        done = self.features if name == self.active else self.known(name)
        return [item for item in items if item not in done]

    def known(self, name: str, items: Sequence[str] | None = None) -> dict[str, Matrix]:
        """The features of all images of the project, or of some, that this embedding has seen."""
        return self._project.features(
            self.embedder(name).digest, [*self._project.items()] if items is None else [*items]
        )

    def activate(self) -> bool:
        """Take up the chosen one if it has seen every image, or if there is none in use yet; whether it changed."""
        name = self.chosen
        if name in ("auto", self.active) or (self.active and self.missing(name)):
            return False
        self.active, self.features = name, self.known(name)
        return True

    def recall(self) -> None:
        """Bring back the features of images that were deleted and are here again."""
        back = [item for item in self._project.items() if item not in self.features]
        if back and self.active:
            self.features |= self.known(self.active, back)

    def choose(self) -> str:
        """The embedding that suits the images, by a look at some; a complaint if the best is not installed."""
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
        """The features (n, e) of images; needs no lock."""
        return embed(pictures, self.embedder(name), None, thumbnails=False).features


@cache
def _installed() -> tuple[str, ...]:
    """The embeddings by name; asked once, because looking for packages costs a millisecond."""
    named = ["characters"]
    if find_spec(PACKAGED["photographs"].package) is not None:
        named.append("photographs")
    if all(find_spec(which.package) is not None for which in PACKAGED.values()):
        named += ALIASES
    return tuple(named)
