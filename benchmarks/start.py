"""How long it takes to import handful and to see its help."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

from benchmarks.contest import Setting, environment

EVERYTHING = "import torch, handful; [getattr(handful, name) for name in handful.__all__]"


def start_times(setting: Setting) -> dict[str, float]:
    """Medians in seconds, interleaved, after one round that fills the file cache."""
    commands = {
        "import torch": ["-c", "import torch"],
        "import torch, handful": ["-c", "import torch, handful"],
        "import torch and all of handful": ["-c", EVERYTHING],
        "handful --help": ["-m", "handful", "--help"],
    }
    times: dict[str, list[float]] = {name: [] for name in commands}
    for number in range(1 + setting.rounds(5)):
        for name, words in commands.items():
            begun = time.perf_counter()
            subprocess.run([sys.executable, *words], check=True, capture_output=True, env=environment(setting))
            if number:
                times[name].append(time.perf_counter() - begun)
    return {name: statistics.median(each) for name, each in times.items()}
