"""`handful`: one entry for all commands; errors are one line and exit code 2."""

from __future__ import annotations

import contextlib
import io
import re
import signal
import sys
from collections.abc import Sequence
from typing import Annotated, cast

import tyro
from tyro import MISSING
from tyro.conf import OmitSubcommandPrefixes, subcommand

from handful.cli.add import Add
from handful.cli.data import Data
from handful.cli.demo import Demo
from handful.cli.evaluate import Evaluate
from handful.cli.fit import Fit
from handful.cli.forget import Forget
from handful.cli.inspect import Inspect
from handful.cli.predict import Predict
from handful.cli.recipes import Recipes
from handful.cli.reproduce import Reproduce
from handful.cli.serve import Serve
from handful.cli.streams import HANGUP, drop_output, let_go_of_the_terminal, plain, plain_output, prepare_streams
from handful.cli.studio import Studio
from handful.cli.train import Train, flags_of
from handful.errors import HandfulError
from handful.paper.recipes import named_recipe

Command = Fit | Predict | Add | Forget | Inspect | Serve | Studio | Demo | Train | Evaluate | Data | Recipes | Reproduce

_BOX = re.compile(r"^[╭╰│─╮╯ ]+|[╭╰│─╮╯ ]+$")
_INSIDE = re.compile(r"Error parsing __tyro\S*: ")
_NOT_A_NUMBER = re.compile(r"Error parsing (\S+): invalid literal for int\(\) with base 10: (.*)")
_NOT_A_FLOAT = re.compile(r"Error parsing (\S+): could not convert string to float: (.*)")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code is 0, 1 for a failed check, 2 for bad input, 130 or 143 when stopped."""
    prepare_streams()
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words in (["--version"], ["-V"]):
        from handful import __version__

        print(f"handful {__version__}")
        return 0
    for each in (signal.SIGTERM, *([] if HANGUP is None else [HANGUP])):
        if signal.getsignal(each) is not signal.SIG_IGN:  # nohup has SIGHUP ignored
            signal.signal(each, _terminate)
    return _run(words)


def _run(words: list[str]) -> int:
    try:
        command = _parse(words)
        with plain_output():
            return command.run()
    except HandfulError as error:
        print(f"handful: {plain(error)}", file=sys.stderr)
        return 2
    except MemoryError:
        print("handful: not enough memory. Close other programs, or work on fewer or smaller images.", file=sys.stderr)
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


def _parse(words: list[str]) -> Command:
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            return tyro.cli(
                _commands(words), prog="handful", args=words or ["--help"], config=(OmitSubcommandPrefixes,)
            )
    except SystemExit as stop:
        if stop.code:
            print(f"handful: {_one_line(complaint.getvalue())}", file=sys.stderr)
        else:
            print(complaint.getvalue(), end="", file=sys.stderr)
        raise


def _commands(words: list[str]) -> type[Command]:
    """The commands; `train --recipe NAME` takes the defaults of its flags from that recipe."""
    flags = " ".join(words).replace("--recipe=", "--recipe ").split()
    named = [flags[i + 1] for i, word in enumerate(flags[:-1]) if word == "--recipe"]
    train = Train(out=MISSING, recipe=flags_of(named_recipe(named[-1]))) if named and words[0] == "train" else None
    training = subcommand("train") if train is None else subcommand("train", default=train)
    commands: object = (
        Annotated[Fit, subcommand("fit")]
        | Annotated[Predict, subcommand("predict")]
        | Annotated[Add, subcommand("add")]
        | Annotated[Forget, subcommand("forget")]
        | Annotated[Inspect, subcommand("inspect")]
        | Annotated[Serve, subcommand("serve")]
        | Annotated[Studio, subcommand("studio")]
        | Annotated[Demo, subcommand("demo")]
        | Annotated[Train, training]
        | Annotated[Evaluate, subcommand("evaluate")]
        | Annotated[Data, subcommand("data")]
        | Annotated[Recipes, subcommand("recipes")]
        | Annotated[Reproduce, subcommand("reproduce")]
    )
    return cast("type[Command]", commands)


def _one_line(complaint: str) -> str:
    """tyro's boxed complaint as one line: what was wrong, what is allowed, where the help is."""
    lines = [_BOX.sub("", line) or ";" for line in complaint.splitlines()[1:-1]]
    said = " ".join(lines).replace(" ; ", "; ")
    said = _INSIDE.sub("", said)
    said = _NOT_A_NUMBER.sub(r"\1 takes a whole number, but got \2", said)
    said = _NOT_A_FLOAT.sub(r"\1 takes a number, but got \2", said)
    what, _, _ = said.partition("Argument helptext:")
    what, _, help_at = what.partition("For full helptext, ")
    return f"{what.strip().rstrip('.;')}. {(help_at or 'see handful --help').strip().capitalize()}"


def _terminate(number: int, frame: object) -> None:
    """SIGTERM and SIGHUP unwind the stack like Ctrl-C, so that nothing is left half done."""
    if number == HANGUP:
        let_go_of_the_terminal()
    print("\nhandful: terminated", file=sys.stderr)
    raise SystemExit(128 + number)
