"""Draw the sets of photographs that results/own-images.md is measured on, the same ones from the same files.

    python -m benchmarks.photo_sets birds CUB-200-2011-dataset PHOTOGRAPHS

copies PHOTOGRAPHS/birds and, for choosing constants, PHOTOGRAPHS/birds-dev with other classes. The second argument is a
checkout of the repository that the set is taken from (`SOURCES`). Only JPEG files count, and only classes with at least
30 of them. Random numbers choose among sorted paths, so another layout of the same images gives another set.
"""

from __future__ import annotations

import argparse
import shutil
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np

LEAST = 30
"""Images of a class that are drawn at first; classes with fewer are left out."""


@dataclass(frozen=True)
class Draw:
    """How many classes are drawn for the test and for development, and what is kept of the test classes."""

    test: int
    dev: int
    kept: int
    images: int


SETS = {
    "birds": Draw(60, 40, 30, 22),
    "flowers": Draw(30, 30, 24, 22),
    "leaves": Draw(30, 8, 24, 22),
    "pets": Draw(30, 7, 24, 22),
    "textures": Draw(10, 0, 10, 30),
}


SOURCES = {
    "birds": "cyizhuo/CUB-200-2011-dataset",
    "flowers": "3ba2ii/Flower-Classifier",
    "leaves": "gabrieldgf4/PlantVillage-Dataset",
    "pets": "ml4py/dataset-iiit-pet",
    "textures": "pan8915/DeepTexture",
}
"""Public repositories with the images, on GitHub."""


def by_class(name: str, paths: list[str]) -> dict[str, list[str]]:
    """Paths relative to the checkout by class: that of the folder, or for pets that of the file's name."""
    classes: dict[str, list[str]] = {}
    for path in map(PurePosixPath, paths):
        if path.suffix.lower() == ".jpg":
            label = path.stem.rsplit("_", 1)[0] if name == "pets" else path.parent.name
            classes.setdefault(label, []).append(str(path))
    return classes


def drawn(classes: dict[str, list[str]], how: Draw) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Test and development classes with the paths of their images, from all paths by class."""
    generator = np.random.default_rng(0)
    names = sorted(name for name, images in classes.items() if len(images) >= LEAST)
    order = [names[i] for i in generator.permutation(len(names))]

    def images_of(chosen: list[str]) -> dict[str, list[str]]:
        return {
            name: [sorted(classes[name])[i] for i in sorted(generator.permutation(len(classes[name]))[:LEAST])]
            for name in chosen
        }

    test, dev = images_of(order[: how.test]), images_of(order[how.test : how.test + how.dev])
    kept = np.random.default_rng(0).permutation(len(test))[: how.kept]
    return {name: test[name][: how.images] for name in (sorted(test)[i] for i in kept)}, dev


def main() -> int:
    """Copy the images of one set."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.photo_sets", description=__doc__)
    parser.add_argument("name", choices=SETS)
    parser.add_argument("source", type=Path, help="checkout of the repository with the images")
    parser.add_argument("out", type=Path, help="folder of all sets")
    options = parser.parse_args()
    paths = [path.relative_to(options.source).as_posix() for path in options.source.rglob("*") if path.is_file()]
    chosen = drawn(by_class(options.name, paths), SETS[options.name])
    for suffix, classes in zip(("", "-dev"), chosen, strict=True):
        for label, images in classes.items():
            folder = options.out / f"{options.name}{suffix}" / label
            folder.mkdir(parents=True, exist_ok=True)
            for image in images:
                shutil.copy2(options.source / image, folder / PurePosixPath(image).name)
        print(f"{options.name}{suffix}: {len(classes)} classes, {sum(map(len, classes.values())):,} images")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
