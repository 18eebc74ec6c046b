"""Two stores to look at: one in health, one in trouble, each with a day of history.

The trouble: the provider answers 503, records fail for three reasons, an attached table was rebuilt
without its triggers, and a change of the model is under way. `python -m support.showcase trouble`
serves it, to try as an operator would.
"""

import argparse
import logging
import random
import sqlite3
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import evervec
from evervec import Evervec
from evervec.embedders.base import Answer, estimate_tokens
from evervec.embedders.hashing import HashingEmbedder
from evervec.errors import EvervecError, InvalidInput, ProviderUnavailable
from evervec.model.usage import Limits
from evervec.server.keys import Keys
from evervec.server.serve import serve

_SUBJECTS = (
    "Reset a forgotten password", "Rotate the signing certificate", "Export invoices as a file",
    "Invite a colleague to a team", "Restore a deleted project", "Set up single sign-on",
    "Change the billing address", "Connect a warehouse", "Schedule a nightly report",
    "Limit who may publish", "Move a workspace to another region", "Read the audit log",
)  # fmt: skip
_BODIES = (
    "Open the settings of the workspace, choose Security, and follow the steps on the page.",
    "The link is valid for one hour. If it has expired, ask for another one.",
    "Only owners see this page. Writers can ask an owner from the menu at the top right.",
    "The file has one row for each item, with amounts in the currency of the contract.",
    "A migration takes about a minute for each thousand items, and can be undone for a month.",
)
_AUTHORS = ("amara", "bo", "chiara", "dmitri", "elif")
_HOURS = 26
_REASONS = {
    "[scan]": "input has 9214 tokens; the limit of this model is 8192",
    "[binary]": "input contains characters that are not valid UTF-8 at position 118",
    "[policy]": "input was rejected by the content filter (category: credentials)",
}


class Provider(HashingEmbedder):
    """Stands in for a paid provider. It refuses a few texts, and can be away."""

    name = "openai"

    def __init__(self, model: str = "text-embedding-3-small", dimensions: int = 256) -> None:
        super().__init__(dimensions)
        self.model = model
        self.left = sys.maxsize
        """texts that it answers until it is away"""

    def answer(self) -> None:
        """Be there again."""
        self.left = sys.maxsize

    def ask(self, texts: Sequence[str]) -> Answer:
        """The vectors, with what they cost."""
        return Answer(self.embed(texts), sum(map(estimate_tokens, texts)))

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.left -= len(texts)
        if self.left < 0:
            raise ProviderUnavailable(
                "api.openai.com answered 503 Service Unavailable: the server is overloaded"
            )
        for sign, reason in _REASONS.items():
            if refused := [place for place, text in enumerate(texts) if sign in text]:
                raise InvalidInput(refused, reason)
        return super().embed(texts)


class PassingTime:
    """A clock that runs through the last day, and then is the real one."""

    def __init__(self, seconds_ago: float) -> None:
        self._behind = seconds_ago

    def __call__(self) -> float:
        return time.time() - self._behind

    def pass_to(self, seconds_ago: float) -> None:
        self._behind = max(0.0, seconds_ago)


def _record(chance: random.Random, number: int) -> dict[str, Any]:
    subject = chance.choice(_SUBJECTS)
    text = " ".join(chance.sample(_BODIES, chance.randint(1, 4)))
    return {
        "id": f"{subject.split()[0].lower()}-{number}", "title": subject, "text": text,
        "metadata": {"author": chance.choice(_AUTHORS), "year": chance.randint(2023, 2026)},
    }  # fmt: skip


