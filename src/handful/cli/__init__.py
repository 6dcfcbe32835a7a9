"""The command line: parse, call, print. Commands import torch only when they run, so that help is instant."""

from handful.cli.main import main

__all__ = ["main"]
