"""An embedding provider on a loopback port: the wire formats of OpenAI and Ollama, with faults.

    with ProviderServer(Behaviour(latency=0.05, slots=8)) as server:
        client = openai.OpenAI(base_url=server.openai_url, api_key="any")
        server.behave(hang="poison")  # from now on, for calls with a text that contains it

What it does wrong is a `Behaviour`, swapped whole at any time; what it saw is in `seen()`,
`calls()` and `times_embedded()`. `provider_process` runs the same server in a process of its own.

A text's vector depends on nothing but the text (`vector`), and a shorter one is the beginning of
a longer one made unit length again, as with the models that can be cut. A token is four bytes
(`count_tokens`). Messages and statuses are those of the services, where they are known.
"""

import base64
import hashlib
import itertools
import json
import math
import socket
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, fields, replace
from email.utils import formatdate
from functools import lru_cache, partial
from http.client import responses
from http.server import BaseHTTPRequestHandler
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

EVERY_CALL = "*"
"""a trigger: all calls, also those without texts, such as `GET /api/tags`"""
EVERY_TEXT = ""
"""a trigger: all calls with a text, since each contains it"""

OPENAI_MODELS = {
    "text-embedding-3-small": 1536,
    "text-embedding-3-large": 3072,
    "text-embedding-ada-002": 1536,
}
OLLAMA_MODELS = {"mxbai-embed-large": 1024, "nomic-embed-text": 768, "all-minilm": 384}

TELLS = ("retry-after", "retry-after-ms", "retry-after-date", "x-ratelimit")
USUAL_LIMITS = {"requests": 3000, "tokens": 1_000_000}
"""what the x-ratelimit headers name as the limits when none is set"""


@dataclass(frozen=True)
class Behaviour:
    """How the server answers. As it is made here, it does so at once and without a fault.

    A fault that is a text is a trigger: it strikes a call with a text that contains it (or
    `EVERY_TEXT`, or `EVERY_CALL`). Faults go together; when several would answer a call, the one
    that is further up here does. Lists of models meet only what `EVERY_CALL` brings.
    """

    # who is there
    down: bool = False
    """connects are refused, and connections and calls end; the port is kept for the return"""
    missing: tuple[str, ...] = ()
    """paths that this server does not know, such as an old Ollama's `/api/embed`"""
    key: str | None = None
    """the only API key that `/v1` takes; None: any, or none"""
    openai_models: Mapping[str, int] = field(default_factory=lambda: dict(OPENAI_MODELS))
    """names and native dimensions"""
    ollama_models: Mapping[str, int] = field(default_factory=lambda: dict(OLLAMA_MODELS))
    """the same; a name without a tag is `latest`"""
    context: int = 512
    """tokens that Ollama's models take of a text"""
    arrays: bool = True
    """whether `/api/embed` takes a list of texts; old servers answered 400"""

    # what it allows
    proxy: str | None = None
    """502 and an HTML page, as from a proxy whose server is away"""
    quota_used_up: bool = False
    """429 `insufficient_quota`, with no word about when to come back"""
    storm_until: float = 0.0
    """429 for every embedding call until this time of the server's clock"""
    requests: int | None = None
    """embedding calls in a window; more get 429"""
    tokens: int | None = None
    """the same for tokens"""
    window: float = 60.0
    """seconds; a window begins with the first call after the one before has ended"""
    tells: tuple[str, ...] = ("retry-after", "x-ratelimit")
    """what a 429 says of when to come back, out of `TELLS`"""
    slots: int | None = None
    """embedding calls that are served at once"""
    full_status: int | None = None
    """what a call beyond the slots gets, such as 429 or 503; None: it waits for its turn"""
    latency: float = 0.0
    """seconds in which an embedding call holds its slot"""

    # what goes wrong
    hang: str | None = None
    """no answer, until the client leaves or the server goes down"""
    fail: str | None = None
    """an error of the server's own"""
    fail_status: int = 500
    refuse: str | None = None
    """400: the service does not take this text, and does not say which one it means"""
    refuse_words: str | None = None
    """None: what the service says in such a case"""
    wrong_count: str | None = None
    """the last vector is left out"""
    wrong_dimensions: str | None = None
    """vectors of half the size, for these texts only"""
    nan: str | None = None
    """the first number is NaN, for these texts only"""
    zero: str | None = None
    """all numbers are zero, for these texts only"""
    shuffled: bool = False
    """OpenAI's vectors come back to front, each with its right `index`"""
    truncated: str | None = None
    """half the JSON, as if it were all"""
    cut: str | None = None
    """the connection ends in the middle of the body"""
    drip: str | None = None
    """the body comes byte by byte"""
    drip_seconds: float = 0.1
    """between two bytes"""

    def __post_init__(self) -> None:
        unknown = set(self.tells) - set(TELLS)
        if unknown:
            raise ValueError(f"a 429 cannot tell {', '.join(sorted(unknown))}")

    def changed(self, changes: Mapping[str, Any]) -> Self:
        """With some fields changed, also as they come out of JSON."""
        unknown = set(changes) - {known.name for known in fields(self)}
        if unknown:
            raise ValueError(f"no such behaviour: {', '.join(sorted(unknown))}")
        given: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in changes.items()
        }
        return replace(self, **given)

    def dump(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)


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


