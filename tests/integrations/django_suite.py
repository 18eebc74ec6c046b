"""Models searched through Django, run by pytest in a process of its own for each database: Django is
set up once in a process. `test_django.py` starts it, and names the database."""

import asyncio
import os
import pickle
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from io import StringIO
from pathlib import Path
from typing import Any
from uuid import uuid4

import django
import psycopg
import pytest
from django.conf import settings
from django.core.management import CommandError, call_command
from django.db import connection, connections, transaction

from support.django_databases import database

URL = os.environ["DJANGO_SUITE_URL"]
FOLDER = Path(os.environ["DJANGO_SUITE_FOLDER"])
APP = "django_blog"


class Router:
    """Countries are in a database of their own; places are in both."""

    def db_for_read(self, model: Any, **_: Any) -> str | None:
        return "other" if model.__name__ == "Country" else None

    db_for_write = db_for_read

    def allow_migrate(
        self, db: str, app_label: str, model_name: str | None = None, **_: Any
    ) -> bool:
        return model_name == "place" or (db == "other") == (model_name == "country")


settings.configure(
    DATABASES={"default": database(URL), "other": database(str(FOLDER / "other.db"))},
    DATABASE_ROUTERS=[Router()],
    INSTALLED_APPS=[
        "django.contrib.contenttypes", "watson", "evervec.integrations.django",
        f"support.{APP}",
    ],
    MIGRATION_MODULES={APP: "blog_migrations"},
    EVERVEC={"EMBEDDER": "hashing"},
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    USE_TZ=True,
)  # fmt: skip
sys.path.insert(0, str(FOLDER))
django.setup()

from django.db.models import F  # noqa: E402
from django.test import TestCase, TransactionTestCase, override_settings  # noqa: E402
from watson import search as watson  # noqa: E402

import evervec  # noqa: E402
from evervec import InvalidArgument  # noqa: E402
from evervec.integrations.django.stores import STORES  # noqa: E402
from evervec.integrations.django.test import SearchTestMixin, real_store, searchable  # noqa: E402
from support.django_blog.models import (  # noqa: E402
    Article,
    Author,
    Cafe,
    Country,
    Line,
    Museum,
    Place,
    Recent,
    Team,
    Thing,
)

watson.register(Article, fields=("title", "body"))


@pytest.fixture(scope="session", autouse=True)
def migrated() -> Iterator[None]:
    (FOLDER / "blog_migrations").mkdir()
    (FOLDER / "blog_migrations" / "__init__.py").touch()
    call_command("makemigrations", APP, verbosity=0)
    call_command("migrate", verbosity=0)
    call_command("migrate", database="other", verbosity=0)
    yield
    STORES.close()
    connections.close_all()


