"""Batches on devices: order, memory, several devices, queries first. The devices are stand-ins."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from evervec.embedders.st.lanes import Lanes, OutOfMemory, Rows, padded
from evervec.errors import ProviderUnavailable


class Device:
    """The row of a text is its first token. It holds so many tokens at once, with padding."""

    def __init__(self, device: str = "made-up", memory: float = float("inf")) -> None:
        self.device = device
        self.memory = memory
        self.begun: list[list[int]] = []
        self.refused: list[int] = []
        self.freed = 0
        self.at_collect = False
        """whether memory runs out only when the rows are collected"""
        self.gate = threading.Event()
        self.gate.set()

    def begin(self, texts: Sequence[Any]) -> Callable[[], Rows]:
        self.begun.append([text[0] for text in texts])
        self.gate.wait(60)
        if 13 in self.begun[-1]:
            raise ValueError("thirteen")

        def collect() -> Rows:
            self._check(texts)
            return np.array([[text[0]] for text in texts], np.float32)

        if not self.at_collect:
            self._check(texts)
        return collect

    def _check(self, texts: Sequence[Any]) -> None:
        if padded(texts) > self.memory:
            self.refused.append(padded(texts))
            raise OutOfMemory

    def free(self) -> None:
        self.freed += 1


@pytest.fixture
def lanes_of() -> Iterator[Callable[..., Lanes]]:
    made: list[Lanes] = []

    def make(*devices: Device) -> Lanes:
        made.append(Lanes(devices))
        return made[-1]

    yield make
    for lanes in made:
        lanes.close()


Make = Callable[..., Lanes]


def _texts(*lengths: int) -> list[list[int]]:
    return [[place] * length for place, length in enumerate(lengths, 100)]


def _firsts(rows: Rows) -> list[int]:
    return [int(row[0]) for row in rows]


def test_rows_come_in_the_order_of_their_texts(lanes_of: Make) -> None:
    lanes = lanes_of(Device())
    futures = [lanes.submit([[n * 10 + k] for k in range(5)]) for n in range(20, 70)]
    for n, future in enumerate(futures, 20):
        assert _firsts(future.result(60)) == [n * 10 + k for k in range(5)]


@pytest.mark.parametrize("at_collect", [False, True])
def test_a_batch_that_does_not_fit_is_halved_until_it_does(
    lanes_of: Make, at_collect: bool
) -> None:
    device = Device(memory=10)
    device.at_collect = at_collect
    rows = lanes_of(device).submit(_texts(9, 8, 7, 3, 2, 2, 1, 1)).result(60)
    assert _firsts(rows) == list(range(100, 108))
    assert device.freed == len(device.refused)


def test_a_lane_remembers_what_did_not_fit(lanes_of: Make) -> None:
    device = Device(memory=10)
    lanes = lanes_of(device)
    lanes.submit(_texts(*[4] * 8)).result(60)
    assert device.refused == [32, 16]
    lanes.submit(_texts(*[4] * 8)).result(60)
    lanes.submit(_texts(*[2] * 8)).result(60)
    assert device.refused == [32, 16], "it was tried again"
    assert lanes.lanes[0].most == 8


def test_a_text_too_long_for_a_device_fails_alone(lanes_of: Make) -> None:
    lanes = lanes_of(Device(memory=10))
    with pytest.raises(MemoryError, match="a text of 11 tokens does not fit into the memory of"):
        lanes.submit(_texts(11)).result(60)
    assert _firsts(lanes.submit(_texts(10)).result(60)) == [100]


def test_memory_that_others_gave_back_is_used(lanes_of: Make) -> None:
    device = Device(memory=3)
    device.free = lambda: setattr(device, "memory", 100)  # type: ignore[method-assign]
    assert _firsts(lanes_of(device).submit(_texts(11)).result(60)) == [100]


def test_an_error_reaches_the_caller_of_that_batch_only(lanes_of: Make) -> None:
    lanes = lanes_of(Device())
    good, bad, later = (lanes.submit([[n]]) for n in (1, 13, 2))
    assert _firsts(good.result(60)) == [1]
    with pytest.raises(ValueError, match="thirteen"):
        bad.result(60)
    assert _firsts(later.result(60)) == [2]


def test_several_devices_share_the_batches(lanes_of: Make) -> None:
    slow, quick = Device("slow"), Device("quick")
    slow.gate.clear()
    lanes = lanes_of(slow, quick)
    futures = [lanes.submit([[n]]) for n in range(20, 60)]
    begun = [future for future in futures if _row_if_done(future, quick, slow)]
    slow.gate.set()
    assert [_firsts(future.result(60)) for future in futures] == [[n] for n in range(20, 60)]
    assert len(slow.begun) <= 2, "a slow device took batches that it could not begin"
    assert len(slow.begun) + len(quick.begun) == 40
    assert len(begun) >= 38


def _row_if_done(future: Any, quick: Device, slow: Device) -> bool:
    """Wait for a batch unless the slow device has it."""
    while not future.done():
        if len(quick.begun) + len(slow.begun) >= 40:
            return False
        threading.Event().wait(0.001)
    return True


def test_the_next_batch_begins_before_the_last_is_collected(lanes_of: Make) -> None:
    """Otherwise the device waits while its rows are copied."""

    class Watched(Device):
        ahead = 0
        open = 0

        def begin(self, texts: Sequence[Any]) -> Callable[[], Rows]:
            collect = super().begin(texts)
            self.open += 1
            self.ahead = max(self.ahead, self.open)

            def watched() -> Rows:
                self.open -= 1
                return collect()

            return watched

    device = Watched()
    device.gate.clear()
    lanes = lanes_of(device)
    futures = [lanes.submit([[n]]) for n in range(20, 30)]
    device.gate.set()
    for future in futures:
        future.result(60)
    assert device.ahead == 2


def test_a_query_goes_before_the_texts_that_wait(lanes_of: Make) -> None:
    device = Device()
    device.gate.clear()
    lanes = lanes_of(device)
    texts = [lanes.submit([[n]]) for n in range(20, 30)]
    query = lanes.submit([[1]], urgent=True)
    device.gate.set()
    query.result(60)
    for future in texts:
        future.result(60)
    assert [1] in device.begun[:2]


def test_any_number_of_threads_may_submit(lanes_of: Make) -> None:
    lanes = lanes_of(Device("a", memory=50), Device("b", memory=20))

    def submit(n: int) -> list[int]:
        return _firsts(lanes.submit([[n * 100 + k] * 6 for k in range(9)]).result(60))

    with ThreadPoolExecutor(8) as pool:
        for n, made in zip(range(20, 120), pool.map(submit, range(20, 120)), strict=True):
            assert made == [n * 100 + k for k in range(9)]


def test_closing_fails_what_waits_and_ends_the_threads(lanes_of: Make) -> None:
    device = Device("closing")
    device.gate.clear()
    lanes = lanes_of(device)
    futures = [lanes.submit([[n]]) for n in range(20, 30)]
    while not device.begun:
        threading.Event().wait(0.001)
    lanes.close()
    device.gate.set()
    outcomes = [type(future.exception(60)) for future in futures]
    assert outcomes[0] is type(None)
    assert outcomes[-1] is ProviderUnavailable
    with pytest.raises(ProviderUnavailable, match="closed"):
        lanes.submit([[1]])
    for thread in threading.enumerate():
        if thread.name == "evervec-closing":
            thread.join(60)
            assert not thread.is_alive()
