"""QStash as its users meet it: takes messages over its documented REST, and signs deliveries."""

import atexit
import base64
import hashlib
import json
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import jwt

CURRENT_KEY = "sig_current_" + "c" * 32
NEXT_KEY = "sig_next_" + "n" * 32
TOKEN = "qstash-token-of-the-tests"
CRON_SECRET = "of-the-scheduler"


def sign(url: str, body: bytes, key: str = CURRENT_KEY, /, **changed: Any) -> str:
    """What QStash sends as `Upstash-Signature`; claims given as None are left out."""
    now = int(time.time())
    digest = base64.urlsafe_b64encode(hashlib.sha256(body).digest()).decode()
    claims = {
        "iss": "Upstash", "sub": url, "exp": now + 300, "nbf": now - 1, "iat": now - 1,
        "jti": uuid.uuid4().hex, "body": digest, **changed,
    }  # fmt: skip
    return jwt.encode({k: v for k, v in claims.items() if v is not None}, key, "HS256")


@dataclass(frozen=True)
class Message:
    """One that was published, on its way to `url`."""

    url: str
    body: bytes
    deduplication_id: str

    def deliver(self, key: str = CURRENT_KEY) -> httpx.Response:
        headers = {
            "Upstash-Signature": sign(self.url, self.body, key),
            "Upstash-Message-Id": uuid.uuid4().hex,
            "Content-Type": "application/json",
        }
        return _client().post(self.url, content=self.body, headers=headers)


@cache
def _client() -> httpx.Client:
    """One for all deliveries: making one takes longer than a delivery."""
    client = httpx.Client(timeout=30, verify=False)
    atexit.register(client.close)
    return client


@dataclass
class Broker:
    """What was published and waits; a test delivers it as it likes."""

    url: str = ""
    messages: list[Message] = field(default_factory=list)
    down: bool = False
    _seen: set[str] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, path: str, headers: Any, body: bytes) -> int:
        if self.down:
            return 500
        if headers["Authorization"] != f"Bearer {TOKEN}":
            return 401
        once = headers["Upstash-Deduplication-Id"]
        with self._lock:
            if once not in self._seen:
                self._seen.add(once)
                self.messages.append(Message(path.removeprefix("/v2/publish/"), body, once))
        return 201

    def taken(self) -> list[Message]:
        """All that waits, from now on in the test's hands."""
        with self._lock:
            messages, self.messages = self.messages, []
        return messages


@contextmanager
def broker() -> Iterator[Broker]:
    """A QStash on this machine."""
    found = Broker()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status = found.take(self.path, self.headers, body)
            answer = json.dumps({"messageId": "msg_1"}).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    found.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield found
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
