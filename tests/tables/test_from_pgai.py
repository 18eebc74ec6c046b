"""From pgai: against a schema that pgai itself has installed, filled as its worker fills it."""

import json
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest
from numpy.typing import NDArray

import evervec
from evervec import Evervec, InvalidArgument
from evervec.embedders.hashing import HashingEmbedder
from evervec.integrations.pgai import take_over, vectorizers

App = psycopg.Connection[Any]
MODEL, DIMENSIONS = "nomic-embed-text", 64
BLOG = "create table blog (id int primary key, title text, contents text, author text)"


class Nomic(HashingEmbedder):
    """The model that pgai used, as far as these tests are concerned."""

    def __init__(self, model: str = MODEL, dimensions: int = DIMENSIONS) -> None:
        super().__init__(dimensions)
        self.name, self.model = "ollama", model
        self.texts: list[str] = []

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.texts += texts
        return super().embed(texts)


@pytest.fixture
def pgai(app: App, url: str) -> App:
    """A database with pgai, a table, and a vectorizer that its worker has finished."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its own imports
        import pgai as installer

        app.execute("create extension vector")
        installer.install(url)
    app.execute(BLOG)
    return app


def vectorize(app: App, template: str = "$chunk", **given: str) -> None:
    options = {
        "loading": "ai.loading_column('contents')",
        "embedding": f"ai.embedding_ollama('{MODEL}', {DIMENSIONS})",
        "chunking": "ai.chunking_character_text_splitter(128, 10)",
        "formatting": f"ai.formatting_python_template('{template}')",
        "destination": "ai.destination_table('blog_vectors')",
        **given,
    }
    named = ", ".join(f"{name} => {value}" for name, value in options.items())
    app.execute(f"select ai.create_vectorizer('blog'::regclass, {named})".encode())


def write(app: App, id: int, *chunks: str, title: str = "Title") -> None:
    text = "\n\n".join(chunks)
    app.execute("insert into blog values (%s, %s, %s, 'me')", (id, title, text))


def embed(app: App, id: int, *chunks: str) -> None:
    """What pgai's worker does with a row."""
    vectors = HashingEmbedder(DIMENSIONS).embed(chunks)
    for n, (chunk, vector) in enumerate(zip(chunks, vectors, strict=True)):
        app.execute(
            "insert into blog_vectors_store (id, chunk_seq, chunk, embedding) "
            "values (%s, %s, %s, %s::real[]::vector)",
            (id, n, chunk, [3 * float(x) for x in vector]),  # of another length, as some are
        )
    app.execute("delete from ai._vectorizer_q_1 where id = %s", (id,))


@pytest.fixture
def ev(url: str) -> Iterator[Evervec]:
    with evervec.open(url, embedder=Nomic()) as opened:
        yield opened


def embedded(ev: Evervec) -> list[str]:
    assert isinstance(ev.embedder, Nomic)
    return ev.embedder.texts


def test_vectors_are_taken_over_and_nothing_is_embedded_again(pgai: App, ev: Evervec) -> None:
    vectorize(pgai)
    write(pgai, 1, "tea grows on hills", "and likes rain")
    embed(pgai, 1, "tea grows on hills", "and likes rain")
    write(pgai, 2, "granite is a rock")
    embed(pgai, 2, "granite is a rock")
    write(pgai, 3, "never embedded by pgai")
    report = take_over(ev, metadata=["author"])
    assert (report.kind, report.rows, report.taken, report.left) == ("blog", 3, 2, 1)
    assert report.sample == pytest.approx(1.0, abs=1e-5)
    sampled = len(embedded(ev))
    ev.process_all()
    assert embedded(ev)[sampled:] == ["never embedded by pgai"]
    assert ev.verify().clean
    (hit,) = ev.search("and likes rain", k=1, mode="semantic")  # the second of its chunks
    assert (hit.id, hit.metadata) == ("1", {"author": "me"})
    assert hit.similarity == pytest.approx(1.0, abs=1e-5)
    # an unchanged row embeds nothing, a changed one is cut in evervec's way
    before = len(embedded(ev))
    pgai.execute("update blog set contents = contents")
    ev.backfill()
    ev.process_all()
    assert len(embedded(ev)) == before
    pgai.execute("update blog set contents = 'granite is hard' where id = 2")
    pgai.execute("delete from blog where id = 1")
    ev.process_all()
    assert embedded(ev)[before:] == ["granite is hard"]
    assert {r.id: r.text for r in ev.records("blog")} == {
        "2": "granite is hard", "3": "never embedded by pgai",
    }  # fmt: skip
    assert ev.verify().clean


