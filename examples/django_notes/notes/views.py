"""Views that write and search notes; a real application asks who is there."""

import json
from typing import Any

from django.http import HttpRequest, JsonResponse
from django.views.decorators.csrf import csrf_exempt

from notes.models import Note


def write(request: HttpRequest) -> JsonResponse:
    """Save many notes by one statement, which sends no signals."""
    notes = Note.objects.bulk_create([Note(**fields) for fields in json.loads(request.body)])
    return JsonResponse({"ids": [note.pk for note in notes]})


write = csrf_exempt(write)  # this example has no forms


def search(request: HttpRequest) -> JsonResponse:
    among = Note.objects.filter(archived=False).select_related("author")
    found = Note.evervec.search(request.GET["q"], k=5, among=among)
    return JsonResponse({"notes": [_shown(note) for note in found]})


async def async_search(request: HttpRequest) -> JsonResponse:
    found = await Note.evervec.asearch(request.GET["q"], k=5)
    return JsonResponse({"notes": [_shown(note) async for note in found]})


def _shown(note: Any) -> dict[str, Any]:
    hit = note.evervec_hit
    return {"id": note.pk, "title": note.title, "relevance": hit.relevance, "passage": hit.text}