# ---- vectors


def count_tokens(text: str) -> int:
    """How many tokens a text has here: a fourth of its bytes, and one."""
    return len(_bytes(text)) // 4 + 1


def vector(text: str, dimensions: int) -> NDArray[np.float32]:
    """The unit vector of a text; texts that differ at all have nothing in common."""
    row: NDArray[np.float32] = vectors([text], dimensions)[0]
    return row


def vectors(texts: Sequence[str], dimensions: int, length: float = 1.0) -> NDArray[np.float32]:
    """The vectors of some texts, a row each."""
    angles = np.frombuffer(b"".join([_angles(text, dimensions) for text in texts]), np.uint8)
    points = _circle(dimensions, length).view("<u8").reshape(-1)  # both numbers taken as one
    rows = points.take(angles).view("<f4").reshape(len(texts), (dimensions + 1) // 2 * 2)
    if dimensions % 2:
        rows = rows[:, :dimensions]
        rows[:, -1] = np.copysign(length / math.sqrt(dimensions), rows[:, -1])
    return rows


def _bytes(text: str) -> bytes:
    return text.encode(errors="replace")  # lone surrogates


# Each byte of a text's hash is an angle, and gives two numbers: a point on a circle. So a vector
# has its length without a sum over its numbers, and is written by looking up what is written
# already: the double of a fast service must not spend its time on printing floats.


def _angles(text: str, dimensions: int) -> bytes:
    return hashlib.shake_128(_bytes(text)).digest((dimensions + 1) // 2)


@lru_cache(maxsize=64)
def _circle(dimensions: int, length: float) -> NDArray[np.float32]:
    radius = length * math.sqrt(2 / dimensions)
    angles = (np.arange(256) + 0.5) * (2 * math.pi / 256)
    return (radius * np.stack([np.cos(angles), np.sin(angles)], 1)).astype("<f4")


@lru_cache(maxsize=64)
def _written(dimensions: int, length: float) -> list[str]:
    return [f"{x},{y}" for x, y in _circle(dimensions, length)]


def _in_json(rows: NDArray[np.float32], *, in_base64: bool) -> list[str]:
    if in_base64:
        return [f'"{base64.b64encode(row.astype("<f4").tobytes()).decode()}"' for row in rows]
    return [json.dumps(row.tolist()) for row in rows]  # writes NaN, as servers in Python do


def _sound(texts: Sequence[str], dimensions: int, length: float, *, in_base64: bool) -> list[str]:
    """The vectors of texts in JSON, in little time."""
    if in_base64 or dimensions % 2:
        return _in_json(vectors(texts, dimensions, length), in_base64=in_base64)
    written = _written(dimensions, length)
    return [
        f"[{','.join([written[angle] for angle in _angles(text, dimensions)])}]" for text in texts
    ]


# ---- HTTP


class Connection:
    """A client's connection, which the server may drop from another thread."""

    def __init__(self, sock: socket.socket, number: int) -> None:
        self.sock = sock
        self.number = number
        self.dropped = False
        self._closed = False
        self._lock = threading.Lock()

    def drop(self) -> None:
        """End it for both sides; whoever waits on it wakes up."""
        with self._lock:
            self.dropped = True
            if not self._closed:
                with suppress(OSError):
                    self.sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self.sock.close()


class Exchange(BaseHTTPRequestHandler):
    """One connection's requests, one after the other, and the ways to answer them.

    All that takes time here ends with an OSError when the client leaves or is dropped.
    """

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def __init__(self, connection: Connection, answer: Callable[["Exchange"], None]) -> None:
        self.link = connection
        self._answer = answer
        none: Any = None
        super().__init__(connection.sock, none, none)  # all of it happens in there

    def do_GET(self) -> None:
        self._answer(self)

    def do_POST(self) -> None:
        self._answer(self)

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def body(self) -> bytes:
        length = int(self.headers.get("content-length", 0))
        received = self.rfile.read(length)
        if len(received) < length:
            raise ConnectionAbortedError("the client left in the middle of its request")
        return received

    def check(self) -> None:
        """See whether the client is still there."""
        with suppress(BlockingIOError):
            if not self.link.sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT):
                raise ConnectionAbortedError("the client left")

    def pause(self, seconds: float) -> None:
        """Let time pass."""
        if seconds <= 0:
            return
        end = time.monotonic() + seconds
        self.link.sock.settimeout(seconds)
        try:
            if not self.link.sock.recv(1, socket.MSG_PEEK):
                raise ConnectionAbortedError("the client left")
            time.sleep(max(0.0, end - time.monotonic()))  # it has sent its next request already
        except TimeoutError:
            return
        finally:
            self.link.sock.settimeout(None)

    def hang(self) -> None:
        """Never come back, but by the error."""
        while self.link.sock.recv(65536):
            pass
        raise ConnectionAbortedError("the client left")

    def send(self, answer: "Answer", drip_seconds: float = 0.0) -> None:
        """Write all of it, or the first bytes and then no more."""
        reason = responses.get(answer.status, "Unknown")
        head = {
            "Date": formatdate(usegmt=True),
            "Content-Type": answer.content_type,
            "Content-Length": str(len(answer.body)),
            **answer.headers,
        }
        lines = [f"HTTP/1.1 {answer.status} {reason}", *(f"{k}: {v}" for k, v in head.items())]
        written = ("\r\n".join(lines) + "\r\n\r\n").encode()
        body = answer.body if answer.sent is None else answer.body[: answer.sent]
        if drip_seconds:
            self.wfile.write(written)
            for at in range(len(body)):
                self.wfile.write(body[at : at + 1])
                self.pause(drip_seconds)
        else:
            self.wfile.write(written + body)
        if answer.sent is not None:
            self.close_connection = True


@dataclass(frozen=True)
class Answer:
    """What goes back to the client."""

    status: int
    body: bytes
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)
    sent: int | None = None
    """end the connection after so many bytes of the body"""


