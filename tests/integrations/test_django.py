"""Django: the suite on each database, and migrations, checks and an example in projects of their
own."""

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from urllib.request import Request, urlopen

import pytest

import evervec
from support.command import run_module
from support.postgres import DATABASES
from support.processes import until
from support.service import free_port

TESTS = Path(__file__).parents[1]
EXAMPLE = TESTS.parent / "examples" / "django_notes"


@pytest.fixture
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return DATABASES.create() if request.param == "postgres" else str(tmp_path / "site.db")


@pytest.mark.parametrize("url", ["sqlite", "postgres"], indirect=True)
def test_the_suite_passes(url: str, tmp_path: Path) -> None:
    file = TESTS / "integrations" / "django_suite.py"
    environ = {**os.environ, "DJANGO_SUITE_URL": url, "DJANGO_SUITE_FOLDER": str(tmp_path)}
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", str(file)],
        cwd=TESTS.parent, env=environ, check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout[-5000:]
    assert " passed" in ran.stdout
    assert "skipped" not in ran.stdout


class Project:
    """A project of one app, `shop`, in a folder. Each call of `run` is a process, which finds the
    models as they are written then."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self._url = url
        (folder / "shop" / "migrations").mkdir(parents=True)
        (folder / "shop" / "__init__.py").touch()
        (folder / "shop" / "migrations" / "__init__.py").touch()
        settings = f"""
            import sys
            sys.path += [{str(TESTS)!r}]
            from support.django_databases import database
            DATABASES = {{"default": database({url!r})}}
            INSTALLED_APPS = ["evervec.integrations.django", "shop"]
            EVERVEC = {{"EMBEDDER": "hashing"}}
            DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
        """
        (folder / "settings.py").write_text(dedent(settings))

    def models(self, text: str) -> None:
        head = "from django.db import models\nfrom evervec.integrations.django import SearchIndex\n"
        (self.folder / "shop" / "models.py").write_text(head + dedent(text))
        # Python takes compiled code for current if the file has the same size and second
        shutil.rmtree(self.folder / "shop" / "__pycache__", ignore_errors=True)

    def migration(self, name: str, after: str, operations: str) -> None:
        text = f"""
            from django.db import migrations, models
            from evervec.integrations.django.operations import AttachTable, DetachTable
            class Migration(migrations.Migration):
                dependencies = [("shop", {after!r})]
                operations = [{" ".join(operations.split())}]
        """
        (self.folder / "shop" / "migrations" / f"{name}.py").write_text(dedent(text))

    def run(self, *code: str, fails: bool = False) -> str:
        """What some code prints, after Django was set up."""
        head = """
            import django
            django.setup()
            from django.core.management import call_command as call
            from django.db import connection
            from shop.models import *
            from evervec.integrations.django.stores import STORES
            def embed(): STORES.get("default").process_all()
            def kinds(): return sorted(STORES.get("default").attachments.by_kind())
        """
        (self.folder / "program.py").write_text("".join(map(dedent, (head, *code))))
        ran = run_module(
            "program",
            folder=self.folder,
            environ={**os.environ, "DJANGO_SETTINGS_MODULE": "settings"},
            knows="django.core.management,django.db.migrations,psycopg",
        )
        assert (ran.returncode != 0) == fails, ran.stdout + ran.stderr
        return ran.stdout + (ran.stderr if fails else "")


ITEM = """
    class Item(models.Model):
        name = models.CharField(max_length={size})
        note = models.TextField(default="")
        {index}
"""
MADE = """
    call("makemigrations", "shop")
    call("migrate")
    call("check", databases=["default"], fail_level="WARNING")
    call("makemigrations", "shop", check_changes=True)
