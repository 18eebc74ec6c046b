"""The style sheet, the script and the icon, served under names that contain their hash."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import NamedTuple

from starlette.responses import Response

from evervec.server.problems import Problem

_FOLDER = Path(__file__).parent / "static"
_TYPES = {
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
    ".ico": "image/x-icon",
}
_YEAR = "public, max-age=31536000, immutable"


class Asset(NamedTuple):
    """A static file."""

    body: bytes
    type: str
    version: str


@cache
def assets() -> dict[str, Asset]:
    """All static files, by name."""
    return {
        path.name: Asset(
            body := path.read_bytes(),
            _TYPES[path.suffix],
            hashlib.sha256(body).hexdigest()[:12],
        )
        for path in sorted(_FOLDER.iterdir())
        if path.suffix in _TYPES
    }


def asset_path(name: str) -> tuple[str, str, str]:
    """The parts of an asset's address."""
    return ("assets", assets()[name].version, name)


def asset_response(version: str, name: str) -> Response:
    """The asset; an older version's name answers with the current one, which is not cached."""
    found = assets().get(name)
    if found is None:
        raise Problem(404, "no such file")
    kept = _YEAR if version == found.version else "no-cache"
    return Response(found.body, media_type=found.type, headers={"Cache-Control": kept})
