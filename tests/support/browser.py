"""A real browser for the dashboard's tests: Debian's Chromium, driven by Playwright.

One browser serves all tests of a process; each visitor has cookies of its own. Whatever a visitor's
pages load or say is checked: no message in the console, no breach of the policy, no request to
another origin, no dialog.
"""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal
from urllib.parse import urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Dialog,
    Page,
    Request,
    Response,
    ViewportSize,
    expect,
    sync_playwright,
)

from support.chromium import HOW, NO_BROWSER, find_browser

__all__ = ["Running", "Visitor", "expect", "running_browser"]

Scheme = Literal["light", "dark"]

_PATIENCE = 30_000
"""milliseconds"""
_PHONE = ViewportSize(width=360, height=740)
_DESK = ViewportSize(width=1280, height=900)
_RULES = {
    "runOnly": {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]},
    "resultTypes": ["violations"],
}
_OF_COLOURS = {**_RULES, "runOnly": ["color-contrast", "link-in-text-block"]}
"""what may differ between themes"""
_VIOLATIONS = "async (rules) => (await axe.run(rules)).violations"
_POLICY = "default-src 'none'"
_TELL_VIOLATIONS = """
document.addEventListener("securitypolicyviolation", (event) =>
  tellViolation(`${event.violatedDirective}: ${event.blockedURI} ${event.sample}`));
"""
_TOO_WIDE = """
() => [...document.querySelectorAll("body *")].filter((each) => {
    if (each.closest(".scroll, pre, nav, .hidden, .skip, svg")) return false;
    return each.getBoundingClientRect().right > innerWidth + 1;
}).slice(0, 5).map((each) => each.outerHTML.slice(0, 120))
"""


expect.set_options(timeout=_PATIENCE)


class Running:
    """A browser, and the event loop of its driver.

    The driver leaves its loop marked as running in this thread, where other tests run loops of
    their own; so it is marked only while the browser is used."""

    def __init__(self, browser: Browser) -> None:
        self.browser = browser
        self._loop = asyncio.get_running_loop()
        asyncio._set_running_loop(None)

    @contextmanager
    def driven(self) -> Iterator[Browser]:
        before = asyncio._get_running_loop()
        asyncio._set_running_loop(self._loop)
        try:
            yield self.browser
        finally:
            asyncio._set_running_loop(before)

    @contextmanager
    def visiting(self, origin: str, **options: Any) -> Iterator["Visitor"]:
        """A visitor, whose findings fail the test at the end."""
        # with motion, a colour would be looked at in the middle of its change
        options = {"viewport": _DESK, "reduced_motion": "reduce", **options}
        with self.driven() as browser:
            context = browser.new_context(base_url=origin, **options)
            context.set_default_timeout(_PATIENCE)
            visitor = Visitor(context, origin)
            try:
                yield visitor
                visitor.assert_quiet()
            finally:
                context.close()


@contextmanager
def running_browser() -> Iterator[Running]:
    """A browser; the test is skipped without."""
    program = find_browser()
    if program is None:
        pytest.skip(f"{NO_BROWSER}: {HOW}")
    driver = sync_playwright().start()
    running = Running(driver.chromium.launch(executable_path=program, args=["--no-sandbox"]))
    try:
        yield running
    finally:
        with running.driven() as browser:
            browser.close()
            driver.stop()


class Visitor:
    """Somebody who looks at the dashboard."""

    def __init__(self, context: BrowserContext, origin: str) -> None:
        self.context = context
        self.findings: list[str] = []
        """what a page must not do"""
        self.expected: tuple[str, ...] = ()
        """parts of console messages that a test causes on purpose"""
        self._origin = origin
        self._axe = Axe()
        context.expose_function("tellViolation", self._note_violation)
        context.add_init_script(_TELL_VIOLATIONS)
        context.on("console", self._note_message)
        context.on("weberror", lambda error: self.findings.append(f"exception: {error.error}"))
        context.on("dialog", self._note_dialog)
        context.on("request", self._note_request)
        context.on("response", self._note_response)
        self.page = context.new_page()

    def go(self, path: str) -> Page:
        self.page.goto(path)
        return self.page

    def sign_in(self, key: str, path: str = "/") -> Page:
        """Open a page that asks for a key first."""
        self.go(path)
        self.page.get_by_label("API key").fill(key)
        self.page.get_by_role("button", name="Sign in").click()
        expect(self.page.get_by_role("button", name="Sign out")).to_be_visible()
        return self.page

    def until_live(self) -> None:
        """Wait for the page's connection to the server."""
        expect(self.page.locator("#live-state")).to_have_text("live")

    def assert_sound(self, *schemes: Scheme) -> None:
        assert not (found := self.flaws(*schemes)), found

    def flaws(self, *schemes: Scheme) -> list[str]:
        """What keeps anybody from reading the page that is shown, on a desk or on a phone, and
        whatever it must not do."""
        found = []
        if self.page.evaluate("typeof axe") == "undefined":
            self.page.evaluate(self._axe.axe_script)
        rules = _RULES
        for scheme in schemes or ("light", "dark"):
            self.page.emulate_media(color_scheme=scheme)
            found += self._barriers(scheme, rules)
            rules = _OF_COLOURS
        self.page.set_viewport_size(_PHONE)
        width = self.page.evaluate("document.documentElement.scrollWidth")
        if width > _PHONE["width"]:
            wide = self.page.evaluate(_TOO_WIDE)
            found.append(f"{self.page.url} is {width} px wide on a phone: {wide}")
        self.page.set_viewport_size(_DESK)
        return [*found, *self.unexpected]

    def _barriers(self, scheme: str, rules: Mapping[str, Any]) -> list[str]:
        return [
            f"{self.page.url} in {scheme}: {each['id']} ({each['impact']}): {node['html'][:200]} "
            f"{node['failureSummary']}"
            for each in self.page.evaluate(_VIOLATIONS, rules)
            if each["impact"] in ("serious", "critical")
            for node in each["nodes"][:3]
        ]

    @property
    def unexpected(self) -> list[str]:
        return [each for each in self.findings if not any(part in each for part in self.expected)]

    def assert_quiet(self) -> None:
        assert not self.unexpected, self.unexpected

    def _note_message(self, message: ConsoleMessage) -> None:
        if message.type not in ("log", "info", "debug", "verbose"):
            self.findings.append(f"console: {message.type}: {message.text}")

    def _note_violation(self, what: str) -> None:
        self.findings.append(f"policy: {what}")

    def _note_dialog(self, dialog: Dialog) -> None:
        self.findings.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _note_request(self, request: Request) -> None:
        parts = urlsplit(request.url)
        if f"{parts.scheme}://{parts.netloc}" != self._origin:
            self.findings.append(f"request to elsewhere: {request.url}")

    def _note_response(self, response: Response) -> None:
        if _POLICY not in response.headers.get("content-security-policy", ""):
            self.findings.append(f"no policy: {response.url}")
