"""The provider in a process of its own, so that it shares no interpreter with those who call it.

    python -m tests.support.provider_process --port 8081 --behave '{"latency": 0.05, "slots": 8}'

prints two lines, its URL and that of its control, and serves until it is told to end. The
control has a port of its own, because a provider that is down cannot be told to come back:

    GET  /_control            what was seen
    POST /_control            {"hang": "poison"}: changes of the behaviour; answers all of it
    POST /_control/behaviour  the same, and all else as it is at first
    POST /_control/script     [{...}, ...]: what the next calls meet, one each
    GET  /_control/calls      the calls
    POST /_control/embedded   ["text", ...]: how often each of them was embedded
    POST /_control/forget     begin to count anew

`ProviderProcess` starts it, and has the same words as `ProviderServer`.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Self

_TESTS = Path(__file__).parents[1]
if __name__ == "__main__":
    sys.path.insert(0, str(_TESTS))  # wherever it was started from

from support.provider import (  # noqa: E402
    Behaviour,
    Call,
    Exchange,
    Http,
    ProviderServer,
    Seen,
    as_json,
)

_PATIENCE = 60.0


class ProviderProcess:
    """A `ProviderServer` elsewhere. It ends with this process, if not before."""

    def __init__(
        self, behaviour: Behaviour | None = None, *, port: int = 0, keep_texts: bool = False
    ) -> None:
        start = (behaviour or Behaviour()).dump()
        orders = ["--until-eof", "--port", str(port), "--behave", json.dumps(start)]
        if keep_texts:
            orders.append("--keep-texts")
        self._process = subprocess.Popen(
            [sys.executable, "-W", "error", "-m", "support.provider_process", *orders],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(_TESTS)},
        )
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().strip()
        self._control = self._process.stdout.readline().strip()
        if not self._control:
            self.close()
            raise AssertionError("the provider did not start; see what it wrote to standard error")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    @property
    def openai_url(self) -> str:
        return f"{self.url}/v1"

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def behaviour(self) -> Behaviour:
        return Behaviour().changed(self._ask("POST", "", {}))

    @behaviour.setter
    def behaviour(self, behaviour: Behaviour) -> None:
        self._ask("POST", "/behaviour", behaviour.dump())

    def behave(self, **changes: Any) -> None:
        self._ask("POST", "", changes)

    def script(self, *behaviours: Behaviour) -> None:
        self._ask("POST", "/script", [behaviour.dump() for behaviour in behaviours])

    def seen(self) -> Seen:
        found = self._ask("GET", "")
        statuses = {int(status): count for status, count in found.pop("statuses").items()}
        return Seen(statuses=statuses, **found)

    def calls(self) -> list[Call]:
        found = self._ask("GET", "/calls")
        return [Call(**{**call, "texts": call["texts"] and tuple(call["texts"])}) for call in found]

    def times_embedded(self, *texts: str) -> list[int]:
        times: list[int] = self._ask("POST", "/embedded", texts)
        return times

    def forget(self) -> None:
        self._ask("POST", "/forget")

    def _ask(self, method: str, path: str, content: object = None) -> Any:
        host = self._control.removeprefix("http://").partition("/")[0]
        connection = HTTPConnection(host, timeout=_PATIENCE)
        try:
            connection.request(method, f"/_control{path}", json.dumps(content))
            response = connection.getresponse()
            said = json.loads(response.read())
        finally:
            connection.close()
        if response.status != 200:
            raise ValueError(said["error"])
        return said

    def close(self) -> None:
        """End it, whatever calls are under way."""
        if self._process.stdin is None or self._process.stdout is None:
            raise AssertionError("it was started without pipes")
        self._process.stdin.close()
        try:
            self._process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise
        finally:
            self._process.stdout.close()


def controls(server: ProviderServer) -> Callable[[Exchange], None]:
    """What answers the control's requests."""

    def behave(changes: Any) -> object:
        server.behave(**changes)
        return server.behaviour.dump()

    def begin(behaviour: Any) -> object:
        server.behaviour = Behaviour().changed(behaviour)
        return server.behaviour.dump()

    def script(behaviours: Any) -> object:
        server.script(*(Behaviour().changed(changes) for changes in behaviours))
        return None

    actions: dict[tuple[str, str], Callable[[Any], object]] = {
        ("GET", "/_control"): lambda _: asdict(server.seen()),
        ("POST", "/_control"): behave,
        ("POST", "/_control/behaviour"): begin,
        ("POST", "/_control/script"): script,
        ("GET", "/_control/calls"): lambda _: [asdict(call) for call in server.calls()],
        ("POST", "/_control/embedded"): lambda texts: server.times_embedded(*texts),
        ("POST", "/_control/forget"): lambda _: server.forget(),
    }

    def answer(exchange: Exchange) -> None:
        body = exchange.body()
        action = actions.get((exchange.command, exchange.path))
        if action is None:
            exchange.send(as_json(404, {"error": "no such control"}))
            return
        try:
            result = action(json.loads(body) if body else None)
        except (TypeError, ValueError, AssertionError) as error:
            exchange.send(as_json(400, {"error": str(error)}))
        else:
            exchange.send(as_json(200, result))

    return answer


def main() -> None:
    parser = argparse.ArgumentParser(description="An embedding provider with scripted faults.")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--control-port", type=int, default=0)
    parser.add_argument("--behave", type=json.loads, default={}, help="fields of Behaviour, JSON")
    parser.add_argument("--keep-texts", action="store_true", help="in the log of calls")
    parser.add_argument("--until-eof", action="store_true", help="end with the standard input")
    given = parser.parse_args()

    sys.setswitchinterval(0.0005)  # a call that is due does not wait for one being worked on
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    behaviour = Behaviour().changed(given.behave)
    with ProviderServer(behaviour, port=given.port, keep_texts=given.keep_texts) as server:
        control = Http(controls(server), given.control_port)
        control.listen()
        print(server.url, f"{control.url}/_control", sep="\n", flush=True)
        if given.until_eof:
            while os.read(0, 4096):
                pass
        else:
            ended.wait()
        control.close()


if __name__ == "__main__":
    main()
