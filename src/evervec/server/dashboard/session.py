"""Sessions of the dashboard: a cookie that stands for a key, and tokens for its forms.

Signing in makes a short-lived token of the key (`Keys.token`), and the cookie holds that: the key
itself is not stored in the browser, the session ends with its key, and each sign-in makes a new
one. Where no keys exist, the cookie is random and stands for nothing; it only protects forms.

A form carries a value derived from the cookie. Another site can neither read the cookie nor guess
the value, so it cannot make a browser send a form.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from datetime import timedelta
from typing import Literal
from urllib.parse import quote, unquote, urlsplit

from starlette.datastructures import Headers
from starlette.requests import cookie_parser
from starlette.responses import Response

from evervec.server.dashboard.paths import root_of
from evervec.server.keys import Key, Keys
from evervec.server.problems import Problem
from evervec.server.requests import Scope, headers_of
from evervec.settings import Settings

NAME = "evervec_session"
_SECURE_NAME = f"__Host-{NAME}"
THEME = "evervec_theme"
THEMES = ("light", "dark", "system")
NOTICE = "evervec_notice"
Level = Literal["good", "warn", "bad"]
"""how bad a notice is"""
_NOTICE_SECONDS = 20
_SAME_SITE: Literal["lax"] = "lax"
"""People send each other links to pages, and "strict" would ask each of them to sign in again.
Following a link changes nothing: every action is a POST, which needs the form's token too."""
_LONGEST_COOKIES = 16_384
_EXPIRED = "this form has expired, or was not sent from this page: reload the page, and try again"


def cookies_of(headers: Mapping[str, str]) -> dict[str, str]:
    """The cookies of a request. Those of other applications on the same host come along, in any
    form; they must not hide ours."""
    return cookie_parser(headers.get("cookie", "")[:_LONGEST_COOKIES])


def is_secure(scope: Scope) -> bool:
    """Whether the browser reached the service by TLS, directly or through a trusted proxy."""
    secure: bool = scope["client_scheme"] == "https"
    return secure


def _name(scope: Scope) -> str:
    # With this prefix a browser takes the cookie only from this host itself, by TLS.
    return _SECURE_NAME if is_secure(scope) and not root_of(scope) else NAME


def session_of(scope: Scope) -> str:
    """The session in the cookie of a request; empty if there is none."""
    return cookies_of(headers_of(scope)).get(_name(scope), "")


def set_session(response: Response, scope: Scope, text: str, lasts: float | None = None) -> None:
    response.set_cookie(
        _name(scope), text, max_age=None if lasts is None else int(lasts),
        path=root_of(scope) or "/", secure=is_secure(scope), httponly=True, samesite=_SAME_SITE,
    )  # fmt: skip


def end_session(response: Response, scope: Scope) -> None:
    response.delete_cookie(
        _name(scope), path=root_of(scope) or "/", secure=is_secure(scope), httponly=True,
        samesite=_SAME_SITE,
    )  # fmt: skip


def new_visitor() -> str:
    """A cookie for a visitor of a service without keys."""
    return secrets.token_urlsafe(32)


def start_session(keys: Keys, key: Key, text: str, settings: Settings) -> tuple[str, float]:
    """The session for a key that was checked, and its lifetime in seconds. A token stands for
    itself."""
    lasts = settings.session_hours * 3600
    if key.parent is not None:
        return text, lasts
    made = keys.token(
        key, str(key.role), key.tenant, None, timedelta(seconds=lasts), settings.tokens_per_key
    )
    return made.key, lasts


def form_token(session: str) -> str:
    """The value that the forms of a session carry."""
    return hmac.new(session.encode(), b"evervec form", hashlib.sha256).hexdigest()


def check_form(scope: Scope, given: str) -> None:
    """Raise a `Problem` unless a form was sent from a page of this session."""
    check_origin(scope)
    session = session_of(scope)
    if not session or not hmac.compare_digest(form_token(session).encode(), given.encode()):
        raise Problem(403, _EXPIRED)


def check_origin(scope: Scope) -> None:
    """Raise a `Problem` if a browser says that a request comes from another origin. Browsers send
    Sec-Fetch-Site by TLS and to this machine, and no script can set it; otherwise Origin must name
    the host, which a proxy in front may have changed."""
    headers = Headers(scope=scope)
    if sites := headers.getlist("sec-fetch-site"):
        if any(site not in ("same-origin", "none") for site in sites):
            raise Problem(403, _EXPIRED)
        return
    host = headers.get("host", "")
    for origin in headers.getlist("origin"):
        if _host_of(origin) != host:
            raise Problem(403, _EXPIRED)


def _host_of(origin: str) -> str | None:
    """The host of an origin, with its port; None if it is malformed, such as `http://[`."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return None


def theme_of(scope: Scope) -> str:
    chosen = cookies_of(headers_of(scope)).get(THEME, "system")
    return chosen if chosen in THEMES else "system"


def set_notice(response: Response, scope: Scope, level: Level, text: str) -> None:
    """Have the next page say what was done."""
    set_preference(response, scope, NOTICE, quote(f"{level}:{text}"))


def notice_of(scope: Scope) -> tuple[Level, str]:
    """What this page has to say, and how bad it is; an empty text: nothing."""
    level, _, text = unquote(cookies_of(headers_of(scope)).get(NOTICE, "")).partition(":")
    return ("bad" if level == "bad" else "warn" if level == "warn" else "good"), text


def set_preference(response: Response, scope: Scope, name: str, value: str) -> None:
    seconds = _NOTICE_SECONDS if name == NOTICE else 365 * 86400
    response.set_cookie(
        name, value, max_age=seconds, path=root_of(scope) or "/", secure=is_secure(scope),
        httponly=True, samesite=_SAME_SITE,
    )  # fmt: skip
