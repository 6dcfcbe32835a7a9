"""`handful recipes`: the experiments that have a name."""

from __future__ import annotations

from dataclasses import dataclass

from tyro.conf import Positional


@dataclass(frozen=True)
class Recipes:
    """List the named recipes; train one with: handful train --recipe NAME --out FOLDER."""

    part: Positional[str] = ""
    """Only recipes whose name contains this."""

    def run(self) -> int:
        """Print a line for each recipe."""
        from handful.errors import InvalidOptionError
        from handful.recipes import NAMED

        chosen = {name: entry for name, entry in NAMED.items() if self.part in name}
        if not chosen:
            raise InvalidOptionError(
                f"No recipe's name contains '{self.part}'. `handful recipes` lists all {len(NAMED)}."
            )
        width = max(map(len, chosen))
        for name, entry in chosen.items():
            recipe = entry.recipe
            size = recipe.way * recipe.images_per_class
            print(f"{name:<{width}}  {entry.about}; {recipe.way}-way episodes of {size} images")
        return 0
