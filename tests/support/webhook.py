"""A webhook on the loopback that keeps what is posted to it."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Webhook:
    """Up from the beginning until `close`."""

    def __init__(self) -> None:
        self.posted: list[dict[str, Any]] = []
        self.paths: list[str] = []
        """of every request, taken or not"""
        self.status = 200
        self.may_answer = threading.Event()
        """cleared: it takes requests and says nothing"""
        self.may_answer.set()
        handler = type("Handler", (_Handler,), {"webhook": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def url(self) -> str:
        """With a secret in its path, as they have it."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/hooks/s3cret?key=t0ken"

    @property
    def told(self) -> list[tuple[str, str]]:
        return [(message["alert"], message["state"]) for message in self.posted]

    def close(self) -> None:
        self.may_answer.set()
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    webhook: Webhook

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.webhook.paths.append(self.path)
        self.webhook.may_answer.wait(30)
        status = self.webhook.status
        if status == 200:
            self.webhook.posted.append(json.loads(body))
        self.send_response(status)
        if 300 <= status < 400:
            self.send_header("Location", "/elsewhere")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_GET(self) -> None:
        self.webhook.paths.append(f"GET {self.path}")
        self.send_error(404)

    def log_message(self, *_: Any) -> None:
        pass
