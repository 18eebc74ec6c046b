"""A service that fails in every way before it answers."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar


class Flaky(BaseHTTPRequestHandler):
    """A service that fails in every way before it answers."""

    url: ClassVar[str]
    answers: ClassVar[list[tuple[int, bytes]]]
    keys: ClassVar[list[str | None]]

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"] or 0))
        type(self).keys.append(self.headers["Idempotency-Key"])
        status, body = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if status == 0:
            self.close_connection = True
            return
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None: ...


@contextmanager
def failing() -> Iterator[type[Flaky]]:
    class Handler(Flaky):
        answers: ClassVar[list[tuple[int, bytes]]] = []
        keys: ClassVar[list[str | None]] = []

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    Handler.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield Handler
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
