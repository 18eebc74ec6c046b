"""`/docs`: the OpenAPI document as one HTML page.

It uses no scripts and no external resources, so that it works offline and under a content security
policy that allows only its own style sheet.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterable, Mapping
from html import escape
from inspect import cleandoc
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, FastAPI
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from evervec.server.dashboard.assets import asset_response
from evervec.server.dashboard.paths import root_of
from evervec.server.problems import error_classes, status_of

if TYPE_CHECKING:
    from evervec.server.service import Service

router = APIRouter(include_in_schema=False)

Json = Mapping[str, Any]
_POLICY = (
    "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
_STYLE = """\
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 60rem; padding: 1rem; }
code, pre { font: 0.9em/1.4 ui-monospace, monospace; }
pre { border: 1px solid #8884; border-radius: 4px; overflow-x: auto; padding: 0.5rem; }
table { border-collapse: collapse; width: 100%; }
td, th { border-top: 1px solid #8884; padding: 0.25rem 0.5rem; text-align: left; vertical-align: top; }
section { border-top: 2px solid #8888; margin-top: 2rem; }
h3 code { font-size: 1em; }
nav ul { columns: 2; list-style: none; padding: 0; }
.method { display: inline-block; font-weight: bold; min-width: 4.5rem; }
"""
_INTRODUCTION = (
    '<p><a href="./">Dashboard</a></p>'
    "<p>Send a key or a token as <code>Authorization: Bearer KEY</code>. Errors are problem "
    'documents: see <a href="#schema-ProblemDocument">ProblemDocument</a>. As OpenAPI: '
    '<a href="openapi.json">openapi.json</a>.</p>'
)


class Documentation:
    """What everybody may read about the API, made once. It takes half a second, so it is made in a
    thread."""

    def __init__(self, app: FastAPI) -> None:
        self._app = app
        self._made: asyncio.Future[tuple[bytes, str]] | None = None

    async def made(self) -> tuple[bytes, str]:
        """The OpenAPI document, and the page."""
        if self._made is None:
            service: Service = self._app.state.service
            self._made = asyncio.ensure_future(service.run(self._make))
        try:
            return await asyncio.shield(self._made)
        except Exception:  # such as a lack of memory: the next request tries again
            self._made = None
            raise

    def _make(self) -> tuple[bytes, str]:
        described = self._app.openapi()
        return _bytes_of(described), docs_page(described)


@router.get("/docs")
async def docs(request: Request) -> Response:
    """The API documentation."""
    _, page = await request.app.state.documentation.made()
    headers = {"Content-Security-Policy": _POLICY, "Cache-Control": "no-cache"}
    return HTMLResponse(page, headers=headers)


@router.get("/openapi.json")
async def openapi_document(request: Request) -> Response:
    """The OpenAPI document."""
    body, _ = await request.app.state.documentation.made()
    if root := root_of(request.scope):  # mounted in another application, as few are
        body = _bytes_of({**request.app.openapi(), "servers": [{"url": root}]})
    return Response(body, media_type="application/json")


def _bytes_of(document: Json) -> bytes:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


@router.get("/docs/style.css")
async def style() -> Response:
    return Response(_STYLE, media_type="text/css", headers={"Cache-Control": "max-age=3600"})


@router.get("/favicon.ico")
async def favicon() -> Response:
    """Browsers ask for it at this address, also on pages that name another icon."""
    return asset_response("", "favicon.ico")


def docs_page(described: Json) -> str:
    """The page for an OpenAPI document."""
    info = described["info"]
    operations = [
        (method, path, operation)
        for path, methods in described["paths"].items()
        for method, operation in methods.items()
    ]
    schemas = described["components"]["schemas"]
    parts = [
        f"<h1>{escape(info['title'])} {escape(info['version'])}</h1>",
        f"<p>{_text(info.get('summary', ''))}</p>",
        _INTRODUCTION,
        "<nav><ul>",
        *(
            f'<li><a href="#{_anchor(method, path)}">{_call(method, path)}</a></li>'
            for method, path, _ in operations
        ),
        "</ul></nav>",
        *(_operation(*each) for each in operations),
        "<h2>Schemas</h2>",
        *(_schema(name, schema) for name, schema in sorted(schemas.items())),
        "<h2>Errors</h2>",
        *map(_error, error_classes()),
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(info['title'])}: HTTP</title>"
        '<link rel="stylesheet" href="docs/style.css"></head>'
        f"<body>{''.join(parts)}</body></html>"
    )


def _operation(method: str, path: str, operation: Json) -> str:
    parts = [
        f'<section id="{_anchor(method, path)}"><h3>{_call(method, path)}</h3>',
        f"<p><strong>{_text(operation.get('summary', ''))}</strong></p>",
        f"<p>{_text(operation.get('description', ''))}</p>",
    ]
    if parameters := operation.get("parameters"):
        rows = (
            (
                _code(each["name"]) + (" (required)" if each.get("required") else ""),
                escape(each["in"]),
                _type(each.get("schema", {})),
                _text(each.get("description", "")),
            )
            for each in parameters
        )
        parts.append(_table(("parameter", "in", "type", "meaning"), rows))
    for media, content in operation.get("requestBody", {}).get("content", {}).items():
        schema = content.get("schema", {})
        parts.append(f"<p>Body: {_code(media)}, {_type(schema)}</p>")
        if "example" in content:
            parts.append(f"<pre>{escape(str(content['example']))}</pre>")
    answers = (
        (_code(status), _text(answer.get("description", "")), _answer(answer))
        for status, answer in operation["responses"].items()
    )
    parts.append(_table(("status", "meaning", "response"), answers))
    return "".join(parts) + "</section>"


def _answer(answer: Json) -> str:
    return ", ".join(
        _type(content.get("schema", {})) for content in answer.get("content", {}).values()
    )


def _schema(name: str, schema: Json) -> str:
    required = schema.get("required", ())
    rows = (
        (
            _code(field) + (" (required)" if field in required else ""),
            _type(shape),
            _text(shape.get("description", "")),
        )
        for field, shape in schema.get("properties", {}).items()
    )
    parts = [
        f'<section id="schema-{escape(name)}"><h3>{_code(name)}</h3>',
        f"<p>{_text(schema.get('description', ''))}</p>",
        _table(("field", "type", "meaning"), rows),
        *(
            f"<pre>{escape(json.dumps(each, indent=1))}</pre>"
            for each in schema.get("examples", ())
        ),
    ]
    return "".join(parts) + "</section>"


def _error(kind: type[Exception]) -> str:
    """The section that the `type` of a problem document leads to."""
    name = kind.__name__
    return (
        f'<section id="error-{name}"><h3>{_code(f"urn:evervec:{name}")}</h3>'
        f"<p>{_text(cleandoc(kind.__doc__ or ''))} Status {_code(str(status_of(kind)))}.</p></section>"
    )


def _type(schema: Json) -> str:
    """A short description of a value's type."""
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f'<a href="#schema-{name}">{name}</a>'
    if choices := schema.get("anyOf") or schema.get("allOf"):
        return " or ".join(_type(choice) for choice in choices)
    if "enum" in schema or "const" in schema:
        return ", ".join(
            _code(json.dumps(each)) for each in schema.get("enum", [schema.get("const")])
        )
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    return escape(str(schema.get("format") or schema.get("type") or schema.get("title") or "any"))


def _table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows]
    head = "".join(f"<th>{escape(each)}</th>" for each in heads)
    return (
        f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"
        if lines
        else ""
    )


def _text(words: str) -> str:
    """Escaped text; parts in backticks become code."""
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", escape(words))


def _code(words: str) -> str:
    return f"<code>{escape(words)}</code>"


def _call(method: str, path: str) -> str:
    return f'<span class="method">{escape(method.upper())}</span> {_code(path)}'


def _anchor(method: str, path: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", f"{method}{path}".lower())