def as_json(status: int, content: object, headers: Mapping[str, str] | None = None) -> Answer:
    return Answer(status, json.dumps(content).encode(), headers=headers or {})


class Http:
    """HTTP/1.1 on a loopback port, with a thread for each connection; it can go and come back."""

    def __init__(self, answer: Callable[[Exchange], None], port: int = 0) -> None:
        self._answer = answer
        # Bound, but never listening: it keeps the port from all others while nobody listens.
        self._keeper = self._bound(port)
        self.port: int = self._keeper.getsockname()[1]
        self.accepted = 0
        self._listener: socket.socket | None = None
        self._accepting: threading.Thread | None = None
        self._connections: dict[Connection, threading.Thread] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @staticmethod
    def _bound(port: int) -> socket.socket:
        sock = socket.socket()
        # what lets two sockets of ours have one port, if not two that listen
        shared = socket.SO_REUSEADDR if sys.platform == "linux" else socket.SO_REUSEPORT
        sock.setsockopt(socket.SOL_SOCKET, shared, 1)
        try:
            sock.bind(("127.0.0.1", port))
        except OSError:
            sock.close()
            raise
        return sock

    def listen(self) -> None:
        self._listener = self._bound(self.port)
        self._listener.listen(1024)
        self._accepting = threading.Thread(
            target=self._accept, args=[self._listener], name=f"provider-{self.port}", daemon=True
        )
        self._accepting.start()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            self.accepted += 1
            connection = Connection(sock, self.accepted)
            thread = threading.Thread(
                target=self._talk, args=[connection], name=f"provider-{self.port}-connection",
                daemon=True,
            )  # fmt: skip
            ended = [known for known, thread in self._connections.items() if not thread.is_alive()]
            for known in ended:
                del self._connections[known]
            thread.start()
            self._connections[connection] = thread

    def _talk(self, connection: Connection) -> None:
        try:
            Exchange(connection, self._answer)
        except OSError:
            pass  # the client left, or was dropped
        finally:
            connection.close()

    def hang_up(self) -> None:
        """Refuse new connections, and drop those that are there."""
        if self._listener is None or self._accepting is None:
            return
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes `accept`; elsewhere `close` does
        self._accepting.join(0.5)
        self._listener.close()
        self._accepting.join()
        self._listener = self._accepting = None
        for connection in self._connections:
            connection.drop()

    def join(self) -> None:
        """Wait until the dropped connections' threads are gone."""
        for thread in self._connections.values():
            thread.join()
        self._connections.clear()

    def close(self) -> None:
        self.hang_up()
        self.join()
        self._keeper.close()


# ---- what it saw


