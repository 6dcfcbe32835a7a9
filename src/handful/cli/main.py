"""The command `handful`: it runs one subcommand, prints errors as one line and exits with code 2 for them."""

from __future__ import annotations

import contextlib
import io
import os
import re
import signal
import sys
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from functools import reduce
from itertools import pairwise
from operator import or_
from pathlib import Path
from typing import Annotated, cast, get_args

import tyro
from tyro import MISSING
from tyro.conf import OmitSubcommandPrefixes, subcommand

from handful.cli.data import Cache, Data
from handful.cli.evaluate import Evaluate
from handful.cli.fit import Add, Fit, Forget
from handful.cli.machine import HANGUP, drop_output, let_go_of_the_terminal, plain, plain_output, prepare_streams
from handful.cli.predict import Predict
from handful.cli.reproduce import Recipes, Reproduce
from handful.cli.serve import Serve, Studio
from handful.cli.test import Inspect, Test
from handful.cli.train import Demo, Train, flags_of
from handful.errors import HandfulError, InvalidOptionError
from handful.meta.config import Recipe
from handful.paper.recipes import named_recipe

Command = (
    Fit
    | Predict
    | Test
    | Add
    | Forget
    | Inspect
    | Cache
    | Serve
    | Studio
    | Demo
    | Train
    | Evaluate
    | Data
    | Recipes
    | Reproduce
)

_RULE = re.compile(r"[│| ]*[─-]{10,}[│| ]*")
_INSIDE = re.compile(r"Error parsing __tyro\S*: ")
_MEANT = re.compile(r"; Perhaps you meant: (--[a-z0-9.-]+).*? in handful (\w+) --help")
_NOT_A_NUMBER = re.compile(r"Error parsing (\S+): invalid literal for int\(\) with base 10: (.*)")
_NOT_A_FLOAT = re.compile(r"Error parsing (\S+): could not convert string to float: (.*)")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code is 0, 1 for a failed check, 2 for bad input, 130 or 143 when stopped."""
    prepare_streams()
    words = list(sys.argv[1:] if arguments is None else arguments)
    for each in (signal.SIGTERM, *([] if HANGUP is None else [HANGUP])):
        if signal.getsignal(each) is not signal.SIG_IGN:  # nohup has SIGHUP ignored
            signal.signal(each, _terminate)
    return _run(words)


def _run(words: list[str]) -> int:
    try:
        return _print_version() if words in (["--version"], ["-V"]) else _run_command(words)
    except HandfulError as error:
        print(f"handful: {plain(error)}", file=sys.stderr)
        return 2
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and not re.search("allocate memory|out of memory", str(error)):  # PyTorch's
            raise
        print("handful: not enough memory. Close other programs, or use fewer or smaller images.", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nhandful: stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:
        drop_output()
        return 141
    except OSError as error:
        where = f": {plain(error.filename)}" if error.filename else ""
        print(f"handful: {error.strerror or error}{where}", file=sys.stderr)
        drop_output()
        return 2


def _print_version() -> int:
    from handful import __version__

    with plain_output():
        print(f"handful {__version__}")
    return 0


def _run_command(words: list[str]) -> int:
    command = _parse(words)
    with plain_output():
        return command.run()


def _parse(words: list[str]) -> Command:
    _check_command(words)
    complaint = io.StringIO()
    asked = not words or {"-h", "--help"} & set(words)
    try:
        with contextlib.redirect_stderr(complaint), _coloured(bool(asked) and not os.environ.get("NO_COLOR")):
            return tyro.cli(
                _commands(words),
                prog="handful",
                description="Learn to classify images from a handful of examples. --version prints the version.",
                args=words or ["--help"],
                config=(OmitSubcommandPrefixes,),
            )
    except SystemExit as stop:
        if stop.code:
            print(f"handful: {_one_line(complaint.getvalue())}", file=sys.stderr)
        else:
            print(complaint.getvalue(), end="", file=sys.stderr)
        raise


def _commands(words: list[str]) -> type[Command]:
    """The commands; the defaults of `train`'s flags come from the recipe that it starts from."""
    recipe = _starting_recipe(words) if words[:1] == ["train"] else None
    train = None if recipe is None else Train(out=MISSING, recipe=flags_of(recipe))
    training = subcommand("train") if train is None else subcommand("train", default=train)
    kinds = (
        Annotated[kind, training if kind is Train else subcommand(kind.__name__.lower())] for kind in get_args(Command)
    )
    return cast("type[Command]", reduce(or_, kinds))


def _starting_recipe(words: list[str]) -> Recipe | None:
    """The recipe that `train --recipe` names, or that of the run to resume."""
    if named := _given(words, "--recipe"):
        return named_recipe(named)
    out = _given(words, "--out")
    if not out or "--resume" not in words:
        return None
    from handful.meta.run import read_recipe

    return read_recipe(Path(out))


def _given(words: list[str], flag: str) -> str:
    """The value of a flag, given with a space or an equals sign; the last one counts."""
    pairs = [pair for word, after in pairwise([*words, ""]) for pair in ((word, after), word.partition("=")[::2])]
    return ([""] + [value for word, value in pairs if word == flag and value])[-1]


def _check_command(words: list[str]) -> None:
    """Raise an error for an unknown command, and suggest the closest one."""
    names = [each.__name__.lower() for each in get_args(Command)]
    if words and not words[0].startswith("-") and words[0] not in names:
        near = get_close_matches(words[0], names, 1)
        hint = f"Did you mean {near[0]}?" if near else f"The commands are {', '.join(names)}."
        raise InvalidOptionError(f"There is no command '{words[0]}'. {hint} See handful --help")


@contextlib.contextmanager
def _coloured(wanted: bool) -> Iterator[None]:
    """Choose whether tyro may print colours; it only looks at TERM."""
    terminal = os.environ.get("TERM")
    if not wanted:
        os.environ["TERM"] = "dumb"
    try:
        yield
    finally:
        os.environ.pop("TERM", None)
        if terminal is not None:
            os.environ["TERM"] = terminal


def _one_line(complaint: str) -> str:
    """Turn tyro's boxed error message into one line: what was wrong, what is allowed, where to find help."""
    inside = (line.strip("│| ") for line in complaint.splitlines()[1:-1])  # on ASCII terminals the box is ASCII too
    lines = [";" if not line or _RULE.fullmatch(line) else line for line in inside]
    said = " ".join(lines).replace(" ; ", "; ").lstrip("; ")
    said = _INSIDE.sub("", said)
    said = _NOT_A_NUMBER.sub(r"\1 takes a whole number, but got \2", said)
    said = _NOT_A_FLOAT.sub(r"\1 takes a number, but got \2", said)
    if meant := _MEANT.search(said):
        return f"{said[: meant.start()]}. Did you mean {meant[1]}? See handful {meant[2]} --help"
    what, _, _ = said.partition("Argument helptext:")
    what, _, help_at = what.partition("For full helptext, ")
    return f"{what.strip().rstrip('.;')}. {(help_at or 'see handful --help').strip().capitalize()}"


def _terminate(number: int, frame: object) -> None:
    """Unwind the stack on SIGTERM and SIGHUP as on Ctrl-C, so that nothing is left half done."""
    if number == HANGUP:
        let_go_of_the_terminal()
    print("\nhandful: terminated", file=sys.stderr)
    raise SystemExit(128 + number)
