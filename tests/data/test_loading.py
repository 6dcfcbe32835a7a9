import subprocess
import sys
from pathlib import Path

import pytest

from handful.data import load
from handful.errors import DataError


def test_an_unknown_name_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no data set 'omniglut'.*glyphs"):
        load("omniglut", root=tmp_path)


def test_importing_the_package_does_not_import_torch() -> None:
    code = "import sys, handful.data; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
