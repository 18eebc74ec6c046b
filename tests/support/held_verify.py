"""A verification that a test stops while it runs."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from evervec import Evervec


class Held:
    """Verifications that do not go on until the test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.began = threading.Event()
        self.go_on = threading.Event()
        original = Evervec.verify

        def verify(ev: Evervec, *args: Any, progress: Callable[[int], object], **options: Any):  # type: ignore[no-untyped-def]
            def slow(count: int) -> None:
                self.began.set()
                self.go_on.wait(60)
                progress(count)

            return original(ev, *args, progress=slow, **options)

        monkeypatch.setattr(Evervec, "verify", verify)
