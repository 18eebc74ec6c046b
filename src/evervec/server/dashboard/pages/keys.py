"""API keys: list, create, rotate and revoke them. For platform admins.

A session is a token, and a stolen session must not make a permanent key. So every change of keys
asks for an admin's key again, which is checked, and neither stored nor shown nor logged.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from datetime import timedelta
from typing import Annotated

from fastapi import Query
from starlette.responses import Response

from evervec.model.basics import as_datetime
from evervec.records.drafts import check_given, check_name
from evervec.server.dashboard.page_routes import Done, Form, Pages
from evervec.server.dashboard.paths import link
from evervec.server.dashboard.renderer import Values, page
from evervec.server.dashboard.tables import Table
from evervec.server.keys import Key, NewKey, Role
from evervec.server.problems import Problem
from evervec.server.view import AdminView, View

router = Pages()

_AT_ONCE = 100
_MOST_DAYS, _MOST_HOURS = 36_500, 24 * 365


@router.page("/ui/keys", "keys.html")
async def keys(
    view: AdminView,
    tenant: Annotated[str, Query(max_length=300)] = "",
    before: Annotated[str | None, Query(pattern=r"^[0-9a-f]{12}$")] = None,
) -> Values:
    """The keys of all tenants, or of one, the newest first."""
    check_given(tenant=tenant or None)
    found = await view.run(view.service.keys.page, tenant or None, before, _AT_ONCE + 1)
    more = None
    if len(found) > _AT_ONCE:
        found = found[:_AT_ONCE]
        more = link(view.request.scope, "keys", tenant=tenant, before=found[-1].id)
    return {
        "keys": Table("keys", found, frozenset({"parent", "kinds"}), more),
        "chosen": tenant,
        "state_of": _state_of(view),
        "once": secrets.token_hex(16),
        "is_first": view.caller.key is None,
        "roles": tuple(Role),
    }


@router.page("/ui/keys/{id}", "key.html")
async def key(view: AdminView, id: str) -> Values:
    found = await _find(view, id)
    return {"key": found, "state": _state_of(view)(found), "once": secrets.token_hex(16)}


@router.action("/ui/keys")
async def create(view: AdminView, form: Form) -> Response:
    role = form.need("role", "the role")
    tenant = check_name("tenant", form.need("tenant", "the tenant"))
    agent = check_name("agent", form.get("agent") or "default")
    days = form.number("days", "the lifetime", 0)
    if not 0 <= days <= _MOST_DAYS:
        raise Problem(422, f"the lifetime must be from 1 to {_MOST_DAYS:,} days, or empty")
    confirmed = await _confirm(view, form, "key.create")
    if confirmed is None and role != Role.ADMIN:
        raise Problem(
            409,
            "the first key must have the role admin: from then on every request needs a key, and "
            "only an admin can create keys",
        )
    await _only_once(view, form)
    lasts = timedelta(days=days) if days else None
    made = await view.run(view.service.keys.create, tenant, agent, role, lasts)
    await view.audit("key.create", made.info.label + _by(confirmed))
    return _show(view, made, "created")


@router.action("/ui/keys/{id}/rotate")
async def rotate(view: AdminView, id: str, form: Form) -> Response:
    hours = form.number("hours", "the overlap", 24)
    if not 0 <= hours <= _MOST_HOURS:
        raise Problem(422, f"the overlap must be from 0 to {_MOST_HOURS:,} hours")
    await _find(view, id)
    confirmed = await _confirm(view, form, "key.rotate")
    await _only_once(view, form)
    made = await view.run(view.service.keys.rotate, id, timedelta(hours=hours))
    await view.audit("key.rotate", f"{id} by {made.info.label}{_by(confirmed)}")
    return _show(view, made, "rotated")


@router.action("/ui/keys/{id}/revoke")
async def revoke(view: AdminView, id: str, form: Form) -> Done:
    form.confirm(id)
    found = await _find(view, id)
    confirmed = await _confirm(view, form, "key.revoke")
    await view.run(view.service.keys.revoke, id)
    await view.audit("key.revoke", found.label + _by(confirmed))
    return Done(f"Key {id} is revoked.", link(view.request.scope, "keys"))


async def _confirm(view: View, form: Form, action: str) -> Key | None:
    """Check the admin's key in the form; None: the service has no keys, so none is needed."""
    if view.caller.key is None and not await view.service.has_keys():
        return None
    text = form.get("admin_key")
    found = await view.service.find_key(text) if text else None
    if found is None or found.parent is not None or found.role is not Role.ADMIN:
        await view.audit(action, "", "refused: no valid admin's key was given")
        raise Problem(
            403, "nothing was done: give a platform admin's API key again, to confirm it is you"
        )
    return found


async def _only_once(view: View, form: Form) -> None:
    """Refuse a form that was sent already: a reload must not make another key."""
    name, mine = f"form {form.need('once', 'the form')[:64]}", secrets.token_hex(16)
    asked = await view.run(view.service.ev.store.service.ask, view.caller.tenant, name, mine)
    if asked.fingerprint != mine:
        raise Problem(409, "this form was sent already, and its key was shown then: see the list")


async def _find(view: View, id: str) -> Key:
    found = await view.run(view.service.keys.find, id)
    if found is None:
        raise Problem(404, f"no key {id[:40]!r}")
    return found


def _by(key: Key | None) -> str:
    return f", confirmed with {key.prefix}" if key else ""


def _show(view: View, made: NewKey, what: str) -> Response:
    """The only page with the new key. It is not a redirect: the key must not be in an address or a
    cookie."""
    values = {"made": made, "what": what, "is_first": view.caller.key is None}
    return page("key_made.html", view.request.scope, view.caller, values)


def _state_of(view: View) -> Callable[[Key], str]:
    now = as_datetime(view.service.ev.store.now())
    assert now is not None

    def state(key: Key) -> str:
        if key.revoked_at is not None:
            return "revoked"
        return "expired" if key.expires_at is not None and key.expires_at <= now else "valid"

    return state
