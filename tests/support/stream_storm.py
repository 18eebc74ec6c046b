"""Changes of records as a stream delivers them at its worst, and what they must come to."""

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import evervec
from evervec.embedders.hashing import HashingEmbedder
from support.processes import until
from support.world import KIND

_PATIENCE = 300.0
EMBEDDER = "hashing"


_POISON = (
    b"{", b"\xff\xfe", b"[]", b"null", b'{"text": "neither id nor version"}', b'{"id": 1, "rev": "x"}',
    b'{"id": {"a": 1}, "rev": 1, "text": "x"}', b'{"id": 1, "rev": 999999999, "txt": "x"}',
)  # fmt: skip


class Change(NamedTuple):
    """A change of a record; its version is the number of the change in its source."""

    id: int
    version: int
    text: str | None
    poison: bytes | None = None
    """a message in its place that cannot be read"""

    def encoded(self) -> bytes:
        if self.poison is not None:
            return self.poison
        if self.text is None:
            value: dict[str, object] = {"id": self.id, "rev": self.version, "op": "delete"}
        else:
            value = {"id": self.id, "rev": self.version, "text": self.text}
        return json.dumps(value).encode()


def make_changes(count: int, rng: random.Random) -> list[Change]:
    """So many changes, a tenth of them twice, and in another order than they were made: most a
    little late, some very late. Between them one message in a hundred is no change at all."""
    changes = []
    for version in range(1, count + 1):
        id = rng.randrange(count // 10)
        gone = rng.random() < 0.2
        changes.append(Change(id, version, None if gone else f"text {version} of record {id}"))
    changes += rng.sample(changes, count // 10)
    changes += [
        Change(0, rng.randrange(count), None, rng.choice(_POISON)) for _ in range(count // 100)
    ]

    def late(change: Change) -> float:
        lateness = rng.random() * (count if rng.random() < 0.02 else 200)
        return change.version + lateness

    return sorted(changes, key=late)


def last_words(changes: Sequence[Change]) -> dict[str, str]:
    """The records that are left, by the greatest version of each."""
    latest: dict[int, Change] = {}
    for change in changes:
        if change.poison is not None:
            continue
        if change.id not in latest or latest[change.id].version < change.version:
            latest[change.id] = change
    return {str(id): change.text for id, change in latest.items() if change.text is not None}


class Followers:
    """Processes of `evervec follow` that share a stream and are killed."""

    def __init__(self, store: str, folder: Path, arguments: Sequence[str]) -> None:
        self._store = store
        self._folder = folder
        self._arguments = [*arguments, "--kind", KIND, "--version", "rev", "--op", "op"]
        self._running: list[subprocess.Popen[bytes]] = []
        self._started = 0

    def start(self, *arguments: str, **environ: str) -> subprocess.Popen[bytes]:
        self._started += 1
        log = self._folder / f"follower-{self._started}.log"
        with log.open("wb") as errors:
            process = subprocess.Popen(
                [sys.executable, "-m", "evervec", "--store", self._store, "--embedder", EMBEDDER,
                 "follow", *self._arguments, *arguments],
                stdout=subprocess.PIPE, stderr=errors, env={**os.environ, **environ},
            )  # fmt: skip
        self._running.append(process)
        # from then on it ends by SIGTERM in order
        until(lambda: b"following" in log.read_bytes() or process.poll() is not None)
        return process

    def kill(self, rng: random.Random) -> None:
        """Kill one of them, wherever it is."""
        victim = self._running.pop(rng.randrange(len(self._running)))
        assert victim.poll() is None, self.logs()
        victim.kill()
        self._wait(victim)

    def stop(self) -> list[int]:
        """End all of them by SIGTERM; returns their exit codes."""
        for process in self._running:
            process.send_signal(signal.SIGTERM)
        codes = [self._wait(process) for process in self._running]
        self._running.clear()
        return codes

    def drain(self) -> None:
        """One more follows the stream to its end."""
        process = self.start("--drain")
        self._running.pop()
        assert self._wait(process) == 0, self.logs()

    def _wait(self, process: subprocess.Popen[bytes]) -> int:
        assert process.stdout is not None
        with process.stdout:
            process.stdout.read()
        return process.wait(_PATIENCE)

    def close(self) -> None:
        for process in self._running:
            process.kill()
            self._wait(process)

    def logs(self) -> str:
        return "\n".join(log.read_text() for log in sorted(self._folder.glob("follower-*.log")))


def storm(store: str, followers: Followers, total: int, *, kills: int, rng: random.Random) -> None:
    """Let two followers share a stream, and kill one so many times on the way; another takes its
    place. At the end the stream is drained."""
    with evervec.open(store, embedder="noop") as ev:

        def saved() -> int:
            """About how many changes: two numbers for each that was accepted, or what is reported
            each second."""
            parts = [part for state in ev.streams.states() for part in state.parts]
            return max(ev.store.mark() // 2, sum(part.position + 1 for part in parts))

        for _ in range(2):
            followers.start()
        for number in range(1, kills + 1):
            goal = total * number // (kills + 2)
            until(lambda goal=goal: saved() >= goal, "progress", _PATIENCE)  # type: ignore[misc]
            followers.kill(rng)
            followers.start()
    assert followers.stop() == [0, 0], followers.logs()
    followers.drain()


def assert_last_words(store: str, changes: Sequence[Change]) -> None:
    """The store holds the stream's last word, and the index what the store holds."""
    with evervec.open(store, embedder=HashingEmbedder()) as ev:
        assert ev.process_all().failed == 0
        expected = last_words(changes)
        assert dict(_texts(ev)) == expected
        report = ev.verify()
        assert report.complete, report
        some = next(iter(expected))
        assert ev.search(expected[some], k=1, mode="semantic")[0].id == some
        (state,) = ev.streams.states()
        bad = [change.poison for change in changes if change.poison is not None]
        assert (state.lag, state.failed) == (0, len(bad)), "each is set aside once"
        kept = ev.streams.failed(limit=len(bad) + 1)
        assert sorted(message.content or b"" for message in kept) == sorted(bad)


def _texts(ev: evervec.Evervec) -> Iterator[tuple[str, str]]:
    after = None
    while page := ev.records(kind=KIND, after=after, limit=1000):
        yield from ((record.id, record.text) for record in page)
        after = (page[-1].kind, page[-1].id)
