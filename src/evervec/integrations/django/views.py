"""The page of the admin: what waits, what failed, and whether tables are heard, for staff."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.apps import apps
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db import router
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse

from evervec.errors import EvervecError
from evervec.integrations.django.declaration import searched_models
from evervec.integrations.django.stores import STORES

_SHOWN = 50
"""failed jobs on the page"""


@dataclass(frozen=True)
class StoreStatus:
    """What the page says of the store of one database."""

    alias: str
    stats: Any = None
    tables: tuple[tuple[str, str, str | None], ...] = ()
    """table, kind, and what is wrong with it"""
    alerts: tuple[str, ...] = ()
    failed: tuple[Any, ...] = ()
    error: str = ""

    @classmethod
    def of(cls, alias: str) -> StoreStatus:
        try:
            ev = STORES.get(alias)
            queue = ev.queue_of(None)
            attached = [found.attachment for found in ev.attachments.attached()]
            return cls(
                alias,
                queue.stats(),
                tuple((a.table, a.kind, ev.attachments.trouble(a)) for a in attached),
                tuple(alert.text for alert in ev.alerts()),
                tuple(queue.failed(limit=_SHOWN)),
            )
        except EvervecError as error:
            return cls(alias, error=str(error))


def aliases() -> list[str]:
    """The databases with searched models."""
    return sorted({router.db_for_write(model) for model in searched_models(apps)})


def status(request: HttpRequest) -> HttpResponse:
    """Show the stores; a superuser may retry failed jobs."""
    if request.method == "POST":
        if not request.user.is_superuser:
            raise PermissionDenied
        _retry(request)
        return redirect(request.path)
    context = {
        **admin.site.each_context(request),
        "title": "Search index",
        "stores": [StoreStatus.of(alias) for alias in aliases()],
    }
    return TemplateResponse(request, "admin/evervec/status.html", context)


def _retry(request: HttpRequest) -> None:
    alias = request.POST.get("store", "")
    if alias not in aliases():
        messages.error(request, f"There is no store {alias!r}.")
        return
    try:
        count = STORES.get(alias).queue_of(None).retry_failed()
    except EvervecError as error:
        messages.error(request, str(error))
    else:
        messages.success(request, f"{count} failed jobs are retried.")
