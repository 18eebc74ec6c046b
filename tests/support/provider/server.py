"""The provider itself: it listens, keeps its limits, and answers as its behaviour says."""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, Self

from support.provider.behaviour import EVERY_CALL, Behaviour, hits
from support.provider.faults import BUSY, PAGE, check_key, failure, refusal, rows_of
from support.provider.formats import EMBEDS, LISTS, ROUTES, Asked, Complaint
from support.provider.http import Answer, Exchange, Http, as_json
from support.provider.limits import Limits
from support.provider.log import Call, Entry, Log, Seen


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
        self._limits = Limits(clock)
        self._log = Log(clock, keep_texts=keep_texts)
        self._forgotten_connections = 0
        self._swapping = threading.Lock()
        self._slots = threading.Condition()
        self._served = 0
        self._freed: deque[float] = deque(maxlen=1024)  # since when each free slot is free
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
            exchange.link.brought += 1
            if behaviour.keeps is not None and exchange.link.brought > behaviour.keeps:
                raise ConnectionAbortedError("this connection was kept for long enough")
            if (exchange.command, path) in ROUTES and path not in behaviour.missing:
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

    def _send(self, exchange: Exchange, answer: Answer, behaviour: Behaviour, entry: Entry) -> None:
        exchange.check()
        texts = entry.texts
        if hits(behaviour.truncated, texts):
            answer = replace(answer, body=answer.body[: len(answer.body) // 2])
        if hits(behaviour.cut, texts):
            answer = replace(answer, sent=len(answer.body) // 2)
        if hits(behaviour.drip, texts):
            exchange.send(answer, behaviour.drip_seconds)
            self._log.settle(entry, answer.status)
        else:
            self._log.settle(entry, answer.status)
            exchange.send(answer)

    def _converse(
        self, exchange: Exchange, path: str, body: bytes, behaviour: Behaviour, entry: Entry
    ) -> Answer:
        try:
            if path.startswith("/v1"):
                check_key(exchange.headers.get("authorization", ""), behaviour)
            if path in LISTS:
                return self._list(exchange, path, behaviour)
            asked = EMBEDS[path](body, behaviour)
            self._log.asks(entry, asked.texts, asked.tokens)
            if hits(behaviour.proxy, asked.texts):
                return replace(PAGE, status=behaviour.proxy_status)
            self._limits.allow(asked, behaviour)
            with self._slot(exchange, behaviour) as due:
                answer = self._serve(exchange, path, asked, behaviour)
                exchange.pause(due - time.monotonic())
                return answer
        except Complaint as complaint:
            return self._complain(path, complaint, behaviour)

    def _list(self, exchange: Exchange, path: str, behaviour: Behaviour) -> Answer:
        if behaviour.proxy == EVERY_CALL:
            return replace(PAGE, status=behaviour.proxy_status)
        if behaviour.hang == EVERY_CALL:
            exchange.hang()
        if behaviour.fail == EVERY_CALL:
            raise failure(path, behaviour)
        return as_json(200, LISTS[path](behaviour))

    def _serve(self, exchange: Exchange, path: str, asked: Asked, behaviour: Behaviour) -> Answer:
        if hits(behaviour.hang, asked.texts):
            exchange.hang()
        try:
            if hits(behaviour.fail, asked.texts):
                raise failure(path, behaviour)
            if hits(behaviour.refuse, asked.texts):
                raise refusal(path, behaviour)
        except Complaint as complaint:  # takes its time too
            return self._complain(path, complaint, behaviour)
        written = asked.write(rows_of(asked, behaviour), asked)
        return Answer(200, written.encode(), headers=self._limits.headers(path, behaviour))

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
                    raise Complaint(behaviour.full_status, BUSY, type="server_error")
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

    def _complain(self, path: str, complaint: Complaint, behaviour: Behaviour) -> Answer:
        error = complaint.openai if path.startswith("/v1") else complaint.openai["message"]
        headers = self._limits.headers(path, behaviour, complaint)
        return as_json(complaint.status, {"error": error}, headers)