@pytest.fixture(autouse=True)
def emptied(migrated: None, request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if request.cls is None:  # Django's test cases clean up themselves
        for model in (Line, Thing, Museum, Cafe, Place, Team, Article, Author, Country):
            model.objects.all().delete()
        embed()


def embed() -> None:
    for alias in connections:
        STORES.get(alias).process_all()


def titles(found: Any) -> list[str]:
    return [article.title for article in found]


def articles(*names: str, **fields: Any) -> list[Article]:
    made: list[Article] = Article.objects.bulk_create(
        [Article(title=name, body=f"All about {name}.", **fields) for name in names]
    )
    return made


# what is heard


def heard(word: str) -> tuple[bool, bool]:
    """Whether evervec finds a word, and whether the package that uses signals does."""
    embed()
    found = Article.evervec.search(word, mode="text")
    return bool(found), bool(watson.filter(Article, word))


def test_bulk_writes_and_sql_are_heard_that_signals_miss() -> None:
    with watson.update_index():
        saved = Article.objects.create(title="walnut")
    assert heard("walnut") == (True, True)  # both hear `save`
    with watson.update_index():
        Article.objects.bulk_create([Article(title="hazelnut")])
    assert heard("hazelnut") == (True, False)
    with watson.update_index():
        Article.objects.filter(pk=saved.pk).update(title="chestnut")
    assert heard("chestnut") == (True, False)
    assert heard("walnut") == (False, True)  # and what was replaced is still found
    with watson.update_index():
        saved.title = "peanut"
        Article.objects.bulk_update([saved], ["title"])
    assert heard("peanut") == (True, False)
    with watson.update_index(), connection.cursor() as cursor:
        cursor.execute("update django_blog_article set title = 'coconut' where id = %s", [saved.pk])
    assert heard("coconut") == (True, False)
    with watson.update_index(), connection.cursor() as cursor:
        cursor.execute("delete from django_blog_article where id = %s", [saved.pk])
    assert heard("coconut")[0] is False
    assert STORES.get("default").verify().complete


def test_writes_of_another_program_are_heard() -> None:
    sql = "insert into django_blog_article (title, body, published, year) values ('{}', '', {}, 1)"
    if "://" in URL:
        with psycopg.connect(URL) as other:
            other.execute(sql.format("acorn", "true"))
    else:
        with sqlite3.connect(URL) as file:
            file.execute(sql.format("acorn", "1"))
        file.close()
    assert heard("acorn") == (True, False)


def test_what_is_rolled_back_is_not_found() -> None:
    with transaction.atomic():
        articles("almond")
        transaction.set_rollback(True)
    with transaction.atomic():
        articles("pecan")
    assert heard("almond")[0] is False
    assert heard("pecan")[0] is True


# querysets


def test_instances_come_in_order_of_relevance_with_their_hits() -> None:
    articles("tea", "coffee", "tea and coffee and milk and sugar")
    embed()
    found = Article.evervec.search("tea", k=3)
    assert titles(found)[0] == "tea"
    hits = [article.evervec_hit for article in found]
    assert [hit.id for hit in hits] == [str(article.pk) for article in found]
    relevances = [hit.relevance for hit in hits]
    assert relevances == sorted(relevances, reverse=True)
    assert "tea" in hits[0].text


def test_the_best_of_a_queryset_are_found_however_many_others_are_better() -> None:
    mine = Author.objects.create(name="me")
    articles(*(f"tea {n}" for n in range(120)))
    articles("a cup of water, hardly any tea", "milk", author=mine)
    embed()
    found = Article.evervec.search("tea", k=1, among=Article.objects.filter(author=mine))
    assert titles(found) == ["a cup of water, hardly any tea"]
    assert len(Article.evervec.search("tea", k=5, among=Article.objects.filter(author=mine))) == 2


def test_a_result_can_be_filtered_sliced_counted_and_joined() -> None:
    me = Author.objects.create(name="me")
    articles("green tea", "black tea", "white tea", author=me)
    articles("red tea", published=False)
    embed()
    found = Article.evervec.search("tea", k=10)
    assert found.count() == 4
    assert titles(found.filter(published=False)) == ["red tea"]
    assert titles(found.exclude(author=None).reverse()) == titles(found.exclude(author=None))[::-1]
    assert titles(found[:2]) == titles(found)[:2]
    assert titles(found.order_by("title"))[0] == "black tea"
    assert list(found.values_list("title", flat=True)) == titles(found)
    assert found.first().evervec_hit.relevance >= found.last().evervec_hit.relevance
    assert found.annotate(next=F("year") + 1).first().next == 2025
    assert titles(pickle.loads(pickle.dumps(found))) == titles(found)
    among = Article.objects.select_related("author").filter(author=me)
    (best, *_) = Article.evervec.search("tea", among=among)
    assert "author" in best._state.fields_cache
    (best, *_) = Article.evervec.search("tea", among=Article.objects.prefetch_related("author"))
    assert "author" in best._state.fields_cache
    first = Article.objects.select_related("author").order_by("title")[:2]
    (best, _) = Article.evervec.search("tea", among=first)
    assert "author" in best._state.fields_cache
    either = Article.objects.filter(title="red tea").union(Article.objects.filter(title="none"))
    assert titles(Article.evervec.search("tea", among=either)) == ["red tea"]
    assert titles(Article.evervec.search("tea", k=1, among=me.article_set.all()))
    assert titles(found & Article.live.filter(title__startswith="g")) == ["green tea"]


def test_metadata_filters_reach_the_index() -> None:
    articles("old tea", year=1900)
    articles("new tea", year=2020)
    embed()
    assert titles(Article.evervec.search("tea", filter={"year": {"lt": 2000}})) == ["old tea"]


@pytest.mark.parametrize("store", ["own", "of a test"])
def test_a_filter_has_the_names_and_values_of_fields_on_every_engine(store: str) -> None:
    """SQLite keeps booleans as numbers, UUIDs without dashes, and times as texts without a zone."""
    me, noon = Author.objects.create(name="me"), datetime(2026, 3, 1, 12, tzinfo=UTC)
    (tea,) = articles("tea", author=me, printed_at=noon, price=Decimal("1.50"))
    articles("other tea", published=False, price=2)
    embed()
    east = timezone(timedelta(hours=9))
    filters: list[dict[str, Any]] = [
        {"published": True},
        {"published": {"ne": False}},
        {"not": {"published": False}},
        {"author": me},
        {"author": me.pk},
        {"author_id": str(me.pk)},
        {"token": tea.token},
        {"token": [str(tea.token)]},
        {"printed_at": noon.astimezone(east)},
        {"printed_at": {"gte": noon, "lt": noon + timedelta(seconds=1)}},
        {"printed_at": {"exists": True}},
        {"price": Decimal("1.5")},
        {"or": [{"price": {"lt": 2}}, {"token": uuid4()}]},
    ]
    with searchable() if store == "of a test" else nullcontext():
        for filter in filters:
            assert titles(Article.evervec.search("tea", filter=filter)) == ["tea"], filter
        assert not Article.evervec.similar(tea, filter={"published": True})


def test_a_filter_by_what_is_no_metadata_is_refused() -> None:
    wrong: tuple[tuple[Any, str], ...] = (
        ({"titel": "tea"}, "'titel' is not in the metadata.*author, price, printed_at, pub"),
        ({"token": "tea"}, "'token': .*is not a valid UUID"),
        ({"author": 1, "author_id": 2}, "'author' is named twice"),
        ([], "filter must be a dict"),
    )
    for filter, reason in wrong:
        with pytest.raises(InvalidArgument, match=reason):
            Article.evervec.search("tea", filter=filter)


def test_deleted_and_changed_rows_are_not_shown_and_others_take_their_place() -> None:
    made = articles("tea one", "tea two", "tea three")
    embed()
    made[0].delete()
    Article.objects.filter(pk=made[1].pk).update(title="coffee", body="")
    assert titles(Article.evervec.search("tea", k=1)) == ["tea three"]
    assert set(titles(Article.evervec.search("tea", stale=True))) == {"coffee", "tea three"}
    Article.objects.filter(pk=made[2].pk).update(year=1999)  # is not what was embedded
    assert titles(Article.evervec.search("tea")) == ["tea three"]
    embed()
    assert titles(Article.evervec.search("coffee", k=1)) == ["coffee"]


def test_an_empty_result_is_a_queryset_too() -> None:
    assert list(Article.evervec.search("nothing").filter(published=True)) == []
    assert Article.evervec.search("nothing").count() == 0


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="queryset of Author"):
        Article.evervec.search("tea", among=Author.objects.all())
    with pytest.raises(InvalidArgument, match="queryset of Article, not a RawQuerySet"):
        Article.evervec.search("tea", among=Article.objects.raw("select 1"))
    with pytest.raises(InvalidArgument, match="kind: not for the search of a model"):
        Article.evervec.search("tea", kind="other")
    for among in (None, Article.objects.all()):
        with pytest.raises(InvalidArgument, match=r"k must.*not -1"):
            Article.evervec.search("tea", k=-1, among=among)
        with pytest.raises(InvalidArgument, match="k: requests 1,001"):
            Article.evervec.search("tea", k=1001, among=among)
    with pytest.raises(AttributeError, match="not for instances"):
        _ = Article(title="x").evervec