class _Entry:
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
        self._entries: deque[_Entry] = deque()
        self._characters = 0
        self._calls = 0
        self._paths: Counter[str] = Counter()
        self._statuses: Counter[int] = Counter()
        self._embedded = self._tokens = 0
        self._peak = self._in_flight
        self._times: Counter[bytes] = Counter()
        self._lost_texts = False

    def begin(self, path: str, known: bool, connection: int) -> _Entry:
        with self._lock:
            entry = _Entry(path, connection, self._clock())
            self._entries.append(entry)
            self._calls += 1
            self._paths[path if known else "other"] += 1
            self._trim()
            return entry

    def embeds(self, entry: _Entry) -> None:
        with self._lock:
            entry.embeds = True
            self._in_flight += 1
            self._peak = max(self._peak, self._in_flight)

    def asks(self, entry: _Entry, texts: Sequence[str], tokens: int) -> None:
        """Note what the call is about."""
        with self._lock:
            entry.texts = texts
            kept = tuple(texts) if self._keep_texts else None
            entry.call = replace(entry.call, inputs=len(texts), tokens=tokens, texts=kept)
            self._characters += sum(map(len, kept or ()))
            self._trim()

    def settle(self, entry: _Entry, status: int | None) -> None:
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
        key = _key(text)
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
            return [self._times[_key(text)] for text in texts]

    def forget(self) -> None:
        with self._lock:
            self._clear()


def _key(text: str) -> bytes:
    return hashlib.blake2b(_bytes(text), digest_size=12).digest()


# ---- the wire formats


class Complaint(Exception):
    """An answer other than 200, in the words of the service."""

    def __init__(
        self,
        status: int,
        message: str,
        type: str = "invalid_request_error",
        code: str | None = None,
        param: str | None = None,
        wait: float | None = None,
        of: str = "requests",
    ) -> None:
        super().__init__(message)
        self.status = status
        self.openai = {"message": message, "type": type, "param": param, "code": code}
        self.wait = wait
        """seconds until it is worth coming back, if that is known"""
        self.of = of
        """what there was too much of: requests or tokens"""


@dataclass(frozen=True)
class Asked:
    """An embedding call as it was understood."""

    model: str
    texts: list[str]
    taken: list[str]
    """what the model reads of each text"""
    tokens: int
    dimensions: int
    write: Callable[[list[tuple[int, str]], "Asked"], str]
    """makes the answer of places and vectors, these already in JSON"""
    in_base64: bool = False
    length: float = 1.0
    """of the vectors"""


def go_duration(seconds: float) -> str:
    """As the x-ratelimit headers have it: `120ms`, `1.5s`, `6m0s`."""
    milliseconds = round(seconds * 1000)
    if 0 < milliseconds < 1000:
        return f"{milliseconds}ms"
    minutes, rest = divmod(milliseconds, 60_000)
    hours, minutes = divmod(minutes, 60)
    written = f"{rest / 1000:g}s"
    if hours:
        return f"{hours}h{minutes}m{written}"
    return f"{minutes}m{written}" if minutes else written


def _parsed(body: bytes, empty: str) -> dict[str, Any]:
    if not body:
        raise Complaint(400, empty)
    try:
        content = json.loads(body)
    except ValueError as error:
        raise Complaint(400, f"the body of the request is not JSON: {error}") from None
    if not isinstance(content, dict):
        raise Complaint(400, "the body of the request is not an object")
    return content


def ask_openai(body: bytes, behaviour: Behaviour) -> Asked:
    """`POST /v1/embeddings`."""
    content = _parsed(body, "you must provide a model parameter")
    model, wanted = content.get("model"), content.get("dimensions")
    form = content.get("encoding_format", "float")
    if not model:
        raise Complaint(400, "you must provide a model parameter")
    if model not in behaviour.openai_models:
        message = f"The model `{model}` does not exist or you do not have access to it."
        raise Complaint(404, message, code="model_not_found")
    if form not in ("float", "base64"):
        raise Complaint(400, f"Invalid encoding_format: {form}", param="encoding_format")
    native = behaviour.openai_models[model]
    if wanted is not None and model == "text-embedding-ada-002":
        raise Complaint(400, "This model does not support specifying dimensions.")
    if wanted is not None and not (type(wanted) is int and 1 <= wanted <= native):
        message = f"Invalid value for 'dimensions' = {wanted}. Must be between 1 and {native}."
        raise Complaint(400, message, param="dimensions")
    texts, tokens = _openai_input(content.get("input"))
    return Asked(model, texts, texts, tokens, wanted or native, _write_openai, form == "base64")


_INVALID = (
    "'$.input' is invalid. Please check the API reference: "
    "https://platform.openai.com/docs/api-reference."
)


def _openai_input(given: object) -> tuple[list[str], int]:
    """Texts and their tokens. Tokens in place of a text are taken for a text of their own."""
    inputs: list[Any]
    if isinstance(given, list) and not (given and all(type(token) is int for token in given)):
        inputs = given
    else:
        inputs = [given]
    if not 1 <= len(inputs) <= 2048:
        raise Complaint(400, _INVALID)
    texts, tokens = [], []
    for one in inputs:
        if not one:
            raise Complaint(400, _INVALID)  # it does not say which one is empty
        if isinstance(one, str):
            texts.append(one)
            tokens.append(count_tokens(one))
        elif isinstance(one, list) and all(type(token) is int for token in one):
            texts.append(f"tokens {json.dumps(one)}")
            tokens.append(len(one))
        else:
            raise Complaint(400, _INVALID)
    if max(tokens) > 8192:
        raise Complaint(400, "Invalid 'input': maximum context length is 8192 tokens.")
    if sum(tokens) > 300_000:
        message = f"Requested {sum(tokens)} tokens, max 300000 tokens per request"
        kind = "max_tokens_per_request"
        raise Complaint(400, message, type=kind, code=kind)
    return texts, sum(tokens)


