"""What stands beside the service: a FastAPI route that inserts one row, synced, and answers."""

from __future__ import annotations

import sqlite3
import sys
import threading

import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel


class Note(BaseModel):
    kind: str
    id: str
    text: str


def make_app(path: str) -> FastAPI:
    conn = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    conn.execute("pragma journal_mode = wal")
    conn.execute("pragma synchronous = full")
    conn.execute("create table if not exists notes (id text primary key, kind text, text text)")
    lock = threading.Lock()  # connections of their own would only wait longer for each other
    app = FastAPI()

    @app.post("/v1/records", status_code=202)
    def add(note: Note) -> dict[str, str]:
        values = (note.id, note.kind, note.text)
        with lock:
            conn.execute("insert into notes (id, kind, text) values (?, ?, ?)", values)
        return {"id": note.id}

    @app.get("/healthz")
    def healthz() -> dict[str, str]:
        return {"status": "ok"}

    return app


if __name__ == "__main__":
    uvicorn.run(make_app(sys.argv[1]), port=int(sys.argv[2]), log_config=None, access_log=False)
