"""One contestant in a process of its own: it is set up once, then runs whenever it is told to, and times itself.

A process each keeps memory apart (peaks are those of one contestant), lets one contestant have its own allocator
settings, and lets peers run on an interpreter of their own. The parent writes `go` or `end`, the answers are JSON.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import sys
import time


def main() -> None:
    """Build the contestant that the first argument names, then serve."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints must not mix with the answers
    spec = json.loads(sys.argv[1])
    import torch

    torch.set_num_threads(spec["threads"])
    module, function = spec["task"].split(":")
    run = getattr(importlib.import_module(module), function)(**spec["options"])
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in sys.stdin:
        if line.strip() != "go":
            break
        wall, processor = time.perf_counter(), time.process_time()
        said = run()
        taken = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - processor, "said": said}
        print(json.dumps(taken), file=answers, flush=True)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"peak_mb": peak / 1024}), file=answers, flush=True)


if __name__ == "__main__":
    main()
