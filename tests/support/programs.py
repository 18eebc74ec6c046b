"""Programs that only the system's package manager brings: found, else fetched where that is
possible, else left out with a loud line."""

import fcntl
import os
import shutil
import subprocess
import warnings
from pathlib import Path

import pytest

_PLACES = f"{os.environ['PATH']}:/usr/sbin"


def program(name: str, package: str, *, alone: bool) -> str:
    """Where it is. A Debian package whose program can run `alone` is unpacked into a folder, so
    that nothing is started and nothing of the machine is changed; another one is installed."""
    found = shutil.which(name, path=_PLACES)
    if found is None:
        found = _fetched(name, package) if alone else _installed(name, package)
    if found is None:
        warnings.warn(
            pytest.PytestWarning(f"{name} IS MISSING: apt install {package}"), stacklevel=2
        )
        pytest.skip(f"NOT CHECKED: there is no {name}, and it cannot be fetched ({package})")
    return found


def _installed(name: str, package: str) -> str | None:
    if os.getuid() == 0 and shutil.which("apt-get"):
        install = ["apt-get", "install", "--yes", "--no-install-recommends", package]
        subprocess.run(install, check=False, capture_output=True, timeout=120)
    return shutil.which(name, path=_PLACES)


def _fetched(name: str, package: str) -> str | None:
    if not (shutil.which("apt-get") and shutil.which("dpkg")):
        return None
    folder = Path("/var/tmp") / f"evervec-test-{package}-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    places = os.pathsep.join(str(folder / "root" / p) for p in ("usr/bin", "usr/sbin"))
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several test processes may want it at once
        if shutil.which(name, path=places) is None:
            fetch = ["apt-get", "download", package]
            subprocess.run(fetch, cwd=folder, check=False, capture_output=True, timeout=120)
            for file in folder.glob("*.deb"):
                subprocess.run(["dpkg", "-x", file, folder / "root"], check=False, timeout=60)
    return shutil.which(name, path=places)