def _write_openai(rows: list[tuple[int, str]], asked: Asked) -> str:
    data = [f'{{"object":"embedding","index":{at},"embedding":{row}}}' for at, row in rows]
    usage = f'{{"prompt_tokens":{asked.tokens},"total_tokens":{asked.tokens}}}'
    model = json.dumps(asked.model)
    return f'{{"object":"list","data":[{",".join(data)}],"model":{model},"usage":{usage}}}'


def ask_ollama(body: bytes, behaviour: Behaviour) -> Asked:
    """`POST /api/embed`."""
    content = _parsed(body, "missing request body")
    given = content.get("input")
    if isinstance(given, str):
        texts = [given] if given else []
    elif isinstance(given, list) and behaviour.arrays and all(isinstance(t, str) for t in given):
        texts = given
    elif given is None:
        texts = []
    else:
        raise Complaint(400, "invalid input type")
    model = str(content.get("model", ""))
    native = _ollama_dimensions(model, behaviour)
    if native is None:
        raise Complaint(404, f"model '{model}' not found")
    if content.get("truncate") is False and any(
        count_tokens(text) > behaviour.context for text in texts
    ):
        raise Complaint(400, "the input length exceeds the context length")
    wanted = content.get("dimensions") or 0
    dimensions = wanted if 0 < wanted < native else native
    taken = [_taken(text, behaviour.context) for text in texts]
    write = partial(_write_ollama, time.monotonic_ns())
    return Asked(model, texts, taken, sum(map(count_tokens, taken)), dimensions, write)


def _taken(text: str, context: int) -> str:
    """As much of a text as goes into so many tokens."""
    return _bytes(text)[: 4 * context - 1].decode(errors="ignore")


def _write_ollama(began: int, rows: list[tuple[int, str]], asked: Asked) -> str:
    model, written = json.dumps(asked.model), ",".join(row for _, row in rows)
    if not asked.texts:
        return f'{{"model":{model},"embeddings":[]}}'
    took = time.monotonic_ns() - began
    return (
        f'{{"model":{model},"embeddings":[{written}],"total_duration":{took + 1},'
        f'"load_duration":{took // 10 + 1},"prompt_eval_count":{asked.tokens}}}'
    )


def ask_ollama_once(body: bytes, behaviour: Behaviour) -> Asked:
    """`POST /api/embeddings`, the older form; its vectors are not of unit length."""
    content = _parsed(body, "missing request body")
    model, prompt = str(content.get("model", "")), str(content.get("prompt") or "")
    if not model:
        raise Complaint(400, "model is required")
    native = _ollama_dimensions(model, behaviour)
    if native is None:
        raise Complaint(404, f'model "{model}" not found, try pulling it first')
    texts = [prompt] if prompt else []
    taken = [_taken(text, behaviour.context) for text in texts]
    tokens = sum(map(count_tokens, taken))
    return Asked(model, texts, taken, tokens, native, _write_ollama_once, length=16.0)


def _write_ollama_once(rows: list[tuple[int, str]], asked: Asked) -> str:
    return f'{{"embedding":{rows[0][1] if rows else "[]"}}}'


def _ollama_dimensions(model: str, behaviour: Behaviour) -> int | None:
    named = {_tagged(name): native for name, native in behaviour.ollama_models.items()}
    return named.get(_tagged(model))


def _tagged(name: str) -> str:
    return name if ":" in name else f"{name}:latest"


def list_openai(behaviour: Behaviour) -> object:
    """`GET /v1/models`."""
    models = [
        {"id": name, "object": "model", "created": 1705948997, "owned_by": "system"}
        for name in behaviour.openai_models
    ]
    return {"object": "list", "data": models}


def list_ollama(behaviour: Behaviour) -> object:
    """`GET /api/tags`."""
    details = {
        "parent_model": "", "format": "gguf", "family": "bert", "families": ["bert"],
        "parameter_size": "334M", "quantization_level": "F16",
    }  # fmt: skip
    models = [
        {
            "name": _tagged(name),
            "model": _tagged(name),
            "modified_at": "2026-05-10T08:06:48.639712648-07:00",
            "size": 669615493,
            "digest": hashlib.sha256(name.encode()).hexdigest(),
            "details": {**details, "embedding_length": dimensions},
        }
        for name, dimensions in behaviour.ollama_models.items()
    ]
    return {"models": models}


