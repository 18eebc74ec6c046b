"""`make screenshots`: pictures of every page, in light, dark and on a phone, in docs/pictures/."""

import argparse
import io
import logging
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from PIL import Image

from evervec import Evervec
from evervec.server.keys import Role
from support.browser import Running, running_browser
from support.service import serving
from support.showcase import showcase

_COLOURS = 256
_DESK = {"width": 1280, "height": 860}
_PHONE = {"width": 390, "height": 780}
_VIEWS: dict[str, dict[str, Any]] = {
    "light": {"viewport": _DESK, "color_scheme": "light"},
    "dark": {"viewport": _DESK, "color_scheme": "dark"},
    "phone": {"viewport": _PHONE, "color_scheme": "light"},
}
_QUESTION = "how do I get a new password"


_TROUBLED = frozenset({"overview", "jobs", "job", "failures", "versions", "tables", "workers"})
"""pages that show trouble; the others are taken in health, and the overview in both"""


def _pages(ev: Evervec) -> Iterator[tuple[str, str]]:
    """A name for each picture, and the page's address."""
    yield "overview", "/"
    yield "search", f"/ui/search?q={_QUESTION.replace(' ', '+')}"
    yield "jobs", "/ui/jobs"
    yield "failures", "/ui/failures"
    yield "records", "/ui/records?kind=article"
    record = ev.records("article", limit=1)[0]
    yield "record", f"/ui/records/article/{record.id}"
    failed = ev.queue.jobs(status="failed", limit=1)
    if failed:
        yield "job", f"/ui/jobs/{failed[0].job_id}"
    for name in ("map", "versions", "verify", "tables", "workers", "tenants", "keys", "audit"):
        yield name, f"/ui/{name}"


def _taken(running: Running, ev: Evervec, folder: Path, state: str, only: set[str]) -> None:
    with serving() as serve:
        served = serve(ev)
        key = served.key(role=Role.ADMIN, agent="operator")
        for view, options in _VIEWS.items():
            with running.visiting(served.url, **options) as visitor:
                page = visitor.sign_in(key)
                for name, address in _pages(ev):
                    shown = (name in _TROUBLED) == (state == "trouble") or name == "overview"
                    if not shown or (only and name not in only):
                        continue
                    answer = page.goto(address)
                    if answer is None or answer.status != 200:
                        print(f"left out: {address} answers {answer and answer.status}")
                        visitor.findings.clear()
                        continue
                    page.wait_for_load_state("load")
                    _save(page.screenshot(), folder / f"{name}-{state}-{view}.png")


def _save(picture: bytes, path: Path) -> None:
    """Few colours are enough for a page, and make the file small."""
    few = (
        Image.open(io.BytesIO(picture)).convert("RGB").quantize(_COLOURS, dither=Image.Dither.NONE)
    )
    few.save(path, optimize=True)
    print(f"{path} {path.stat().st_size / 1000:.0f} kB")


def main() -> None:
    parser = argparse.ArgumentParser(prog="make screenshots", description=__doc__)
    parser.add_argument("page", nargs="*", help="only these, such as overview")
    parser.add_argument("--to", type=Path, default=Path("docs/pictures"))
    given = parser.parse_args()
    logging.disable(logging.CRITICAL)
    given.to.mkdir(parents=True, exist_ok=True)
    with running_browser() as running:
        for state in ("health", "trouble"):
            with (
                tempfile.TemporaryDirectory() as folder,
                showcase(Path(folder), in_trouble=state == "trouble") as (ev, _),
            ):
                _taken(running, ev, given.to, state, set(given.page))


if __name__ == "__main__":
    main()
