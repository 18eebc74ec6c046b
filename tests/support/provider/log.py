"""What the provider saw: its calls, and how often it embedded which text."""

import threading
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Call:
    """One call as the server saw it. Times are of the server's clock."""

    path: str
    connection: int
    """which of the connections brought it, counted from 1"""
    start: float
    inputs: int = 0
    tokens: int = 0
    texts: tuple[str, ...] | None = None
    """None: they were not kept"""
    status: int | None = None
    """None: not answered, now or for ever"""
    end: float | None = None
    """None: still under way"""


@dataclass(frozen=True)
class Seen:
    """Counts since the start, or since `forget`."""

    calls: int
    paths: dict[str, int]
    statuses: dict[int, int]
    embedded: int
    """texts that were answered with a vector"""
    tokens: int
    """of these texts"""
    in_flight: int
    """embedding calls that are not answered yet, waiting ones too"""
    peak: int
    """the most that ever were in flight at once"""
    connections: int


class Entry:
    """A call under way. It is settled before the client can see the answer, so that what a test
    reads after a call has that call in it."""

    def __init__(self, path: str, connection: int, start: float) -> None:
        self.call = Call(path, connection, start)
        self.texts: Sequence[str] = ()
        self.embeds = False
        self.settled = False


class Log:
    """The calls of the server. It forgets the oldest ones when there are too many."""

    MOST_CALLS = 100_000
    MOST_CHARACTERS = 50_000_000
    MOST_TEXTS = 1_000_000

    def __init__(self, clock: Callable[[], float], *, keep_texts: bool) -> None:
        self._clock = clock
        self._keep_texts = keep_texts
        self._lock = threading.Lock()
        self._in_flight = 0
        self._clear()

    def _clear(self) -> None:
        self._entries: deque[Entry] = deque()
        self._characters = 0
        self._calls = 0
        self._paths: Counter[str] = Counter()
        self._statuses: Counter[int] = Counter()
        self._embedded = self._tokens = 0
        self._peak = self._in_flight
        self._times: Counter[int] = Counter()  # by the text's hash
        self._lost_texts = False

    def begin(self, path: str, known: bool, connection: int) -> Entry:
        with self._lock:
            entry = Entry(path, connection, self._clock())
            self._entries.append(entry)
            self._calls += 1
            self._paths[path if known else "other"] += 1
            self._trim()
            return entry

    def embeds(self, entry: Entry) -> None:
        with self._lock:
            entry.embeds = True
            self._in_flight += 1
            self._peak = max(self._peak, self._in_flight)

    def asks(self, entry: Entry, texts: Sequence[str], tokens: int) -> None:
        """Note what the call is about."""
        with self._lock:
            entry.texts = texts
            kept = tuple(texts) if self._keep_texts else None
            entry.call = replace(entry.call, inputs=len(texts), tokens=tokens, texts=kept)
            self._characters += sum(map(len, kept or ()))
            self._trim()

    def settle(self, entry: Entry, status: int | None) -> None:
        """Note the answer; only the first one counts."""
        with self._lock:
            if entry.settled:
                return
            entry.settled = True
            entry.call = replace(entry.call, status=status, end=self._clock())
            texts, entry.texts = entry.texts, ()
            if entry.embeds:
                self._in_flight -= 1
            if status is not None:
                self._statuses[status] += 1
            if status == 200:
                self._embedded += len(texts)
                self._tokens += entry.call.tokens
                for text in texts:
                    self._count(text)

    def _count(self, text: str) -> None:
        key = hash(text)
        if key in self._times or len(self._times) < self.MOST_TEXTS:
            self._times[key] += 1
        else:
            self._lost_texts = True

    def _trim(self) -> None:
        while len(self._entries) > self.MOST_CALLS or self._characters > self.MOST_CHARACTERS:
            oldest = self._entries.popleft()
            self._characters -= sum(map(len, oldest.call.texts or ()))

    def calls(self) -> list[Call]:
        with self._lock:
            return [entry.call for entry in self._entries]

    def seen(self, connections: int) -> Seen:
        with self._lock:
            return Seen(
                self._calls, dict(self._paths), dict(self._statuses), self._embedded,
                self._tokens, self._in_flight, self._peak, connections,
            )  # fmt: skip

    def times(self, texts: Sequence[str]) -> list[int]:
        with self._lock:
            if self._lost_texts:
                raise AssertionError(f"more than {self.MOST_TEXTS} texts: not all were counted")
            return [self._times[hash(text)] for text in texts]

    def forget(self) -> None:
        with self._lock:
            self._clear()