def tell_version(behaviour: Behaviour) -> object:
    """`GET /api/version`."""
    return {"version": "0.33.0" if behaviour.arrays else "0.1.26"}


LISTS = {
    "/v1/models": list_openai,
    "/api/tags": list_ollama,
    "/api/version": tell_version,
}
EMBEDS = {
    "/v1/embeddings": ask_openai,
    "/api/embed": ask_ollama,
    "/api/embeddings": ask_ollama_once,
}


_ROUTES = {("GET", path) for path in LISTS} | {("POST", path) for path in EMBEDS}


# ---- what goes wrong

_PAGE = Answer(
    502,
    b"<html>\r\n<head><title>502 Bad Gateway</title></head>\r\n<body>\r\n"
    b"<center><h1>502 Bad Gateway</h1></center>\r\n<hr><center>nginx</center>\r\n"
    b"</body>\r\n</html>\r\n",
    "text/html",
)
_BUSY = "server busy, please try again.  maximum pending requests exceeded"


def _hits(trigger: str | None, texts: Sequence[str]) -> bool:
    return trigger is not None and (trigger == EVERY_CALL or any(trigger in text for text in texts))


def _check_key(given: str, behaviour: Behaviour) -> None:
    if behaviour.key is None or given == f"Bearer {behaviour.key}":
        return
    if not given:
        raise Complaint(401, "You didn't provide an API key.")
    message = (
        f"Incorrect API key provided: {given.removeprefix('Bearer ')}. You can find your API key "
        "at https://platform.openai.com/account/api-keys."
    )
    raise Complaint(401, message, code="invalid_api_key")


def _failure(path: str, behaviour: Behaviour) -> Complaint:
    if not path.startswith("/v1"):
        message = 'do embedding request: Post "http://127.0.0.1:34567/embedding": EOF'
        return Complaint(behaviour.fail_status, _BUSY if behaviour.fail_status == 503 else message)
    message = "The server had an error while processing your request. Sorry about that!"
    if behaviour.fail_status == 503:
        message = "The engine is currently overloaded, please try again later."
    return Complaint(behaviour.fail_status, message, type="server_error")


def _limits(behaviour: Behaviour) -> dict[str, int | None]:
    return {"requests": behaviour.requests, "tokens": behaviour.tokens}


def _too_many(model: str, of: str, limit: int, used: int, wanted: int, wait: float) -> Complaint:
    short = {"requests": "RPM", "tokens": "TPM"}[of]
    message = (
        f"Rate limit reached for {model} in organization org-evervec on {of} per min ({short}): "
        f"Limit {limit}, Used {used}, Requested {wanted}. Please try again in "
        f"{go_duration(wait)}. Visit https://platform.openai.com/account/rate-limits to learn more."
    )
    return Complaint(429, message, of, "rate_limit_exceeded", wait=wait, of=of)


def _rows(asked: Asked, behaviour: Behaviour) -> list[tuple[int, str]]:
    """Place and vector of each text, as the answer is to have them."""
    form = {"in_base64": asked.in_base64}
    rows = list(enumerate(_sound(asked.taken, asked.dimensions, asked.length, **form)))
    for at, text in enumerate(asked.texts):
        wrong, nan, zero = (
            _hits(trigger, [text])
            for trigger in (behaviour.wrong_dimensions, behaviour.nan, behaviour.zero)
        )
        if wrong or nan or zero:
            dimensions = asked.dimensions // 2 or 2 if wrong else asked.dimensions
            row = vectors([asked.taken[at]], dimensions, asked.length)
            if zero:
                row[:] = 0.0
            if nan:
                row[0, 0] = math.nan
            rows[at] = at, _in_json(row, **form)[0]
    if _hits(behaviour.wrong_count, asked.texts):
        rows = rows[:-1]
    return rows[::-1] if behaviour.shuffled else rows


# ---- the server


