"""Writes and searches that go on while something is done to a store."""

import hashlib
import random
import threading
from collections.abc import Callable

from evervec import Evervec

KIND = "note"
OLD, NEW = "hashing-512", "hashing-64"


def text_of(number: int, edition: int = 0) -> str:
    """Like no other; by its own words it is found first."""
    words = hashlib.sha256(f"{number} {edition}".encode()).hexdigest()
    return " ".join(words[at : at + 6] for at in range(0, 60, 6))


class Traffic:
    """About 20 writes a second, each searched for once it was waited for, and searches for
    records that nobody changes. The first thing that is wrong is raised at the end."""

    def __init__(
        self, ev: Evervec, records: int, said: Callable[[str, str | None], object] | None = None
    ) -> None:
        self._ev = ev
        self._records = records
        self._said = said or (lambda _id, _text: None)
        self._chance = random.Random(8)
        self._stop = threading.Event()
        self._crash: BaseException | None = None
        self.wanted: dict[str, str | None] = {}
        """what was written and acknowledged, by id; None where it was deleted"""
        self.versions: set[str | None] = set()
        self.last: str | None = None
        """the version of the latest search"""
        self.searches = 0
        self._threads = [
            threading.Thread(target=self._guarded, args=(work,), daemon=True)
            for work in (self._write, self._search)
        ]

    def __enter__(self) -> "Traffic":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._stop.set()
        if kind is not None:
            return  # what went wrong is told at once: one may wait for a worker that is no more
        for thread in self._threads:
            thread.join()
        if self._crash is not None:
            raise self._crash

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            self._crash = self._crash or error
            self._stop.set()

    def _write(self) -> None:
        edition = 0
        while not self._stop.wait(0.05):
            edition += 1
            dice = self._chance.random()
            # even records are never touched
            number = 2 * self._chance.randrange(self._records // 2) + 1
            number = self._records + 2 * edition + 1 if dice < 0.3 else number
            text = None if dice > 0.9 else text_of(number, edition)
            if text is None:
                ticket = self._ev.delete(KIND, number)
            else:
                ticket = self._ev.add(KIND, text, id=number)
            self.wanted[str(number)] = text
            self._said(str(number), text)
            if edition % 5 == 0:
                self._must_find(str(number), text, ticket)

    def _must_find(self, id: str, text: str | None, ticket: object) -> None:
        hits = self._ev.search(
            text or text_of(int(id)), 3, mode="semantic", after=ticket, wait=300  # type: ignore[arg-type]
        )  # fmt: skip
        found = {hit.id: hit.text for hit in hits}
        assert found.get(id) == text, f"{id} is {found.get(id)!r} and not {text!r}"

    def _search(self) -> None:
        while not self._stop.wait(0.03):
            number = 2 * self._chance.randrange(self._records // 2)
            hits = self._ev.search(text_of(number), 3, mode="semantic")
            assert hits.via == "semantic"
            assert hits.version in (OLD, NEW), hits.version
            self.versions.add(hits.version)
            self.last = hits.version
            assert str(number) in {hit.id for hit in hits}, f"{number} in {hits.version}"
            self.searches += 1


def assert_all_there(ev: Evervec, records: int, wanted: dict[str, str | None]) -> None:
    """Exactly the latest of all records, in all versions."""
    report = ev.verify()
    assert report.clean, report
    texts: dict[str, str | None] = {str(n): text_of(n) for n in range(records)}
    texts |= wanted
    live = {id: text for id, text in texts.items() if text is not None}
    found: dict[str, str] = {}
    after = None
    while page := ev.records(KIND, after=after, limit=1000):
        found.update((record.id, record.text) for record in page)
        after = page[-1]
    assert found == live