def test_similar_instances_are_found() -> None:
    tea, *_ = articles("green tea", "black tea", "rockets")
    embed()
    assert titles(Article.evervec.similar(tea, k=1)) == ["black tea"]
    Line.objects.bulk_create([Line(order="a", place=n, text=f"{n} red bolts") for n in (1, 2)])
    Thing.objects.bulk_create([Thing(text=f"{n} red bolts") for n in (1, 2)])
    embed()
    assert Line.evervec.similar(Line.objects.get(place=1)).get().place == 2
    assert Thing.evervec.similar(Thing.objects.first()).count() == 1


def test_coroutines_search() -> None:
    articles("tea")
    embed()

    async def search() -> list[str]:
        found = await Article.evervec.asearch("tea")
        near = await Article.evervec.asimilar(await found.afirst())
        return [article.title async for article in found] + [a.title async for a in near]

    assert asyncio.run(search()) == ["tea"]


# models


def test_every_shape_of_key_table_and_inheritance_is_searched() -> None:
    Museum.objects.create(name="Louvre", exhibits="old paintings")
    Cafe.objects.create(name="The blue cup", seats=7)
    Country.objects.create(code="FR", text="bread and wine")
    Thing.objects.create(text="a hammer")
    Line.objects.create(order='it"s', place=3, text="three bolts")
    articles("tea")
    embed()
    assert [type(place).__name__ for place in Place.search.search("cup")][:1] == ["Place"]
    assert Cafe.search.search("cup").get().seats == 7
    assert Museum.museums.search("paintings").get().name == "Louvre"
    assert Museum.search.search("Louvre").get().exhibits == "old paintings"
    assert Country.evervec.search("wine").get().pk == "FR"
    assert Thing.evervec.search("hammer").get() == Thing.objects.get()
    assert Line.evervec.search("bolts").get().pk == ('it"s', 3)
    assert type(Recent.evervec.search("tea").get()) is Recent
    Museum.objects.update(exhibits="new sculptures")
    embed()
    assert Museum.museums.search("sculptures", mode="text").get().name == "Louvre"