def _live_through(ev: Evervec, clock: PassingTime, trouble: Callable[[int], str]) -> None:
    """A day of adding and embedding: in steps of ten minutes, and of one in the last hour."""
    chance = random.Random(3)
    number = 0
    for ago in (*range(_HOURS * 3600, 3600, -600), *range(3600, 0, -60)):
        clock.pass_to(ago)
        busy = 3 + int(6 * abs(12 - (ago // 3600) % 24) / 12) + chance.randint(0, 3)
        for _ in range(busy):
            number += 1
            given = _record(chance, number)
            given["text"] = f"{trouble(number)} {given['text']}".strip()
            kind = ("article", "ticket", "article", "note")[number % 4]
            for _ in ev.add_many(kind, [given]):
                pass
        ev.process_all()


@contextmanager
def showcase(folder: Path, *, in_trouble: bool) -> Iterator[tuple[Evervec, list[Provider]]]:
    """An open store with a day of history."""
    path = folder / "store.db"
    clock = PassingTime(_HOURS * 3600)
    provider = Provider()
    options: dict[str, Any] = {
        "embedder": provider, "clock": clock, "price_per_million": 20.0, "backoff_seconds": 30.0,
    }  # fmt: skip
    with evervec.open(path, **options) as ev:
        signs = [*_REASONS, "", ""]
        every = 9 if in_trouble else 10**9

        def trouble(number: int) -> str:
            return signs[number % len(signs)] if number % every == 0 else ""

        _customers(path)
        ev.attach("customers", text=["name", "note"], kind="customer", metadata=["city"])
        _live_through(ev, clock, trouble)
        clock.pass_to(0)
        _tenants(ev)
        providers = [provider]
        if in_trouble:
            providers.append(_break(ev, path, provider))
        yield ev, providers


def _customers(path: Path) -> None:
    """A table of the application."""
    cities = ("Lisbon", "Nairobi", "Osaka", "Quito", "Tallinn")
    rows = [
        (
            f"Customer {n}",
            f"Pays by {('card', 'invoice')[n % 2]}, since {2015 + n % 10}",
            cities[n % 5],
        )
        for n in range(60)
    ]
    with closing(sqlite3.connect(path)) as conn, conn:
        conn.execute(
            "create table customers (id integer primary key, name text, note text, city text)"
        )
        conn.executemany("insert into customers (name, note, city) values (?, ?, ?)", rows)


def _tenants(ev: Evervec) -> None:
    keys = Keys(ev.store)
    for tenant, role in (("acme", "writer"), ("acme", "reader"), ("globex", "writer")):
        keys.create(tenant, f"{tenant}-{role}", role)
        ev.of(tenant).add("article", f"Welcome to {tenant}.", id="welcome", title="Welcome")
    ev.of("acme").set_limits(Limits(records=5_000))
    ev.process_all()


def _break(ev: Evervec, path: Path, provider: Provider) -> Provider:
    """All troubles at once; returns the model that the store changes to."""
    larger = Provider("text-embedding-3-large", 512)
    larger.left = 900
    ev.migrate(larger)
    with suppress(EvervecError):
        ev.process_all()
    with closing(sqlite3.connect(path)) as conn, conn:
        for (name,) in conn.execute(
            "select name from sqlite_master where type = 'trigger' and tbl_name = 'customers'"
        ).fetchall():
            conn.execute(f'drop trigger "{name}"')
        conn.execute("insert into customers (name, note, city) values ('Missed', 'unseen', 'Lima')")
    provider.left = 0
    chance = random.Random(5)
    for number in range(40):
        for _ in ev.add_many("ticket", [_record(chance, 100_000 + number)]):
            pass
    with suppress(EvervecError):
        ev.process_all()
    return larger


def answer(providers: Sequence[Provider]) -> None:
    for each in providers:
        each.answer()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m support.showcase", description=__doc__)
    parser.add_argument("state", choices=["health", "trouble"])
    parser.add_argument("--port", type=int, default=8321)
    parser.add_argument(
        "--back-after", type=float, default=60.0, help="seconds until the provider answers again"
    )
    given = parser.parse_args()
    logging.disable(logging.ERROR)
    with (
        tempfile.TemporaryDirectory() as folder,
        showcase(Path(folder), in_trouble=given.state == "trouble") as (ev, providers),
    ):
        back = threading.Timer(given.back_after, answer, [providers])
        back.daemon = True
        back.start()
        print(f"an admin's key: {Keys(ev.store).create('default', 'operator', 'admin').key}")
        serve(ev, "127.0.0.1", given.port, workers=1, say=print)


if __name__ == "__main__":
    main()
