"""Every page in a real browser: quiet, within the policy, readable for everybody, on every screen."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from evervec.server.dashboard.paths import SIGN_IN
from evervec.server.keys import Role
from support.browser import Scheme, Visitor
from support.dashboard import address, pages, role_for
from support.furnished import furnish, furnished
from support.service import Serve, Served

SHOWN = [path for path in pages() if path != SIGN_IN]


WORD = "giraffe" * 12
"""without a place to break, like an address in an error"""


class Furnished:
    """A service with something of everything."""

    def __init__(self, served: Served, path: Path) -> None:
        self.served = served
        self.values = furnish(served.ev, path, WORD, records=8)

    def addresses(self, role: Role) -> list[str]:
        """The pages for a role; what belongs to a tenant is asked for by its name."""
        return [
            address(path, self.values, **({} if role_for(path) is Role.ADMIN else {"tenant": "default"}))
            for path in SHOWN
            if role_for(path).rank <= role.rank
        ]  # fmt: skip


@pytest.fixture
def furnished_service(tmp_path: Path, serve: Serve) -> Iterator[Furnished]:
    with furnished(tmp_path, rate_per_second=1e6, rate_burst=10**6) as ev:
        served = serve(ev)
        yield Furnished(served, tmp_path / "store.db")
        served.close()


def look(service: Furnished, visitor: Visitor, role: Role, *schemes: Scheme) -> None:
    page = visitor.sign_in(service.served.key(role=role))
    flaws = []
    for asked in service.addresses(role):
        answer = page.goto(asked)
        assert answer
        if answer.status != 200 or page.locator("h1").count() != 1:
            flaws.append(f"{asked}: {answer.status} {page.inner_text('main')}")
        flaws += visitor.flaws(*schemes)
        visitor.findings.clear()
    assert not flaws, "\n".join(flaws)


def test_every_page_is_sound_for_an_admin(
    furnished_service: Furnished, visit: Callable[..., Visitor]
) -> None:
    look(furnished_service, visit(furnished_service.served), Role.ADMIN, "light")


@pytest.mark.long
@pytest.mark.parametrize("role", list(Role))
def test_every_page_is_sound_for_every_role_in_light_and_dark(
    furnished_service: Furnished, visit: Callable[..., Visitor], role: Role
) -> None:
    look(furnished_service, visit(furnished_service.served), role, "light", "dark")


@pytest.mark.long
def test_every_page_of_an_empty_store_is_sound(
    served: Served, visit: Callable[..., Visitor]
) -> None:
    visitor = visit(served)
    page = visitor.sign_in(served.key(role="admin"))
    for path in SHOWN:
        if "{" not in path and path != "/ui/tables/again":
            page.goto(path)
            visitor.assert_sound()
            visitor.until_live() if page.locator("#live > *").count() else None


@pytest.mark.long
def test_every_page_can_be_read_without_scripts(
    furnished_service: Furnished, visit: Callable[..., Visitor]
) -> None:
    scripted = visit(furnished_service.served)
    plain = visit(furnished_service.served, java_script_enabled=False)
    key = furnished_service.served.key(role="admin")
    scripted.sign_in(key)
    plain.sign_in(key)
    for asked in furnished_service.addresses(Role.ADMIN):
        plain.page.goto(asked)
        scripted.page.goto(asked)
        for part in ("main a", "main button", "main input", "main h2"):
            assert plain.page.locator(part).count() >= scripted.page.locator(part).count(), asked