class ProviderServer:
    """The provider, in threads of this process. It serves from its making until `close`."""

    def __init__(
        self,
        behaviour: Behaviour | None = None,
        *,
        port: int = 0,
        keep_texts: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._behaviour = behaviour or Behaviour()
        self._script: deque[Behaviour] = deque()
        self._clock = clock
        self._log = Log(clock, keep_texts=keep_texts)
        self._forgotten_connections = 0
        self._numbers = itertools.count(1)
        self._swapping = threading.Lock()
        self._slots = threading.Condition()
        self._served = 0
        self._freed: deque[float] = deque(maxlen=1024)  # since when each free slot is free
        self._window_lock = threading.Lock()
        self._window_ends = -math.inf
        self._used = {"requests": 0, "tokens": 0}
        self._http = Http(self._answer, port)
        if not self._behaviour.down:
            self._http.listen()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    @property
    def url(self) -> str:
        """Where Ollama's clients look."""
        return self._http.url

    @property
    def openai_url(self) -> str:
        """Where OpenAI's clients look."""
        return f"{self.url}/v1"

    @property
    def port(self) -> int:
        return self._http.port

    # what it does

    @property
    def behaviour(self) -> Behaviour:
        return self._behaviour

    @behaviour.setter
    def behaviour(self, behaviour: Behaviour) -> None:
        with self._swapping:
            self._swap(behaviour)

    def behave(self, **changes: Any) -> None:
        """Change some of the behaviour. Calls that are being served keep what they began with;
        when this returns, the server is down or up as it says."""
        with self._swapping:
            self._swap(self._behaviour.changed(changes))

    def script(self, *behaviours: Behaviour) -> None:
        """What the next embedding calls meet, one each; then the behaviour holds again, which
        alone says whether the server is down and how many slots it has."""
        self._script = deque(behaviours)

    def _swap(self, behaviour: Behaviour) -> None:
        was, self._behaviour = self._behaviour.down, behaviour
        if behaviour.down and not was:
            self._http.hang_up()
        with self._slots:
            self._freed.clear()
            self._slots.notify_all()
        if behaviour.down and not was:
            self._http.join()
        elif was and not behaviour.down:
            self._http.listen()

    def close(self) -> None:
        """End it, whatever calls are under way; no thread of it is left."""
        with self._swapping:
            self._swap(replace(self._behaviour, down=True))
            self._http.close()

    # what it saw

    def seen(self) -> Seen:
        return self._log.seen(self._http.accepted - self._forgotten_connections)

    def calls(self) -> list[Call]:
        """The calls in the order of their arrival, also those under way."""
        return self._log.calls()

    def times_embedded(self, *texts: str) -> list[int]:
        """How often each of the texts was in a call that was answered with 200."""
        return self._log.times(texts)

    def forget(self) -> None:
        """Begin to count anew."""
        self._forgotten_connections = self._http.accepted
        self._log.forget()

    # how it answers

    def _answer(self, exchange: Exchange) -> None:
        path = exchange.path.partition("?")[0]
        known = path in LISTS or path in EMBEDS
        entry = self._log.begin(path, known, exchange.link.number)
        try:
            body = exchange.body()
            behaviour = self._behaviour
            if (exchange.command, path) in _ROUTES and path not in behaviour.missing:
                if path in EMBEDS:
                    self._log.embeds(entry)
                    with suppress(IndexError):
                        behaviour = self._script.popleft()
                answer = self._converse(exchange, path, body, behaviour, entry)
            elif path.startswith("/v1"):
                complaint = Complaint(404, f"Invalid URL ({exchange.command} {path})")
                answer = self._complain(path, complaint, behaviour)
            else:
                answer = Answer(404, b"404 page not found", "text/plain")
            self._send(exchange, answer, behaviour, entry)
        finally:
            self._log.settle(entry, None)

    def _send(
        self, exchange: Exchange, answer: Answer, behaviour: Behaviour, entry: _Entry
    ) -> None:
        exchange.check()
        texts = entry.texts
        if _hits(behaviour.truncated, texts):
            answer = replace(answer, body=answer.body[: len(answer.body) // 2])
        if _hits(behaviour.cut, texts):
            answer = replace(answer, sent=len(answer.body) // 2)
        if _hits(behaviour.drip, texts):
            exchange.send(answer, behaviour.drip_seconds)
            self._log.settle(entry, answer.status)
        else:
            self._log.settle(entry, answer.status)
            exchange.send(answer)

    def _converse(
        self, exchange: Exchange, path: str, body: bytes, behaviour: Behaviour, entry: _Entry
    ) -> Answer:
        try:
            if path.startswith("/v1"):
                _check_key(exchange.headers.get("authorization", ""), behaviour)
            if path in LISTS:
                return self._list(exchange, path, behaviour)
            asked = EMBEDS[path](body, behaviour)
            self._log.asks(entry, asked.texts, asked.tokens)
            if _hits(behaviour.proxy, asked.texts):
                return _PAGE
            self._allow(asked, behaviour)
            with self._slot(exchange, behaviour) as due:
                answer = self._serve(exchange, path, asked, behaviour)
                exchange.pause(due - time.monotonic())
                return answer
        except Complaint as complaint:
            return self._complain(path, complaint, behaviour)

    def _list(self, exchange: Exchange, path: str, behaviour: Behaviour) -> Answer:
        if behaviour.proxy == EVERY_CALL:
            return _PAGE
        if behaviour.hang == EVERY_CALL:
            exchange.hang()
        if behaviour.fail == EVERY_CALL:
            raise _failure(path, behaviour)
        return as_json(200, LISTS[path](behaviour))

    def _serve(self, exchange: Exchange, path: str, asked: Asked, behaviour: Behaviour) -> Answer:
        if _hits(behaviour.hang, asked.texts):
            exchange.hang()
        try:
            if _hits(behaviour.fail, asked.texts):
                raise _failure(path, behaviour)
            if _hits(behaviour.refuse, asked.texts):
                openai = path.startswith("/v1")
                usual = _INVALID if openai else "the input length exceeds the context length"
                raise Complaint(400, behaviour.refuse_words or usual)
        except Complaint as complaint:  # takes its time too
            return self._complain(path, complaint, behaviour)
        written = asked.write(_rows(asked, behaviour), asked)
        return Answer(200, written.encode(), headers=self._headers(path, behaviour))

    @contextmanager
    def _slot(self, exchange: Exchange, behaviour: Behaviour) -> Iterator[float]:
        """Wait for a slot, and tell until when it is taken. Time runs from the moment when the
        slot was free, not from when this thread woke up: the server serves as much as it says."""
        arrived = time.monotonic()
        with self._slots:
            while (slots := self._behaviour.slots) is not None and self._served >= slots:
                if exchange.link.dropped:
                    raise ConnectionAbortedError("the server went down")
                if behaviour.full_status is not None:
                    raise Complaint(behaviour.full_status, _BUSY, type="server_error")
                self._slots.wait()
            begin = max(arrived, self._freed.pop()) if self._freed else time.monotonic()
            self._served += 1
        end = begin + behaviour.latency
        try:
            exchange.check()
            yield end
        except BaseException:
            end = time.monotonic()
            raise
        finally:
            with self._slots:
                self._served -= 1
                self._freed.append(end)
                self._slots.notify()

    # limits

    def _allow(self, asked: Asked, behaviour: Behaviour) -> None:
        if behaviour.quota_used_up:
            message = (
                "You exceeded your current quota, please check your plan and billing details. "
                "For more information on this error, read the docs: "
                "https://platform.openai.com/docs/guides/error-codes/api-errors."
            )
            raise Complaint(429, message, "insufficient_quota", "insufficient_quota")
        now = self._clock()
        if now < behaviour.storm_until:
            limit = USUAL_LIMITS["requests"]
            wait = behaviour.storm_until - now
            raise _too_many(asked.model, "requests", limit, limit, 1, wait)
        with self._window_lock:
            if now >= self._window_ends:
                self._window_ends = now + behaviour.window
                self._used = {"requests": 0, "tokens": 0}
            wanted = {"requests": 1, "tokens": asked.tokens}
            for of, most in _limits(behaviour).items():
                used = self._used[of]
                if most is not None and used + wanted[of] > most:
                    wait = self._window_ends - now
                    raise _too_many(asked.model, of, most, used, wanted[of], wait)
            for of, amount in wanted.items():
                self._used[of] += amount

    def _headers(
        self, path: str, behaviour: Behaviour, complaint: Complaint | None = None
    ) -> dict[str, str]:
        """Those of OpenAI; for others only what a 429 says of when to come back."""
        headers: dict[str, str] = {}
        wait = complaint.wait if complaint else None
        if wait is not None:
            if "retry-after" in behaviour.tells:
                headers["retry-after"] = str(max(1, math.ceil(wait)))
            if "retry-after-ms" in behaviour.tells:
                headers["retry-after-ms"] = str(max(1, math.ceil(wait * 1000)))
            if "retry-after-date" in behaviour.tells:
                later = math.ceil(self._clock() + wait)
                headers["retry-after"] = formatdate(later, usegmt=True)
        if path.startswith("/v1"):
            headers["x-request-id"] = f"req_{next(self._numbers):012x}"
            if "x-ratelimit" in behaviour.tells:
                headers |= self._rates(behaviour, complaint)
        return headers

    def _rates(self, behaviour: Behaviour, complaint: Complaint | None) -> dict[str, str]:
        with self._window_lock:
            left = max(0.0, self._window_ends - self._clock())
            used = dict(self._used) if left else {"requests": 0, "tokens": 0}
        headers = {}
        for of, limit in _limits(behaviour).items():
            remaining, reset = USUAL_LIMITS[of], 0.0
            if limit is not None:
                remaining, reset = max(0, limit - used[of]), left if used[of] else 0.0
            if complaint and complaint.wait is not None and complaint.of == of:
                remaining = 0 if limit is None else remaining
                reset = complaint.wait
            headers[f"x-ratelimit-limit-{of}"] = str(USUAL_LIMITS[of] if limit is None else limit)
            headers[f"x-ratelimit-remaining-{of}"] = str(remaining)
            headers[f"x-ratelimit-reset-{of}"] = go_duration(reset)
        return headers

    def _complain(self, path: str, complaint: Complaint, behaviour: Behaviour) -> Answer:
        error = complaint.openai if path.startswith("/v1") else complaint.openai["message"]
        headers = self._headers(path, behaviour, complaint)
        return as_json(complaint.status, {"error": error}, headers)
