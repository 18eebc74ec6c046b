"""A Qdrant server on the loopback, as far as evervec needs one.

Each request is read with the official client's own models, which refuse whatever they do not
know, and answered by Qdrant's own engine. What a test wants to go wrong goes wrong here.
"""

import json
import re
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError
from qdrant_client import models

from support.qdrant_collections import Collections

Answer = tuple[int, Any]


class _Server(ThreadingHTTPServer):
    """One that says nothing of clients which were killed."""

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class QdrantServer:
    """One server with its collections; it is up until `stop`, and can be started again."""

    def __init__(self, key: str = "", version: str = "1.20.0") -> None:
        self.key = key
        self.version = version
        self.seen: list[tuple[str, str, Any]] = []
        """method, path and body of every request that was read"""
        self.before: Callable[[str, str], object] | None = None
        """called with method and path before each request is answered"""
        self.cut: Callable[[str, str], bool] = lambda _method, _path: False
        """whether the connection breaks after the request was done, before its answer"""
        self.collections = Collections()
        self._one = threading.Lock()
        self._port = 0
        self._server: ThreadingHTTPServer | None = None
        self.start()

    @property
    def url(self) -> str:
        return f"qdrant://127.0.0.1:{self._port}"

    def start(self) -> None:
        assert self._server is None
        handler = type("Handler", (_Handler,), {"qdrant": self})
        self._server = _Server(("127.0.0.1", self._port), handler)
        self._server.daemon_threads = True
        self._port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self) -> None:
        """Refuse connections. What was stored is there when it is started again."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    @property
    def up(self) -> bool:
        return self._server is not None

    def lose_everything(self) -> None:
        self.collections = Collections()

    def answer(self, method: str, path: str, body: bytes) -> Answer:
        given = json.loads(body) if body else None
        self.seen.append((method, path, given))
        if self.before is not None:
            self.before(method, path)
        for wanted, pattern, handle in _ROUTES:
            match = re.fullmatch(pattern, path)
            if match and method == wanted:
                with self._one:
                    try:
                        return handle(self, given, *match.groups())
                    except ValidationError as error:
                        return 422, {"status": {"error": str(error)}}
                    except ValueError as error:
                        status = 404 if "not found" in str(error) else 400
                        return status, {"status": {"error": str(error)}}
        return 404, {"status": {"error": f"no {method} {path}"}}

    # what it can do
    def _root(self, _: Any) -> Answer:
        return 200, {"title": "qdrant - vector search engine", "version": self.version}

    def _exists(self, _: Any, name: str) -> Answer:
        return 200, {"exists": self.collections.exists(name)}

    def _create(self, given: Any, name: str) -> Answer:
        asked = models.CreateCollection.model_validate(given)
        if self.collections.exists(name):
            return 409, {"status": {"error": f"Collection `{name}` already exists!"}}
        assert isinstance(asked.vectors, models.VectorParams)
        return 200, self.collections.create(name, asked.vectors)

    def _info(self, _: Any, name: str) -> Answer:
        params = {"vectors": {"size": self.collections.size(name), "distance": "Cosine"}}
        tuning = {"m": 16, "ef_construct": 128, "full_scan_threshold": 10000}
        optimizer = {
            "deleted_threshold": 0.2, "vacuum_min_vector_number": 1000,
            "default_segment_number": 0, "flush_interval_sec": 5,
        }  # fmt: skip
        config = {"params": params, "hnsw_config": tuning, "optimizer_config": optimizer}
        return 200, {
            "status": "green", "optimizer_status": "ok", "segments_count": 1,
            "payload_schema": self.collections.indexed(name), "config": config,
        }  # fmt: skip

    def _delete(self, _: Any, name: str) -> Answer:
        return 200, self.collections.delete(name)

    def _index(self, given: Any, name: str) -> Answer:
        asked = models.CreateFieldIndex.model_validate(given)
        self.collections.index(name, asked.field_name, asked.field_schema)
        return 200, _DONE

    def _batch(self, given: Any, name: str) -> Answer:
        asked = _OPERATIONS.validate_python(given)
        version = tuple(map(int, self.version.split(".")[:2]))
        for operation in asked.operations:
            if isinstance(operation, models.UpsertOperation):
                assert version >= (1, 16) or operation.upsert.update_filter is None
                assert version >= (1, 17) or operation.upsert.update_mode is None
        self.collections.update(name, asked.operations)
        return 200, [_DONE for _ in asked.operations]

    def _scroll(self, given: Any, name: str) -> Answer:
        asked = models.ScrollRequest.model_validate(given)
        points, offset = self.collections.scroll(
            name, asked.filter, asked.limit or 10, asked.offset, asked.with_payload or False,
            vectors=bool(asked.with_vector),
        )  # fmt: skip
        return 200, {"points": points, "next_page_offset": offset}

    def _query(self, given: Any, name: str) -> Answer:
        asked = models.QueryRequest.model_validate(given)
        vector = asked.query.nearest if isinstance(asked.query, models.NearestQuery) else None
        assert isinstance(vector, list)
        found = self.collections.query(
            name, vector, asked.filter, asked.limit or 10, asked.with_payload or False
        )
        return 200, {"points": found}


_OPERATIONS = TypeAdapter(models.UpdateOperations)
_DONE = {"operation_id": 0, "status": "completed"}
_C = r"/collections/([^/]+)"
_ROUTES: list[tuple[str, str, Callable[..., Answer]]] = [
    ("GET", "/", QdrantServer._root),
    ("GET", f"{_C}/exists", QdrantServer._exists),
    ("GET", _C, QdrantServer._info),
    ("PUT", _C, QdrantServer._create),
    ("DELETE", _C, QdrantServer._delete),
    ("PUT", f"{_C}/index", QdrantServer._index),
    ("POST", f"{_C}/points/batch", QdrantServer._batch),
    ("POST", f"{_C}/points/scroll", QdrantServer._scroll),
    ("POST", f"{_C}/points/query", QdrantServer._query),
]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    qdrant: QdrantServer

    def _handle(self) -> None:
        server, path = self.qdrant, self.path.partition("?")[0]
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if not server.up:  # a connection from before it was stopped
            self.close_connection = True
            return
        if server.key and self.headers.get("api-key") != server.key:
            self._send(401, {"status": {"error": "Must provide an API key"}})
            return
        status, answer = server.answer(self.command, path, body)
        if server.cut(self.command, path):
            self.close_connection = True
            return
        if status == 200 and path != "/":
            answer = {"result": answer, "status": "ok", "time": 0.0}
        self._send(status, answer)

    do_GET = do_PUT = do_POST = do_DELETE = _handle  # noqa: N815 - as the base class calls them

    def _send(self, status: int, answer: Any) -> None:
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        with suppress(ConnectionError):  # whoever asked may be gone by now
            self.end_headers()
            self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


_started: dict[Path, QdrantServer] = {}


def server_of(folder: Path) -> QdrantServer:
    """The server that stands for a folder."""
    if folder not in _started:
        _started[folder] = QdrantServer()
    return _started[folder]


def url_for(folder: Path) -> str:
    return server_of(folder).url


def leave(folder: Path) -> None:
    if folder in _started:
        _started.pop(folder).stop()
