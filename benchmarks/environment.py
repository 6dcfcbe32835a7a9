"""The peers' virtual environment, made on demand: it borrows torch from ours, so that both run the same build."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
PINS = HERE / "peers.txt"
FOLDER = HERE.parent / ".venv-peers"


def peers_python(folder: Path = FOLDER) -> str:
    """The interpreter of the peers' environment; it is set up first if it is missing or its pins have changed."""
    python, stamp = folder / "bin" / "python", folder / "pins.txt"
    if stamp.exists() and stamp.read_text() == PINS.read_text():
        return str(python)
    print(f"Setting up the peers in {folder} (once; a minute or two)", file=sys.stderr)
    venv.create(folder, with_pip=True, clear=True)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    borrowed = folder / "lib" / version / "site-packages" / "borrowed.pth"
    borrowed.write_text(f"{sysconfig.get_paths()['purelib']}\n")
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*pip, "-r", str(PINS)], check=True, stdout=sys.stderr)
    stamp.write_text(PINS.read_text())
    return str(python)


def versions(python: str | None) -> dict[str, str]:
    """Versions of what is compared, by the name of the package."""
    names = ("torch", "numpy", "scikit-learn", "easyfsl", "qpth")
    code = "import importlib.metadata as m, sys\nfor n in sys.argv[1:]:\n  print(n, m.version(n))"
    asked = names if python else names[:3]
    done = subprocess.run([python or sys.executable, "-c", code, *asked], capture_output=True, text=True, check=True)
    return dict(line.split() for line in done.stdout.splitlines())
