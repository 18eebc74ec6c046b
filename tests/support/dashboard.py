"""The dashboard as its tests see it: every page and action that it has, and people who use them."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import httpx
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from evervec.server import dashboard
from evervec.server.dashboard.pages import PAGES
from evervec.server.dashboard.paths import ASSETS, SIGN_IN, THEME, is_page
from evervec.server.keys import Role
from support.service import Served

SIGN_OUT = "/ui/sign-out"
OF_VISITS = frozenset({SIGN_IN, SIGN_OUT, THEME})
"""what everybody may do"""
_PARAM = re.compile(r"{(\w+)(?::\w+)?}")
_TOKEN = re.compile(r'data-form-token="([0-9a-f]*)"')
_FIELD = re.compile(r'<(?:input|select|textarea|button)\b[^>]*?\bname="(\w+)"')


def pages() -> list[str]:
    """The paths of all pages, with names in braces for what varies."""
    found = (route.path for route in _routes("GET") if not route.path.startswith(ASSETS))
    return sorted(found)


def actions() -> list[str]:
    return sorted(route.path for route in _routes("POST"))


def _routes(method: str) -> Iterator[APIRoute]:
    for router in PAGES:
        for route in router.routes:
            assert isinstance(route, APIRoute)
            if method in (route.methods or ()) and is_page(route.path):
                yield route


def parameters(path: str) -> set[str]:
    """The names of a page's parameters in the query."""
    (route,) = (route for route in _routes("GET") if route.path == path)
    return {field.alias for part in _parts(route.dependant) for field in part.query_params}


def required(path: str) -> set[str]:
    """The names of those without which a page cannot be shown."""
    (route,) = (route for route in _routes("GET") if route.path == path)
    fields = (field for part in _parts(route.dependant) for field in part.query_params)
    return {field.alias for field in fields if field.field_info.is_required()}


def address(path: str, values: Mapping[str, object], **params: object) -> str:
    """The address of a page, with values for all that it needs."""
    section = _section(path)
    needed = {name: values.get(f"{section}.{name}", values[name]) for name in required(path)}
    query = urlencode({**needed, **params})
    return filled(path, values) + (f"?{query}" if query else "")


def role_for(path: str, method: str = "GET") -> Role:
    """The least role that a page or action is for."""
    (route,) = (route for route in _routes(method) if route.path == path)
    found = (getattr(part.call, "role", None) for part in _parts(route.dependant))
    (role,) = (each for each in found if each is not None)
    assert isinstance(role, Role)
    return role


def _parts(dependant: Dependant) -> Iterator[Dependant]:
    yield dependant
    for inner in dependant.dependencies:
        yield from _parts(inner)


def field_names() -> list[str]:
    """The names of the fields of all forms."""
    folder = Path(dashboard.__file__).parent / "templates"
    texts = (path.read_text() for path in folder.glob("**/*.html"))
    return sorted({name for text in texts for name in names_of_fields(text)})


def names_of_fields(html: str) -> set[str]:
    """The names of the fields of a page or a template."""
    return set(_FIELD.findall(html))


def filled(path: str, values: Mapping[str, object]) -> str:
    """A path with values for its names: those of its section (`jobs.id`) before others (`id`)."""
    section = _section(path)

    def value(found: re.Match[str]) -> str:
        name = found[1]
        assert f"{section}.{name}" in values or name in values, f"what is {name} in {path}?"
        return quote(str(values.get(f"{section}.{name}", values.get(name))), safe="")

    return _PARAM.sub(value, path)


def _section(path: str) -> str:
    return path.removeprefix("/ui/").partition("/")[0]


class Person:
    """Somebody with a browser of few talents: it keeps cookies, and sends forms."""

    def __init__(self, http: httpx.Client) -> None:
        self.http = http
        http.headers["Accept"] = "text/html"

    def sign_in(self, key: str) -> "Person":
        answer = self.http.post(SIGN_IN, data={"key": key})
        assert answer.status_code == 303, answer.text
        return self

    def get(self, path: str, **params: Any) -> httpx.Response:
        return self.http.get(path, params=params or None)

    @property
    def token(self) -> str:
        """The value that forms of this session carry."""
        found = _TOKEN.search(self.get("/").text)
        assert found
        return found[1]

    def send(self, path: str, headers: Any = None, **fields: Any) -> httpx.Response:
        """Send a form, with its token unless another is given."""
        fields = {"form_token": self.token, **fields} if "form_token" not in fields else fields
        return self.http.post(path, data=fields, headers=headers)

    @contextmanager
    def watch(self, path: str = "/") -> Iterator[httpx.Response]:
        """The live stream of a page."""
        with self.http.stream("GET", path, headers={"Accept": "text/event-stream"}) as stream:
            yield stream


def person(served: Served, key: str | None = None) -> Person:
    found = Person(served.http())
    return found.sign_in(key) if key else found


def events(stream: httpx.Response) -> Iterator[str]:
    """The data of a stream's events."""
    lines: list[str] = []
    for line in stream.iter_lines():
        if line.startswith("data: "):
            lines.append(line.removeprefix("data: "))
        elif not line and lines:
            yield "\n".join(lines)
            lines = []
