"""`handful recipes`: the experiments that have a name."""

from __future__ import annotations

from dataclasses import dataclass

from tyro.conf import Positional


@dataclass(frozen=True)
class Recipes:
    """List the named recipes; train one with: handful train --recipe NAME --out FOLDER."""

    part: Positional[str] = ""
    """Only recipes whose name contains this."""
    show: str = ""
    """Print every value of this recipe, with the place that it comes from."""

    def run(self) -> int:
        """Print a line for each recipe, or for each value of one."""
        if self.show:
            return _show(self.show)
        from handful.errors import InvalidOptionError
        from handful.paper.recipes import NAMED

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
