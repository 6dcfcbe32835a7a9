"""What a release consists of: one version everywhere, and a changelog that begins with it."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import handful

ROOT = Path(__file__).parents[1]


def test_the_citation_and_the_changelog_name_the_version_of_the_code() -> None:
    citation = (ROOT / "CITATION.cff").read_text()
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)
    assert re.findall(r"^version: (\S+)$", citation, flags=re.MULTILINE) == [handful.__version__]
    assert newest is not None
    assert newest[1] in (handful.__version__, "Unreleased")


def test_the_extra_all_holds_every_extra_of_users() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (all_of_them,) = extras["all"]
    named = set(re.findall(r"\w+", all_of_them.split("[")[1]))
    assert named == set(extras) - {"all", "docs", "dev"}


def test_versions_with_known_holes_are_not_accepted() -> None:
    """Pillow before 12.2 has bombs that it does not see; filelock before 3.20.3 follows links at the lock's name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    oldest = dict(re.findall(r"(\w+)>=([\d.]+)", " ".join(project["dependencies"])))
    pinned = dict(re.findall(r"^(\w+)==([\d.]+)", (ROOT / "constraints.txt").read_text(), flags=re.MULTILINE))
    for name, least in (("pillow", (12, 2)), ("filelock", (3, 20, 3))):
        for version in (oldest[name], pinned[name]):
            assert tuple(map(int, version.split("."))) >= least, f"{name} {version}"


def test_the_notice_names_every_file_of_weights() -> None:
    notice = (ROOT / "NOTICE").read_text()
    for path in (ROOT / "src" / "handful" / "weights").glob("*.safetensors"):
        assert f"handful/weights/{path.name}" in notice
