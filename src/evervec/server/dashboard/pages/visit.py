"""Signing in and out, the theme, and the static files."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from evervec.errors import EvervecError
from evervec.server.audit import EVERY_TENANT
from evervec.server.dashboard.assets import asset_response
from evervec.server.dashboard.page_routes import Pages, read_form
from evervec.server.dashboard.paths import (
    HOME,
    SIGN_IN,
    link,
    local_address,
    root_of,
)
from evervec.server.dashboard.paths import THEME as THEME_PATH
from evervec.server.dashboard.renderer import PAGE_HEADERS, page
from evervec.server.dashboard.session import (
    THEME,
    THEMES,
    check_form,
    check_origin,
    end_session,
    session_of,
    set_preference,
    set_session,
    start_session,
)
from evervec.server.keys import Key, Role
from evervec.server.problems import Problem
from evervec.server.requests import Scope
from evervec.server.service import Service
from evervec.server.view import ReaderView
from evervec.stores.service_values import StoredEntry

router = Pages()


@router.get("/ui/assets/{version}/{name}")
async def asset(version: str, name: str) -> Response:
    return asset_response(version, name)


@router.get(SIGN_IN)
async def sign_in_page(request: Request, next: str = "") -> Response:
    values = {"next": local_address(request.scope, next), "wrong": ""}
    return page("sign_in.html", request.scope, None, values)


@router.post(SIGN_IN)
async def sign_in(request: Request) -> Response:
    """Check a key, and start a session for it. A form from another site could at most sign somebody
    in with a key of the sender's; it is refused all the same."""
    check_origin(request.scope)
    form = await read_form(request)
    service: Service = request.app.state.service
    text = form.get("key")
    key = await service.find_key(text) if text else None
    next = local_address(request.scope, form.get("next"))
    if key is None:
        values = {"next": next, "wrong": "Invalid API key: mistyped, revoked or expired."}
        return page("sign_in.html", request.scope, None, values, 401)
    if key.kinds is not None:
        raise Problem(403, "a token for some kinds gives no access to the dashboard: use a key")
    try:
        session, lasts = await service.run(
            start_session, service.keys, key, text, service.ev.settings
        )
    except EvervecError as error:
        raise Problem(429, str(error), headers={"Retry-After": "60"}) from None
    await _note_begin(request.scope, service, key, session)
    response = RedirectResponse(next, 303, PAGE_HEADERS)
    set_session(response, request.scope, session, lasts)
    return response


async def _note_begin(scope: Scope, service: Service, key: Key, session: str) -> None:
    """Note a sign-in, with the id of the session's token, under which its actions are noted."""
    tenant = EVERY_TENANT if key.role is Role.ADMIN else key.tenant
    id = session.removeprefix("ev_").partition("_")[0]
    entry = StoredEntry(
        service.ev.store.now(), key.id, key.agent, tenant, "session.begin",
        f"{id} of {key.label}", "done", scope["request_id"], scope["client_address"],
    )  # fmt: skip
    await service.audit.note(entry)


@router.post("/ui/sign-out")
async def sign_out(view: ReaderView) -> Response:
    """End the session: its token is revoked, unless it is what the person signed in with."""
    scope = view.request.scope
    check_form(scope, (await read_form(view.request)).get("form_token"))
    key = view.caller.key
    if key is not None and key.parent is not None and session_of(scope).startswith(key.prefix):
        await view.run(view.service.keys.revoke, key.id)
    if key is not None:
        await view.audit("session.end", key.label)
    response = RedirectResponse(link(scope, "sign-in"), 303, PAGE_HEADERS)
    end_session(response, scope)
    return response


@router.post(THEME_PATH)
async def choose_theme(request: Request) -> Response:
    check_origin(request.scope)
    form = await read_form(request)
    chosen = form.get("theme")
    if chosen not in THEMES:
        raise Problem(422, f"theme: must be one of {', '.join(THEMES)}")
    back = local_address(request.scope, form.get("next") or root_of(request.scope) + HOME)
    response = RedirectResponse(back, 303, PAGE_HEADERS)
    set_preference(response, request.scope, THEME, chosen)
    return response