def test_what_pgai_had_not_caught_up_with_is_embedded(pgai: App, ev: Evervec) -> None:
    vectorize(pgai)
    for n in range(4):
        write(pgai, n, f"text of row {n}")
        embed(pgai, n, f"text of row {n}")
    pgai.execute("update blog set contents = contents || ' and more' where id = 1")  # in its queue
    pgai.execute("set session_replication_role = replica")
    pgai.execute("update blog set contents = 'nobody noticed' where id = 2")
    pgai.execute("reset session_replication_role")
    report = take_over(ev)
    assert (report.taken, report.left) == (2, 2)
    ev.process_all()
    assert ev.verify().clean
    assert ev.get("blog", 1).text == "text of row 1 and more"  # type: ignore[union-attr]
    again = take_over(ev)
    assert (again.taken, again.left) == (4, 0), "what is there already stays"


def test_a_dry_run_and_a_run_leave_pgai_as_it_was_until_told(pgai: App, ev: Evervec) -> None:
    def its_own() -> list[Any]:
        tables = ("ai.vectorizer", "ai._vectorizer_q_1", "public.blog_vectors_store")
        rows = [pgai.execute(f"select * from {name}").fetchall() for name in tables]
        triggers = "select tgname, tgenabled from pg_trigger where tgname like '_vectorizer%'"
        return [*rows, sorted(pgai.execute(triggers).fetchall())]

    vectorize(pgai)
    write(pgai, 1, "tea grows on hills")
    embed(pgai, 1, "tea grows on hills")
    write(pgai, 2, "waits in its queue")
    before = its_own()
    report = take_over(ev, dry_run=True)
    assert (report.taken, report.left) == (1, 1)
    assert any("create trigger" in statement for statement in report.sql)
    assert ev.attachments.attached() == []
    assert ev.records("blog") == []
    take_over(ev)
    assert its_own() == before
    assert take_over(ev, drop=True).dropped
    left = "select count(*) from pg_trigger where tgname like '_vectorizer%'"
    assert pgai.execute(left).fetchone() == (0,)
    assert pgai.execute("select count(*) from blog_vectors_store").fetchone() == (1,)
    pgai.execute("insert into blog values (3, 'new', 'still followed', 'me')")
    ev.process_all()
    assert len(ev.records("blog")) == 3


def test_a_template_is_seen_through_and_told(pgai: App, ev: Evervec) -> None:
    vectorize(pgai, "Blog ${title}: $chunk.")
    write(pgai, 1, "tea grows (on) hills", title="Tea")
    embed(pgai, 1, "Blog Tea: tea grows (on) hills.")
    report = take_over(ev)
    assert report.taken == 1
    assert any("adds title to every chunk" in note for note in report.notes)
    (hit,) = ev.search("Blog Tea", k=1, mode="semantic")
    assert (hit.text, hit.title) == ("tea grows (on) hills", "Tea")
    assert ev.verify().clean


@pytest.mark.parametrize(
    ("embedder", "why"),
    [
        (Nomic(model="another"), "all rows are embedded again"),
        (Nomic(dimensions=32), "(32): all rows are embedded again"),
    ],
    ids=["model", "dimensions"],
)
def test_vectors_of_another_model_are_not_taken(
    pgai: App, url: str, embedder: Nomic, why: str
) -> None:
    vectorize(pgai)
    write(pgai, 1, "tea grows on hills")
    embed(pgai, 1, "tea grows on hills")
    with evervec.open(url, embedder=embedder) as ev:
        report = take_over(ev)
        assert (report.taken, report.left) == (0, 1)
        assert any(why in note for note in report.notes)
        ev.process_all()
        assert embedder.texts == ["tea grows on hills"]
        assert ev.verify().clean


def test_vectors_that_only_bear_the_models_name_are_not_taken(pgai: App, ev: Evervec) -> None:
    vectorize(pgai)
    write(pgai, 1, "tea grows on hills")
    embed(pgai, 1, "tea grows on hills")
    pgai.execute("update blog_vectors_store set chunk = 'quite another text'")
    report = take_over(ev)
    assert report.taken == 0
    assert any("another model made them" in note for note in report.notes)


