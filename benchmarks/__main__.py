"""`python -m benchmarks`: run the suite and write RESULTS.md; `--only` renews parts of it, `--quick` only prints."""

from __future__ import annotations

import argparse
import sys
import time
from importlib import import_module
from pathlib import Path

from benchmarks.contest import Setting
from benchmarks.environment import peers_python, versions
from benchmarks.record import earlier, text
from benchmarks.report import Results, page, targets_table
from benchmarks.suite import SUITE

HERE = Path(__file__).resolve().parent
ALONE = {"service": "SERVICE.md", "studio": "STUDIO.md"}
"""Modules that are measured alone, with a page of their own."""


def main() -> int:
    """Parse, measure, report."""
    options = _parser().parse_args()
    if options.only and len(options.only) == 1 and options.only[0] in ALONE:
        [name] = options.only
        print(import_module(f"benchmarks.{name}").measure(options.out.with_name(ALONE[name])))
        return 0
    peers = None if options.no_peers else peers_python()
    setting = Setting(options.threads, options.clock, options.quick, peers)
    kept, known = options.out.with_suffix(".json"), versions(peers)
    before = earlier(kept, setting, known) if options.only else None
    results = before or Results(setting, known)
    for name in options.only or [*SUITE, "start", *([] if options.quick else ["profiles", "growth"])]:
        begun = time.perf_counter()
        print(f"{name} ...", file=sys.stderr, flush=True)
        _measure(name, results, options.out.parent)
        if name in SUITE:
            print(targets_table(results.outcomes[name].rows), flush=True)
        results.minutes[name] = (time.perf_counter() - begun) / 60
        print(f"{name}: {60 * results.minutes[name]:.0f} s", file=sys.stderr, flush=True)
        if not options.quick and results.outcomes.keys() >= SUITE.keys():  # a part alone must not replace the page
            _write(results, options.out, kept)
    if options.quick or results.outcomes.keys() < SUITE.keys():
        print(page(results))
        return 0
    print(f"Written to {options.out}; all parts took {sum(results.minutes.values()):.1f} minutes")
    return 0


def _write(results: Results, out: Path, kept: Path) -> None:
    from handful._io import write_atomically

    results.outcomes = {name: results.outcomes[name] for name in SUITE}
    write_atomically(out, page(results).encode())
    write_atomically(kept, text(results).encode())


def _measure(name: str, results: Results, folder: Path) -> None:
    setting = results.setting
    if name in SUITE:
        results.outcomes[name] = SUITE[name](setting)
    elif name == "start":
        from benchmarks.start import start_times

        results.start = start_times(setting)
    elif name == "profiles":
        from benchmarks.profiles import profiles

        results.profiles = profiles(setting)
    else:
        from benchmarks.growth import growth

        results.growth = growth(setting, folder / "growth.svg")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two minutes: the 32C and 64C nets, fewer rounds")
    parser.add_argument("--threads", type=int, default=1, help="threads of every contestant (default 1)")
    parser.add_argument(
        "--clock",
        choices=("wall", "cpu"),
        default="wall",
        help="cpu: processor time, for a busy machine and one thread",
    )
    parser.add_argument("--no-peers", action="store_true", help="leave out peers that need an environment of their own")
    parser.add_argument("--out", type=Path, default=HERE / "RESULTS.md", help="where to write")
    parser.add_argument(
        "--only",
        nargs="+",
        choices=[*SUITE, "start", "profiles", "growth", *ALONE],
        help="measure only these, and keep the rest of the page; service and studio have pages of their own",
    )
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
