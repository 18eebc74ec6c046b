"""Where Chromium is; it is installed where that is possible."""

import os
import subprocess
from fcntl import LOCK_EX, flock
from functools import cache
from pathlib import Path
from shutil import which
from tempfile import gettempdir

NO_BROWSER = "needs Chromium"
_VARIABLE = "EVERVEC_TEST_BROWSER"
_PACKAGE = "chromium-headless-shell"
HOW = f"install the Debian package {_PACKAGE}, or set {_VARIABLE} to the path of a Chromium"
_PROGRAMS = (_PACKAGE, "chromium", "chromium-browser", "google-chrome")


@cache
def find_browser() -> str | None:
    """The program; it is installed where that is possible."""
    if given := os.environ.get(_VARIABLE):
        return given
    return _installed() or (_install() if os.geteuid() == 0 and which("apt-get") else None)


def _installed() -> str | None:
    return next(filter(None, map(which, _PROGRAMS)), None)


def _install() -> str | None:
    """Install Debian's package. The processes of a test run wait for the first of them."""
    with Path(gettempdir(), "evervec-browser.lock").open("w") as lock:
        flock(lock, LOCK_EX)
        if found := _installed():
            return found
        options = ("-qq", "--yes", "--no-install-recommends")
        environ = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
        for command in (["update", "-qq"], ["install", *options, _PACKAGE, "fonts-dejavu-core"]):
            subprocess.run(
                ["apt-get", *command], env=environ, check=False, capture_output=True, timeout=600
            )
    return _installed()
