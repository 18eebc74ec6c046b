"""Where the dashboard's pages are, and how they link to each other."""

from __future__ import annotations

from urllib.parse import quote, unquote, urlencode, urlsplit

from evervec.server.requests import Scope, headers_of, path_of

HOME = "/"
PREFIX = "/ui/"
ASSETS = "/ui/assets/"
SIGN_IN = "/ui/sign-in"
THEME = "/ui/theme"
"""needs no key: it only sets a cookie"""
_LONGEST = 2000


def is_page(path: str) -> bool:
    """Whether a path belongs to the dashboard."""
    return path == HOME or path.startswith(PREFIX)


def is_open_page(path: str) -> bool:
    """Whether a page of the dashboard needs no key."""
    return path in (SIGN_IN, THEME) or path.startswith(ASSETS)


def root_of(scope: Scope) -> str:
    """The prefix under which another application has mounted this one."""
    root: str = scope.get("root_path", "")
    return root.rstrip("/")


def _step(name: object) -> str:
    """A name as one step of a path. A browser takes `.` and `..` for steps to other pages, however
    they are quoted, so these get a `~` before them, and so does what would be mistaken for that."""
    text = str(name)
    return quote(f"~{text}" if _is_dots(text) else text, safe="")


def _is_dots(text: str) -> bool:
    return text.lstrip("~") in (".", "..")


def name_of(step: str) -> str:
    """The name in a step of a path that `link` made."""
    text = unquote(step)
    return text[1:] if text.startswith("~") and _is_dots(text) else text


def link(scope: Scope, *parts: object, **params: object) -> str:
    """The address of a page: `link(scope, "jobs", 7, status="failed")`. Parameters that are None or
    empty are left out."""
    path = "/".join(map(_step, parts))
    address = root_of(scope) + (PREFIX + path if path else HOME)
    given = {name: value for name, value in params.items() if value not in (None, "")}
    return f"{address}?{urlencode(given, doseq=True)}" if given else address


def address_of(scope: Scope) -> str:
    """The path and query of a request, to come back to."""
    query = scope["query_string"].decode("latin-1")
    path = root_of(scope) + path_of(scope)
    return f"{path}?{query}" if query else path


def local_address(scope: Scope, given: str) -> str:
    """An address to redirect to, only if it is a page of this dashboard; otherwise the overview. A
    form must not lead to another site."""
    home = root_of(scope) + HOME
    try:
        parts = urlsplit(given[:_LONGEST])
    except ValueError:
        return home
    path = parts.path.removeprefix(root_of(scope))
    plain = given.isascii() and given.isprintable() and "\\" not in given
    # a browser takes these for steps upwards, which lead anywhere on this host
    climbs = any(unquote(step) in (".", "..") for step in path.split("/"))
    elsewhere = parts.scheme or parts.netloc or path.startswith("//") or climbs
    if elsewhere or not plain or not is_page(path):
        return home
    return given[:_LONGEST]


def form_address(scope: Scope) -> str:
    """The page from which a form was sent, as the browser says; empty if it does not say, or if the
    request is no form."""
    given = headers_of(scope).get("referer", "")
    if scope["method"] != "POST" or not given:
        return ""
    try:
        parts = urlsplit(given)
    except ValueError:
        return ""
    return local_address(scope, f"{parts.path}?{parts.query}" if parts.query else parts.path)


def base_address(scope: Scope) -> str:
    """The address of the service as the browser knows it, for programs that people copy."""
    headers = headers_of(scope)
    scheme = scope.get("forwarded_scheme") or scope.get("scheme", "http")
    return f"{scheme}://{headers.get('host', 'localhost')}{root_of(scope)}"
