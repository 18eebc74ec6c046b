"""A .gitignore excludes what Git says that it excludes."""

from __future__ import annotations

import os
import random
import subprocess
from pathlib import Path

from evervec.files.folder import walk

_RULES = (
    "*.log", "!keep.log", "/top", "build/", "!build/", "a/b", "/a/*", "**/deep", "a/**", "a/**/c", "**/b/*.txt",
    "*", "!*/", "!*.md", "d?r", "[ab]*.txt", "[!a].md", "[^b].log", r"\!bang", r"\#hash", "# comment",
    "trail ", r"space\ ", "", "/", "b", "c/", "/a/b/", "*.t*t", "a*", "deep/**", "**", "x\\*y",
)  # fmt: skip
_NAMES = (
    "a", "b", "c", "top", "deep", "build", "dir", "keep.log", "x.log", "a.txt", "b.md", "a.md", "!bang", "#hash",
    "space ", "trail", "x*y", "xzy",
)  # fmt: skip


def _git(folder: Path, *args: str) -> str:
    env = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    done = subprocess.run(
        ["git", *args], cwd=folder, env=env, capture_output=True, text=True, check=True
    )
    return done.stdout


def _listed(folder: Path) -> set[str]:
    """What Git does not ignore, without hidden files."""
    shown = _git(folder, "ls-files", "-z", "--others", "--exclude-standard").split("\0")
    return {name for name in shown if name and not any(p[0] == "." for p in Path(name).parts)}


def test_random_rules_exclude_the_same_files_as_in_git(tmp_path: Path) -> None:
    chance = random.Random(7)
    for number in range(25):
        top = tmp_path / str(number)
        top.mkdir()
        _git(top, "init", "-q")
        folders = [top]
        for _ in range(8):
            inner = chance.choice(folders) / chance.choice(_NAMES)
            inner.mkdir(exist_ok=True)
            folders.append(inner)
        for _ in range(30):
            file = chance.choice(folders) / chance.choice(_NAMES)
            if not file.exists():
                file.write_text("x")
        rules = {}
        for folder in {top, *chance.sample(folders, 3)}:
            rules[folder] = chance.choices(_RULES, k=chance.randint(1, 5))
            (folder / ".gitignore").write_text("\n".join(rules[folder]) + "\n")
        found = {path.relative_to(top).as_posix() for path in walk(top)}
        assert found == _listed(top), rules
        inner = chance.choice(folders)
        if inner.is_dir() and found:  # rules of the folders above hold, too
            part = {p for p in found if (top / p).is_relative_to(inner)}
            below = {path.relative_to(top).as_posix() for path in walk(inner.resolve())}
            assert part <= below


def test_many_stars_take_no_time(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text("a*" * 60 + "b\n" + "/**" * 40 + "/x\n")
    (tmp_path / ("a" * 200)).write_text("x")
    assert [path.name for path in walk(tmp_path)] == ["a" * 200]


def test_a_gitignore_that_cannot_be_read_excludes_nothing(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").mkdir()
    (tmp_path / "a.txt").write_text("x")
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / ".gitignore").write_bytes(b"\xff\xfe\0\n*.txt\n")
    (tmp_path / "inner" / "b.txt").write_text("x")
    assert [path.name for path in walk(tmp_path)] == ["a.txt"]
