"""Backoff: doubling, capped, with jitter."""

import random

import pytest

import evervec.runtime.backoff as runtime
from evervec import Settings


def backoff(attempts: int, settings: Settings) -> float:
    own = settings
    return runtime.backoff(
        attempts, own.backoff_seconds, own.backoff_cap_seconds, own.backoff_jitter, own.rng
    )


def test_waits_double_until_the_cap() -> None:
    plain = Settings(backoff_jitter=0)
    assert [backoff(n, plain) for n in range(1, 12)] == [
        1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300,
    ]  # fmt: skip
    assert backoff(0, plain) == 1
    assert backoff(10**9, plain) == 300


def test_jitter_stays_within_its_share_and_uses_all_of_it() -> None:
    settings = Settings(rng=random.Random(1))
    waits = [backoff(3, settings) for _ in range(500)]
    assert all(3.2 <= wait <= 4.8 for wait in waits)
    assert min(waits) < 3.3
    assert max(waits) > 4.7
    assert sum(waits) / 500 == pytest.approx(4, abs=0.1)


def test_the_same_randomness_gives_the_same_waits() -> None:
    one, two = (Settings(rng=random.Random(5)) for _ in range(2))
    assert [backoff(2, one) for _ in range(5)] == [backoff(2, two) for _ in range(5)]


def test_no_wait_at_all_is_possible() -> None:
    assert backoff(5, Settings(backoff_seconds=0)) == 0