def test_each_database_has_its_own_store() -> None:
    Country.objects.create(code="FR", text="bread")
    embed()
    assert {t.table for t in STORES.get("other").attachments.by_kind().values()} == {
        "The Länder; select 'all'", "django_blog_place"
    }  # fmt: skip
    assert "django_blog.country" not in STORES.get("default").attachments.by_kind()
    assert Country.evervec.search("bread").get().code == "FR"


def test_a_search_is_in_the_database_of_the_rows_that_it_chooses_from() -> None:
    here = [Place.objects.create(name=name) for name in ("red cup", "red mug")]
    there = Place.objects.using("other")
    away = [there.create(pk=place.pk, name=f"far away {place.pk}") for place in here]
    embed()
    for found in (
        Place.search.search("far", among=there.all()),
        Place.search.search("far", using="other", among=Place.objects.all()),
        Place.search.search("far", using="other"),
        Place.search.similar(away[0], among=there.exclude(pk=away[0].pk)),
    ):
        assert {place._state.db for place in found} == {"other"}
        assert all(place.evervec_hit.text == place.name for place in found)
    with searchable():
        assert Place.search.search("far", among=there.all()).count() == 2
        assert not Place.search.search("far", mode="text")
    near = Place.search.similar(away[0]).get()
    assert (near.pk, near.name) == (away[1].pk, away[1].name)
    assert Place.search.search("red", among=Place.objects).count() == 2
    there._raw_delete("other")  # no other tables are there


def test_very_many_composite_keys_are_found() -> None:
    lines = [Line(order="a", place=n, text=f"bolts {n}") for n in range(1000)]
    Line.objects.bulk_create(lines, batch_size=200)
    embed()
    try:
        assert len(Line.evervec.search("bolts", k=1000)) == 1000
    finally:
        with connection.cursor() as cursor:
            cursor.execute("delete from django_blog_line")


def test_tenants_see_their_own_rows() -> None:
    for name, motto in (("red", "never give up"), ("blue", "never say never")):
        author = Author.objects.create(name=name)
        Team.objects.create(member=author, tenant=name, motto=motto)
    embed()
    assert Team.evervec.search("never", tenant="red").get().motto == "never give up"
    assert not Team.evervec.search("never").exists()


def test_a_default_manager_decides_which_rows_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    articles("secret tea", published=False)
    articles("tea for all")
    embed()
    monkeypatch.setattr(Article._meta, "default_manager_name", "live")
    monkeypatch.setitem(vars(Article._meta), "default_manager", Article.live)
    assert titles(Article.evervec.search("tea", k=1)) == ["tea for all"]


# commands


def run(name: str, *args: str, **options: Any) -> str:
    out = StringIO()
    call_command(name, *args, stdout=out, **options)
    return out.getvalue()


