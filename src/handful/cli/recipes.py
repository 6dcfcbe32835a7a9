"""`handful recipes`: the experiments that have a name."""

from __future__ import annotations

from dataclasses import dataclass

from tyro.conf import Positional


@dataclass(frozen=True)
class Recipes:
    """List the named recipes; train one with: handful train --recipe NAME --out FOLDER."""

    words: Positional[tuple[str, ...]] = ()
    """Only recipes whose name contains all of these, for example: handful recipes cifar-fs r2d2 authors."""
    show: str = ""
    """Show every value of this recipe, with its source: the paper's text, released code, or our choice."""

    def run(self) -> int:
        """Print a line for each recipe, or for each value of one."""
        return _show(self.show) if self.show else _list(self.words)


def _list(words: tuple[str, ...]) -> int:
    from handful.errors import InvalidOptionError
    from handful.paper.recipes import NAMED

    chosen = {name: entry for name, entry in NAMED.items() if all(word.lower() in name.lower() for word in words)}
    if not chosen:
        raise InvalidOptionError(
            f"No recipe's name contains {' and '.join(map(repr, words))}. `handful recipes` lists all {len(NAMED)}."
        )
    width = max(map(len, chosen))
    for name, entry in chosen.items():
        recipe = entry.recipe
        size = recipe.way * recipe.images_per_class
        print(f"{name:<{width}}  {entry.about}; {recipe.way}-way episodes of {size} images")
    more = "" if words else " Narrow them with words of their names, for example: handful recipes cifar-fs r2d2"
    print(f"{len(chosen)} of {len(NAMED)} recipes.{more}")
    return 0


def _show(name: str) -> int:
    from handful.learners.registry import default_options
    from handful.paper.recipes import NAMED, named_recipe
    from handful.paper.recipes.provenance import values_of

    recipe = named_recipe(name)
    rows = [(v.field, _written(v.value), v.source) for v in values_of(NAMED[name], default_options(recipe.learner))]
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    print(f"{name}: {NAMED[name].about}")
    for field, value, source in rows:
        print(f"  {field:<{widths[0]}}  {value:<{widths[1]}}  {source}")
    return 0


def _written(value: object) -> str:
    if isinstance(value, tuple | list):
        return ", ".join(map(str, value)) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else f"{value:g}" if isinstance(value, float) else str(value) or "-"