def test_what_cannot_be_taken_over_is_said(pgai: App, ev: Evervec, url: str) -> None:
    with pytest.raises(InvalidArgument, match="vectorizers of this database are none"):
        take_over(ev)
    vectorize(pgai, loading="ai.loading_uri('contents')")
    vectorize(pgai, destination="ai.destination_table('others')")
    with pytest.raises(InvalidArgument, match="public_blog_vectors_store, public_others_store"):
        take_over(ev)
    with pytest.raises(InvalidArgument, match="reads files, not a column"):
        take_over(ev, "public_blog_vectors_store")
    with (
        evervec.open("memory:", embedder=Nomic()) as elsewhere,
        pytest.raises(InvalidArgument, match="is not PostgreSQL"),
    ):
        take_over(elsewhere)


def test_the_older_forms_of_its_definition_are_read(pgai: App) -> None:
    """Before 0.10 the chunker named the column, and the row itself the table of vectors."""
    pgai.execute("drop schema ai cascade")
    pgai.execute("create schema ai")
    pgai.execute("""create table ai.vectorizer (id int, source_schema name, source_table name,
        source_pk jsonb, target_schema name, target_table name, view_schema name, view_name name,
        trigger_name name, queue_schema name, queue_table name, config jsonb, disabled boolean)""")
    config = {
        "version": "0.9.0",
        "chunking": {"chunk_column": "contents", "implementation": "character_text_splitter"},
        "embedding": {"implementation": "openai", "model": "text-embedding-3-small",
                      "dimensions": 1536},
        "formatting": {"implementation": "python_template", "template": "$chunk"},
    }  # fmt: skip
    key = [{"attnum": 1, "pknum": 1, "attname": "id", "typname": "int4"}]
    pgai.execute(
        "insert into ai.vectorizer values (7, 'public', 'blog', %s, 'public', 'old_store', "
        "'public', 'old', 't', 'ai', 'q', %s, false)",
        (json.dumps(key), json.dumps(config)),
    )
    (found,) = vectorizers(pgai)
    assert (found.name, found.column, found.target) == ("7", "contents", '"public"."old_store"')
    assert (found.model, found.dimensions, found.queue) == (
        "text-embedding-3-small", 1536, '"ai"."q"',
    )  # fmt: skip


def test_on_the_command_line(pgai: App, url: str) -> None:
    vectorize(pgai)
    write(pgai, 1, "tea grows on hills")
    embed(pgai, 1, "tea grows on hills")

    def run(*options: str) -> str:
        command = ["--store", url, "--embedder", "hashing", "import-pgai", *options]
        done = subprocess.run(
            [sys.executable, "-m", "evervec", *command], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    said = run("--dry-run")
    assert '"public"."blog" would be attached as blog' in said
    assert "0 of 1 rows would be imported" in said
    assert json.loads(run("--json"))["left"] == 1


@pytest.mark.long
@pytest.mark.parametrize("release", ["0.10.5", "0.11.4"])
def test_vectors_of_earlier_releases_are_taken_over(
    app: App, url: str, ev: Evervec, tmp_path: Path, release: str
) -> None:
    """Those that can be installed from packages; 0.9 came with an extension of the server."""
    pip = (sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(tmp_path))
    subprocess.run([*pip, f"pgai=={release}"], check=True)
    app.execute("create extension vector")
    install = f"import pgai; assert pgai.__version__ == {release!r}; pgai.install({url!r})"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    subprocess.run([sys.executable, "-W", "ignore", "-c", install], check=True, env=environment)
    app.execute(BLOG)
    vectorize(app)
    write(app, 1, "tea grows on hills", "and likes rain")
    embed(app, 1, "tea grows on hills", "and likes rain")
    write(app, 2, "never embedded by pgai")
    report = take_over(ev, metadata=["author"])
    assert (report.rows, report.taken, report.left) == (2, 1, 1)
    ev.process_all()
    assert ev.verify().clean
    (hit,) = ev.search("and likes rain", k=1, mode="semantic")
    assert (hit.id, hit.metadata) == ("1", {"author": "me"})
