"""Notes with search, for many tenants: run it with `uvicorn app:app`."""

import os
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Header, HTTPException, Request
from pydantic import BaseModel

from evervec import AsyncEvervec
from evervec.integrations.fastapi import EvervecDependency, install_errors


def tenant_of(request: Request) -> str:
    """In a real application: the owner of the session or of the token."""
    if not (name := request.headers.get("x-team")):
        raise HTTPException(401, "say who you are with the header X-Team")
    return name


notes = EvervecDependency(
    os.environ.get("EVERVEC_STORE", "notes.db"),
    worker=os.environ.get("NOTES_WORKER", "1") == "1",  # 0: run `evervec worker` beside it
    tenant=tenant_of,
)
app = FastAPI(lifespan=notes.lifespan)
install_errors(app)
Notes = Annotated[AsyncEvervec, Depends(notes)]


class Note(BaseModel):
    text: str
    author: str | None = None


@app.put("/notes/{id}")
async def write(
    id: str, note: Note, ev: Notes, wait: Annotated[float | None, Header()] = None
) -> Any:
    """Durable when it answers; with the header `wait`, also searchable."""
    metadata = {"author": note.author} if note.author else None
    ticket = await ev.add("note", note.text, id=id, metadata=metadata, wait=wait)
    return {"id": ticket.id, "seq": ticket.seq}


@app.get("/notes/{id}")
async def read(id: str, ev: Notes) -> Any:
    if (record := await ev.get("note", id)) is None:
        raise HTTPException(404, f"there is no note {id!r}")
    return {"id": record.id, "text": record.text, "searchable": record.embedded}


@app.delete("/notes/{id}")
async def delete(id: str, ev: Notes) -> Any:
    return {"deleted": (await ev.delete("note", id)).accepted}


@app.get("/search")
async def search(q: str, ev: Notes, k: int = 5, author: str | None = None) -> Any:
    wanted = {"author": author} if author else None
    hits = await ev.search(q, k, kind="note", filter=wanted)
    return [{"id": hit.id, "text": hit.text, "relevance": hit.relevance} for hit in hits]
