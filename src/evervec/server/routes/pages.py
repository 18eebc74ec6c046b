"""HTML pages."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from evervec.server.pages import POLICY, STYLE, docs_page

router = APIRouter(include_in_schema=False)


@router.get("/docs")
async def docs(request: Request) -> Response:
    """The API documentation."""
    state = request.app.state
    if not hasattr(state, "docs_page"):
        state.docs_page = docs_page(request.app.openapi())
    headers = {"Content-Security-Policy": POLICY, "Cache-Control": "no-cache"}
    return HTMLResponse(state.docs_page, headers=headers)


@router.get("/docs/style.css")
async def style() -> Response:
    return Response(STYLE, media_type="text/css", headers={"Cache-Control": "max-age=3600"})
