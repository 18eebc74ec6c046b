"""Which rights each role needs: the application's none, the set-up role's few."""

import os
import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

import evervec
from evervec import Evervec, InvalidArgument
from support import postgres
from support.world import ScriptedEmbedder

App = psycopg.Connection[Any]


class Roles:
    """Three roles of one database, none of them a superuser."""

    def __init__(self, url: str, admin: App) -> None:
        self.mark = f"{os.getpid()}_{time.time_ns()}"
        self.admin = admin
        self._url = url
        self.owner, self.setup, self.app = (f"{n}_{self.mark}" for n in ("owner", "setup", "app"))
        database = admin.info.dbname
        for role in (self.owner, self.setup, self.app):
            admin.execute(f"create role {role} login nosuperuser password 'x'")
        admin.execute(f"grant create on database {database} to {self.setup}")
        admin.execute(f"grant create on schema public to {self.owner}")
        admin.execute("create extension vector")  # not a trusted one everywhere
        with self.connect(self.owner) as conn:
            conn.execute("create table items (id int primary key, body text)")
            conn.execute(f"grant select, insert, update, delete, truncate on items to {self.app}")

    def url(self, role: str) -> str:
        host = self.admin.info.host
        return f"postgresql://{role}:x@/{self.admin.info.dbname}?host={host}"

    def connect(self, role: str) -> App:
        return psycopg.connect(make_conninfo(self.url(role)), autocommit=True)

    def open(self) -> Evervec:
        return evervec.open(self.url(self.setup), embedder=ScriptedEmbedder())


@pytest.fixture
def roles(url: str, app: App) -> Iterator[Roles]:
    made = Roles(url, app)
    yield made
    postgres.execute(postgres.server_url(), f"drop database {app.info.dbname} with (force)")
    for role in (made.owner, made.setup, made.app):
        postgres.execute(postgres.server_url(), f"drop role {role}")


def test_the_application_needs_no_right_and_the_setup_role_two(roles: Roles) -> None:
    with roles.open() as ev:
        with pytest.raises(InvalidArgument, match=r"GRANT TRIGGER, SELECT ON public\.items TO"):
            ev.attach("items", kind="item", text="body")
        with roles.connect(roles.owner) as owner:
            owner.execute(f"grant trigger, select on items to {roles.setup}")
        ev.attach("items", kind="item", text="body")
        with roles.connect(roles.app) as app:
            app.execute("insert into items values (1, 'one'), (2, 'two')")
            app.execute("update items set body = 'changed' where id = 1")
            app.execute("delete from items where id = 2")
            for forbidden in (
                "select * from evervec.changes",
                "insert into evervec.changes values ('item', null, null)",
                "select evervec.now_seconds()",
            ):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    app.execute(forbidden)
        ev.process_all()
        assert ev.verify().clean
        assert [record.text for record in ev.records("item")] == ["changed"]
        with roles.connect(roles.app) as app:
            app.execute("truncate items")
        ev.process_all()
        assert ev.records("item") == []
        ev.attach("items", kind="item", text="body")  # anew, without owning the table
        ev.detach("items")
        left = "select count(*) from pg_trigger where tgrelid = 'items'::regclass"
        assert roles.admin.execute(left).fetchone() == (0,)


def test_a_right_that_was_taken_away_is_told_and_stops_nothing_else(roles: Roles) -> None:
    with roles.open() as ev, roles.connect(roles.owner) as owner:
        owner.execute(f"grant trigger, select on items to {roles.setup}")
        ev.attach("items", kind="item", text="body")
        owner.execute("insert into items values (1, 'text')")
        owner.execute(f"revoke select on items from {roles.setup}")
        ev.add("note", "goes on", id="n")
        ev.process_all()
        assert ev.get("note", "n").embedded  # type: ignore[union-attr]
        told = str(ev.attachments.trouble(ev.attachments.by_kind()["item"]))
        assert "may not read id, body of items" in told
        assert "GRANT SELECT ON public.items" in told
        owner.execute(f"grant select (id, body) on items to {roles.setup}")  # columns are enough
        assert ev.attachments.trouble(ev.attachments.by_kind()["item"]) is None
        ev.queue.retry_failed()


def test_the_function_runs_nothing_of_the_tables_owner(roles: Roles) -> None:
    """It has the set-up role's rights, so a table's owner must not get it to call anything:
    no cast, operator or function that the owner made, nor one found by a search path."""
    with roles.open() as ev, roles.connect(roles.owner) as owner:
        owner.execute(f"grant trigger, select on items to {roles.setup}")
        owner.execute("create table stolen (who text)")
        owner.execute(f"grant insert on stolen to {roles.setup}")
        owner.execute("create type sly as enum ('a', 'b')")
        for type, value in (("text", "'x'"), ("int", "1"), ("json", "'1'")):
            owner.execute(
                f"create function steal_{type}(sly) returns {type} language plpgsql as $$begin "
                f"insert into public.stolen values (current_user); return {value}; end$$"
            )
            cast = f"create cast (sly as {type}) with function steal_{type}(sly) as implicit"
            owner.execute(cast)
        ev.attach("items", kind="item", text="body", metadata=["id"])
        owner.execute("create temp table changes (kind text, tenant text, id text)")
        owner.execute("create function public.format(text, anyelement) returns text language "
                      "plpgsql as $$begin insert into public.stolen values (current_user); "
                      "return 'x'; end$$")  # fmt: skip
        owner.execute("set search_path = pg_temp, public")
        owner.execute("insert into public.items values (1, 'text')")
        owner.execute("alter table public.items alter body type public.sly using 'a'")
        owner.execute("update public.items set body = 'b'")
        owner.execute("insert into public.items values (2, null)")
        owner.execute("delete from public.items where id = 2")
        owner.execute("alter table public.items alter id type public.sly using 'a'")
        owner.execute("update public.items set id = 'b'")
        owner.execute("delete from public.items")
        thieves = {row[0] for row in owner.execute("select who from public.stolen")}
        assert roles.setup not in thieves


def test_nobody_else_may_put_the_function_on_a_table_of_theirs(roles: Roles) -> None:
    with roles.open() as ev, roles.connect(roles.owner) as owner:
        owner.execute(f"grant trigger, select on items to {roles.setup}")
        made = ev.attach("items", kind="item", text="body")
        function = made.sql[0].split()[4]
        owner.execute("create table mine (id int, body text)")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            owner.execute(f"create trigger x after insert on mine execute function {function}")