def test_the_commands_are_those_of_evervec() -> None:
    articles("tea", "coffee")
    assert "2 jobs done, 0 failed" in run("evervec_worker", "--drain")
    assert "django_blog_article as django_blog.article" in run("evervec_status")
    assert '"pending": 0' in run("evervec_status", as_json=True)
    assert "exactly the latest version" in run("evervec_verify")
    assert "All tables are attached" in run("evervec_sync")
    assert "every record has current vectors" in run("evervec_backfill")
    with pytest.raises(CommandError, match="concurrency"):
        run("evervec_worker", "--concurrency", "none")


def test_verify_repairs_a_table_without_triggers_and_checks_warn_of_it() -> None:
    with connection.cursor() as cursor:
        if connection.vendor == "sqlite":
            cursor.execute("select name from sqlite_schema where tbl_name = 'django_blog_article' "
                           "and type = 'trigger' and name like 'evervec%'")  # fmt: skip
            for (name,) in cursor.fetchall():
                cursor.execute(f'drop trigger "{name}"')
        else:
            cursor.execute("alter table django_blog_article disable trigger user")
    articles("unheard")
    with pytest.raises(SystemExit):
        run("evervec_verify")
    problems = StringIO()
    call_command("check", databases=["default"], stderr=problems)
    assert "evervec.W001" in problems.getvalue()
    assert "Attached django_blog_article" in run("migrate")
    assert heard("unheard")[0] is True


# tests of a project


class InATransaction(SearchTestMixin, TestCase):
    databases = "__all__"

    def test_uncommitted_rows_are_found(self) -> None:
        article = Article.objects.create(title="tea")
        assert titles(Article.evervec.search("tea")) == ["tea"]
        article.title = "coffee"
        article.save()
        assert titles(Article.evervec.search("coffee")) == ["coffee"]
        assert not Article.evervec.search("tea", mode="text").exists()
        article.delete()
        assert not Article.evervec.search("coffee").exists()

    def test_nothing_is_left_of_other_tests(self) -> None:
        assert not Article.evervec.search("tea coffee").exists()
        Line.objects.create(order="a", place=1, text="bolts")
        Thing.objects.create(text="bolts")
        assert Line.evervec.search("bolts").get().pk == ("a", 1)
        assert Thing.evervec.search("bolts").exists()
        Author.objects.create(id=1, name="x")
        Team.objects.create(member_id=1, tenant="red", motto="never")
        assert Team.evervec.search("never", tenant="red").exists()
        assert not Team.evervec.search("never").exists()


class Committed(TransactionTestCase):
    databases = "__all__"

    def test_the_real_store_is_used(self) -> None:
        with real_store() as ev:
            articles("tea")
            assert ev.process_all().succeeded >= 1
            assert titles(Article.evervec.search("tea")) == ["tea"]

    def test_searchable_is_for_both(self) -> None:
        with searchable():
            articles("tea")
            assert titles(Article.evervec.search("tea")) == ["tea"]


# a separate store


def test_a_separate_store_is_filled_by_sync(tmp_path: Path) -> None:
    place = str(tmp_path / "apart.db")
    with override_settings(EVERVEC={"EMBEDDER": "hashing", "STORE": place}):
        tea, _ = articles("tea", "coffee")
        assert "django_blog.Article: 2 rows, 0 deleted" in run("evervec_sync")
        assert "2 jobs done" in run("evervec_worker", drain=True)
        assert titles(Article.evervec.search("tea", k=1)) == ["tea"]
        Article.objects.filter(title="coffee").update(title="cocoa")
        tea.delete()
        assert "django_blog.Article: 1 rows, 1 deleted" in run("evervec_sync")
        run("evervec_worker", drain=True)
        run("evervec_sync")
        assert "0 jobs done" in run("evervec_worker", drain=True)  # nothing had changed
        assert titles(Article.evervec.search("cocoa")) == ["cocoa"]
        # triggers would log changes that no worker reads
        assert "Detached django_blog.article" in run("migrate")
    with evervec.open(place, embedder="hashing") as ev:
        assert ev.verify().complete
    assert "Attached django_blog_article" in run("migrate")
    embed()
    assert titles(Article.evervec.search("cocoa")) == ["cocoa"]