"""


@pytest.mark.parametrize("url", ["sqlite", "postgres"], indirect=True)
def test_migrations_carry_the_declaration_and_keep_the_table_attached(
    url: str, tmp_path: Path
) -> None:
    project = Project(tmp_path / "project", url)
    index = 'evervec = SearchIndex(text=["name"])'
    project.models(ITEM.format(size=50, index=index))
    assert "Attached shop_item as shop.item" in project.run(
        MADE, 'Item.objects.create(name="lamp")\nembed()\nassert Item.evervec.search("lamp")'
    )
    # a changed column: Django makes the table anew on SQLite, without its triggers
    project.models(ITEM.format(size=60, index=index))
    said = project.run(
        MADE,
        """
    Item.objects.update(name="desk")
    embed()
    assert Item.evervec.search("desk", mode="text")
    assert STORES.get("default").verify().complete
    """,
    )
    assert ("Attached shop_item" in said) == ("://" not in url)
    # a changed declaration makes a migration
    index = 'evervec = SearchIndex(text=["name", "note"], metadata=["name"])'
    project.models(ITEM.format(size=60, index=index))
    said = project.run(
        """
    Item.objects.update(note="made of oak")
    """
        + MADE,
        'embed()\nassert Item.evervec.search("oak", mode="text", filter={"name": "desk"})',
    )
    assert "0003_attach_item.py" in said
    assert "Attached shop_item" in said
    # back, and forth again
    project.run(
        """
    call("migrate", "shop", "0002")
    embed()
    assert not Item.evervec.search("oak", mode="text", stale=True)
    call("migrate", "shop", "zero")
    assert kinds() == [] and STORES.get("default").count() == 0
    call("migrate")
    assert kinds() == ["shop.item"]
    Item.objects.create(name="sofa")
    embed()
    assert Item.evervec.search("sofa")
    """
    )
    # a renamed field and model; what others attached is left alone
    project.migration(
        "0004_renamed", "0003_attach_item",
        """migrations.RenameField("item", "note", "remark"),
           migrations.RenameModel("Item", "Product"),
           AttachTable("Product", kind="shop.item", text=["name", "remark"])""",
    )  # fmt: skip
    index = 'evervec = SearchIndex(text=["name", "remark"], kind="shop.item")'
    changed = ITEM.format(size=60, index=index).replace("Item", "Product")
    project.models(changed.replace("note =", "remark ="))
    project.run(
        """
    call("migrate")
    call("makemigrations", check_changes=True)
    STORES.get("default").attach("shop_product", kind="by hand", text="name")
    Product.objects.update(remark="red velvet")
    embed()
    assert Product.evervec.search("velvet", mode="text")
    """
    )
    project.models(changed.replace("note =", "remark =").replace(index, ""))
    said = project.run(
        """
    call("makemigrations", "shop")
    call("migrate")
    assert kinds() == ["by hand"]
    assert STORES.get("default").count("shop.item") == 0
    """
    )
    assert "0005_detach_product.py" in said
    assert "Detached shop.item" in said


def test_a_migration_that_ended_before_its_table_was_attached_is_completed(tmp_path: Path) -> None:
    project = Project(tmp_path, str(tmp_path / "site.db"))
    project.models(ITEM.format(size=50, index='evervec = SearchIndex(text="name")'))
    project.run('call("makemigrations", "shop")')
    said = project.run(
        """
    from django.db.migrations.executor import MigrationExecutor
    executor = MigrationExecutor(connection)
    executor.migrate(executor.loader.graph.leaf_nodes())  # killed before `migrate` said it ended
    Item.objects.create(name="lamp")
    call("evervec_worker", drain=True)
    call("check", databases=["default"], fail_level="WARNING")
    """,
        fails=True,
    )
    assert "shop_item is not attached: run `manage.py migrate --database default`" in said
    assert "(evervec.W001) shop_item is not attached, so its changes are missed." in said
    project.run('call("migrate")\nembed()\nassert Item.evervec.search("lamp").get().name == "lamp"')


def test_a_model_that_is_deleted_leaves_nothing_behind(tmp_path: Path) -> None:
    project = Project(tmp_path, str(tmp_path / "site.db"))
    project.models(ITEM.format(size=50, index='evervec = SearchIndex(text="name")'))
    project.run(MADE, 'Item.objects.create(name="lamp")\nembed()')
    project.models("")
    project.run(MADE, 'assert kinds() == []\nassert STORES.get("default").count() == 0')


def test_a_table_that_cannot_be_attached_fails_the_migration_with_the_reason(
    tmp_path: Path,
) -> None:
    project = Project(tmp_path, str(tmp_path / "site.db"))
    project.models(ITEM.format(size=50, index='evervec = SearchIndex(text="name", kind="taken")'))
    said = project.run(
        """
    STORES.get("default").add("taken", "by another program")
    call("makemigrations", "shop")
    call("migrate")
    """,
        fails=True,
    )
    assert "shop_item was not attached: the kind 'taken' has records" in said


def test_an_app_without_migrations_is_attached_too(tmp_path: Path) -> None:
    project = Project(tmp_path, str(tmp_path / "site.db"))
    with (tmp_path / "settings.py").open("a") as settings:
        settings.write('MIGRATION_MODULES = {"shop": None}\n')
    project.models(ITEM.format(size=50, index='evervec = SearchIndex(text="name")'))
    said = project.run(
        'call("migrate", run_syncdb=True)\nItem.objects.create(name="lamp")\nembed()\n'
        'assert Item.evervec.search("lamp")'
    )
    assert "Attached shop_item as shop.item" in said


def test_checks_name_what_is_wrong_and_what_to_do(tmp_path: Path) -> None:
    project = Project(tmp_path, str(tmp_path / "site.db"))
    with (tmp_path / "settings.py").open("a") as settings:
        settings.write('EVERVEC["EMBEDER"] = "local"\n')
    project.models(
        """
    class Base(models.Model):
        name = models.TextField()
        tags = models.ManyToManyField("self")
        evervec = SearchIndex(text=["nam", "tags"], kind="x")
    class Child(Base):
        more = models.TextField()
        mine = SearchIndex(text=["name", "more"], kind="x")
    class Timed(models.Model):
        at = models.DateTimeField(primary_key=True)
        text = models.TextField()
        one = SearchIndex(text="text")
        two = SearchIndex(text="{text}!")
    class Priced(models.Model):
        price = models.DecimalField(max_digits=5, decimal_places=2, primary_key=True)
        text = models.TextField()
        evervec = SearchIndex(text="text")
    class Odd(models.Model):
        text = models.TextField(db_column="a.b")
        evervec = SearchIndex(text="About {text}")
    class OddProxy(Odd):
        more = SearchIndex(text="text")
        class Meta:
            proxy = True
    """
    )
    said = project.run('call("check")', fails=True)
    for part in (
        "(evervec.E001) unknown key 'EMBEDER' in EVERVEC: did you mean 'EMBEDDER'?",
        "shop.Base: (evervec.E003) SearchIndex names 'nam', which is not a field with a column.",
        "SearchIndex names 'tags', which is not",
        "HINT: Choose from id, name.",
        "shop.Child: (evervec.E004) SearchIndex names 'name', a column of the table of shop.Base.",
        "shop.Child: (evervec.E006) The kind 'x' is that of shop.Base too.",
        "shop.Timed: (evervec.E005) The model has several SearchIndexes: one, two.",
        "shop.Timed: (evervec.E007) The primary key is a DateTimeField",
        "shop.Priced: (evervec.E007) The primary key is a DecimalField",
        "shop.OddProxy: (evervec.E009) The model is a proxy",
        "shop.Odd: (evervec.E010) The column 'a.b' of 'text' cannot be in a template.",
    ):
        assert part in said
    with (tmp_path / "settings.py").open("a") as settings:
        settings.write('EVERVEC = {"EMBEDDER": "shop.nowhere.Embedder"}\n')
    assert "(evervec.E002)" in project.run('call("check")', fails=True)
    with (tmp_path / "settings.py").open("a") as settings:
        settings.write('EVERVEC = {"OPTIONS": {"lease": 3}}\n')
    assert "(evervec.E001)" in project.run('call("check")', fails=True)


def test_a_database_in_memory_says_what_to_use(tmp_path: Path) -> None:
    project = Project(tmp_path, ":memory:")
    project.models(ITEM.format(size=50, index='evervec = SearchIndex(text="name")'))
    said = project.run(
        'call("makemigrations", "shop")\ncall("migrate")\nItem.evervec.search("lamp")', fails=True
    )
    assert "is in memory" in said
    assert "evervec.integrations.django.test" in said


def test_a_worker_that_is_forked_off_opens_its_own_store(tmp_path: Path) -> None:
    project = Project(tmp_path, str(tmp_path / "site.db"))
    project.models(ITEM.format(size=50, index='evervec = SearchIndex(text="name")'))
    project.run(
        MADE,
        """
    Item.objects.create(name="lamp")
    embed()
    import os
    connection.close()
    if (child := os.fork()) == 0:
        os._exit(0 if Item.evervec.search("lamp").get().name == "lamp" else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert Item.evervec.search("lamp").count() == 1
    """,
    )


def test_the_example_tests_itself(tmp_path: Path) -> None:
    ran = manage("test", place=tmp_path)
    assert ran.wait(120) == 0
    assert manage("makemigrations", "--check", place=tmp_path).wait(120) == 0


def test_the_example_stays_searchable_while_its_worker_is_killed(tmp_path: Path) -> None:
    port, file = free_port(), tmp_path / "notes.db"
    assert manage("migrate", "-v0", place=tmp_path).wait(120) == 0
    server = manage("runserver", "--noreload", str(port), place=tmp_path)
    workers = [manage("evervec_worker", place=tmp_path)]
    try:
        with evervec.open(file, embedder="hashing") as ev:
            until(lambda: _answers(port), "the server to answer")
            _write(port, 0, 600)
            until(lambda: ev.queue.stats().done > 0, "the worker to begin")
            workers[0].kill()
            _write(port, 600, 1200)
            with sqlite3.connect(file) as other:  # another program, which knows nothing of Django
                other.execute("update notes_note set title = 'rewritten zebra' where id = 7")
                other.execute("delete from notes_note where id = 8")
            other.close()
            workers.append(manage("evervec_worker", place=tmp_path))
            until(lambda: ev.count("notes.note") == 1199 and _is_idle(ev), "the second worker")
            assert ev.verify().complete
        assert _found(port, "rewritten zebra")[0]["id"] == 7
        assert _found(port, "note 1100")[0]["title"] == "note 1100"
    finally:
        for process in (server, *workers):
            process.terminate()
            process.wait(60)


def manage(*args: str, place: Path) -> subprocess.Popen[bytes]:
    """Start a command of the example, with its database in a folder."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("EVERVEC_")}
    environ = {"EVERVEC_EMBEDDER": "hashing", "EVERVEC_LEASE_SECONDS": "1",
               "NOTES_DB": str(place / "notes.db")}  # fmt: skip
    return subprocess.Popen(
        [sys.executable, EXAMPLE / "manage.py", *args], cwd=EXAMPLE, env=clean | environ,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip


def _answers(port: int) -> bool:
    try:
        return _found(port, "anything") == []
    except OSError:
        return False


def _write(port: int, start: int, end: int) -> None:
    notes = [{"title": f"note {n}", "body": f"the body of {n}"} for n in range(start, end)]
    asked = Request(f"http://127.0.0.1:{port}/notes/", json.dumps(notes).encode())
    with urlopen(asked, timeout=60) as answer:
        assert len(json.load(answer)["ids"]) == end - start


def _found(port: int, query: str) -> list[dict[str, object]]:
    url = f"http://127.0.0.1:{port}/search/?q={query.replace(' ', '+')}"
    with urlopen(url, timeout=60) as answer:
        found: list[dict[str, object]] = json.load(answer)["notes"]
    return found


def _is_idle(ev: evervec.Evervec) -> bool:
    stats = ev.queue.stats()
    return stats.pending + stats.processing == 0
