"""The dashboard over a million records and jobs: each page, and fifty that are open.

A page has 300 ms at the server, in processor time and on the clock; the best of a few visits
counts, as others use the machine too. A browser paints something of each page within a second. Then
the service runs as a process of its own, and its processor time is taken while nobody looks, and
while fifty live pages are open: of one address, and of as many as there are pages. Beside a worker that embeds, the pages change all the time.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from shutil import which
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import quote

import httpx
from fastapi.routing import APIRoute
from playwright.async_api import async_playwright

import evervec
from benchmarks.dashboard_store import KINDS, Picky, large_store
from benchmarks.processor import process_seconds
from benchmarks.service import free_port, process
from benchmarks.table import Line, at_most
from evervec.server.app import make_app
from evervec.server.dashboard.pages import PAGES
from evervec.server.dashboard.paths import ASSETS, SIGN_IN

_OPEN = 50
_VISITS = 5
_PAINTS = 3
_PAGE = at_most(0.3)
_PAINT = at_most(1.0)
_BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
_FIRST_PAINT = """
() => new Promise((done) => {
    new PerformanceObserver((list) => {
        const [first] = list.getEntriesByName("first-contentful-paint");
        if (first) done(first.startTime);
    }).observe({ type: "paint", buffered: true });
})
"""
_SHARE = at_most(5.0)
"""percent of a core for all open pages"""
_NAMES = re.compile(r"{(\w+)(?::\w+)?}")
_STREAM = "text/event-stream"


def run(*, quick: bool) -> Sequence[Line]:
    size, seconds = (20_000, 10.0) if quick else (1_000_000, 60.0)
    path = large_store(size)
    addresses = asyncio.run(_addresses(path))
    return [
        *asyncio.run(_pages(path, addresses)),
        *asyncio.run(_painted(path, addresses)),
        *_open_pages(path, addresses, seconds),
    ]


async def _addresses(path: Path) -> list[str]:
    """All pages, those of one thing with one that is there."""
    with evervec.open(path, embedder=Picky()) as ev:
        failed = ev.queue.jobs(status="failed", limit=1)[0]
        found = {
            "kind": KINDS[0], "id": "r1", "jobs.id": failed.job_id, "name": ev.versions()[0].name,
            "fingerprint": ev.failures()[0].fingerprint, "tenant": ev.tenant,
        }  # fmt: skip
        routes = (route for router in PAGES for route in router.routes)
        paths = [
            route.path for route in routes
            if isinstance(route, APIRoute) and "GET" in (route.methods or ())
            and not route.path.startswith((ASSETS, SIGN_IN))
        ]  # fmt: skip
        queries = ["/ui/search?q=subject+7", "/ui/jobs?q=status%3Afailed", "/ui/records?kind=note"]
        return [*(_filled(path, found) for path in paths), *queries]


def _filled(path: str, values: Mapping[str, object]) -> str:
    section = path.removeprefix("/ui/").partition("/")[0]

    def value(found: re.Match[str]) -> str:
        return quote(str(values.get(f"{section}.{found[1]}", values.get(found[1], "x"))), safe="")

    return _NAMES.sub(value, path)


async def _pages(path: Path, addresses: Sequence[str]) -> list[Line]:
    """The seconds that each page takes, without a socket."""
    with evervec.open(path, embedder=Picky()) as ev:
        transport = httpx.ASGITransport(make_app(ev), client=("127.0.0.1", 5000))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            lines = []
            for address in addresses:
                spent, took = [], []
                for _ in range(_VISITS):
                    began, clock = time.process_time(), time.perf_counter()
                    answer = await http.get(address, headers={"Accept": "text/html"})
                    spent.append(time.process_time() - began)
                    took.append(time.perf_counter() - clock)
                if answer.status_code in (404, 422):  # of a thing that this store does not have
                    continue
                assert answer.status_code == 200, (address, answer.status_code)
                first = f"first visit: {took[0]:.3f} s by the clock"
                lines.append(Line(address, "processor s", min(spent), first, None, _PAGE, own=True))
                lines.append(Line("", "s", min(took), "", None, _PAGE, own=True))
            return lines


async def _painted(path: Path, addresses: Sequence[str]) -> list[Line]:
    """The seconds until a browser paints something of each page, from the click on its link."""
    program = os.environ.get("EVERVEC_TEST_BROWSER") or next(
        filter(None, map(which, _BROWSERS)), None
    )
    if program is None:
        return [Line("first paint", "s", None, f"needs one of {', '.join(_BROWSERS)}")]
    lines = []
    with _serving(path, 0) as (_, port):
        async with async_playwright() as driver:
            browser = await driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
            page = await browser.new_page(base_url=f"http://127.0.0.1:{port}")
            for address in addresses:
                times = []
                for _ in range(_PAINTS):
                    answer = await page.goto(address)
                    if answer is None or answer.status != 200:
                        break
                    times.append(await page.evaluate(_FIRST_PAINT) / 1000)
                if len(times) == _PAINTS:
                    beside = f"first visit: {times[0]:.3f} s"
                    lines.append(
                        Line(f"paint {address}", "s", min(times), beside, None, _PAINT, own=True)
                    )
            await browser.close()
    return lines


def _open_pages(path: Path, addresses: Sequence[str], seconds: float) -> Iterator[Line]:
    for workers in (0, 1):
        state = "a worker runs" if workers else "idle"
        with TemporaryDirectory(prefix="evervec-bench-") as folder, ExitStack() as stack:
            if workers:  # it would change the store that is kept
                path = Path(shutil.copy(path, folder))
            pid, port = stack.enter_context(_serving(path, workers))
            none = asyncio.run(_watched(pid, port, [], seconds, workers))
            for what, looked_at in (
                ("one address", ["/"] * _OPEN),
                ("all pages", [addresses[n % len(addresses)] for n in range(_OPEN)]),
            ):
                share = asyncio.run(_watched(pid, port, looked_at, seconds, workers)) - none
                yield Line(
                    f"{_OPEN} open, {what}, {state}", "% of a core", share,
                    f"none open: {none:.2f} %", None, _SHARE, own=True,
                )  # fmt: skip


@contextmanager
def _serving(path: Path, workers: int) -> Iterator[tuple[int, int]]:
    port = free_port()
    program = [sys.executable, "-m", "benchmarks.dashboard_process", str(path), str(port)]
    with process([*program, str(workers)], port) as running:
        yield running.pid, port


async def _watched(
    pid: int, port: int, addresses: Sequence[str], seconds: float, workers: int
) -> float:
    """Percent of a core that the service takes while some watch, and a writer feeds the worker."""
    async with asyncio.TaskGroup() as tasks:
        started = [tasks.create_task(_watch(port, address)) for address in addresses]
        if workers:
            started.append(tasks.create_task(_write(port)))
        await asyncio.sleep(5.0)
        before = process_seconds(pid)
        await asyncio.sleep(seconds)
        spent = process_seconds(pid) - before
        for task in started:
            task.cancel()
    return 100 * spent / seconds


async def _watch(port: int, address: str) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"GET {address} HTTP/1.1\r\nHost: localhost\r\nAccept: {_STREAM}\r\n\r\n"
    writer.write(head.encode())
    while await reader.read(65_536):
        pass


async def _write(port: int) -> None:
    """Ten records a second, of which one is refused."""
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as http:
        number = 0
        while True:
            number += 1
            text = f"new record {number}{' refused' if number % 10 == 0 else ''}"
            body: dict[str, Any] = {"kind": "note", "id": f"new{number}", "text": text}
            await http.post("/v1/records", json=body)
            await asyncio.sleep(0.1)
