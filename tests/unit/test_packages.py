"""The command that an error names for installing what is missing."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from evervec.runtime.packages import install_command


@pytest.mark.parametrize(
    ("home", "file", "extra", "package"),
    [
        ("venv", "pyvenv.cfg", "pip install 'evervec[pdf]'", "pip install 'pandas'"),
        (
            "pipx/venvs/evervec", "pipx_metadata.json",
            "pipx runpip evervec install 'evervec[pdf]'", "pipx runpip evervec install 'pandas'",
        ),
        (
            "uv/tools/evervec", "uv-receipt.toml",
            "uv tool install 'evervec[pdf]'", "uv tool install 'evervec' --with 'pandas'",
        ),
        (
            "uv/archive-v0/Yk", "pyvenv.cfg",
            "uvx --with 'evervec[pdf]' …", "uvx --with 'pandas' …",
        ),
    ],
)  # fmt: skip
def test_packages_are_installed_where_the_program_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: str, file: str, extra: str, package: str
) -> None:
    (tmp_path / home).mkdir(parents=True)
    (tmp_path / home / file).touch()
    monkeypatch.setattr(sys, "prefix", str(tmp_path / home))
    assert install_command("evervec[pdf]") == extra
    assert install_command("pandas") == package


@pytest.mark.parametrize(
    ("receipt", "extra", "package"),
    [
        (
            """{ name = "evervec", extras = ["local", "mcp"] }, { name = "pandas", specifier = ">=2" }""",
            "'evervec[local,mcp,pdf]' --with 'pandas>=2'",
            "'evervec[local,mcp]' --with 'pandas>=2'",
        ),
        (
            """{ name = "evervec", extras = ["local"], path = "/dist/evervec.whl" }""",
            "'evervec[local,pdf] @ /dist/evervec.whl'",
            "'evervec[local] @ /dist/evervec.whl' --with 'pandas'",
        ),
    ],
)
def test_a_tool_of_uv_keeps_the_extras_and_packages_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, receipt: str, extra: str, package: str
) -> None:
    (tmp_path / "uv-receipt.toml").write_text(f"[tool]\nrequirements = [{receipt}]\n")
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert install_command("evervec[pdf]") == f"uv tool install {extra}"
    assert install_command("pandas") == f"uv tool install {package}"
