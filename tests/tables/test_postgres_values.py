"""Keys and columns of all types, whatever a session has set, and names of all kinds."""

from typing import Any

import psycopg

import evervec
from evervec import Evervec
from support.world import ScriptedEmbedder

App = psycopg.Connection[Any]


def texts(ev: Evervec, kind: str = "item") -> dict[str, str]:
    ev.process_all()
    report = ev.verify()
    assert report.clean, report
    return {record.id: record.text for record in ev.records(kind, limit=1000)}


KEYS = {
    "bigint": ("9223372036854775807", "1", "-7"),
    "uuid": ("7f0a1e3e-0000-4000-8000-000000000001", "7f0a1e3e-0000-4000-8000-000000000002",
             "7f0a1e3e-0000-4000-8000-000000000003"),
    "date": ("2024-12-31", "0044-03-15 BC", "infinity"),
    "timestamptz": ("2024-12-31 23:59:59.123456+02", "-infinity", "2024-06-01 00:00:00+00"),
    "numeric": ("1.0", "1.10", "NaN"),
    "boolean": ("true", "false"),
    "float8": ("0.1", "1e300", "-0.30000000000000004"),
    "bytea": (r"\x00ff", r"\x61", r"\x"),
    "interval": ("1 day", "3 years 2 mons", "-00:00:01"),
    "char(4)": ("ab", "abcd", "x"),
    "mood": ("happy", "sad"),
    "code": ("A-1", "B-2"),
    "text": ("with space", 'quote"d', "日本\n"),
}  # fmt: skip


def test_keys_of_every_type_are_the_same_in_every_session(app: App, ev: Evervec) -> None:
    app.execute("create type mood as enum ('happy', 'sad')")
    app.execute("create domain code as text check (value ~ '-')")
    for type, (first, *_) in KEYS.items():
        app.execute(f'create table "of {type}" (k {type} primary key, body text)')
        app.execute(f'insert into "of {type}" values (%s, %s)', (first, "before"))
        ev.attach(f'"of {type}"', kind=type, id="k", text="body")
    for setting in ("datestyle = 'SQL, DMY'", "timezone = 'Asia/Tokyo'", "intervalstyle = iso_8601",
                    "extra_float_digits = -5", "bytea_output = escape"):  # fmt: skip
        app.execute(f"set {setting}")
    for type, (_, *others) in KEYS.items():
        for n, key in enumerate(others):
            app.execute(f'insert into "of {type}" values (%s, %s)', (key, f"text {n}"))
    for type, keys in KEYS.items():
        assert len(texts(ev, type)) == len(keys), type
        app.execute(f"update \"of {type}\" set body = 'changed' where body = 'before'")
        app.execute(f"delete from \"of {type}\" where body = 'text 0'")
    for type, keys in KEYS.items():
        left = texts(ev, type)
        assert len(left) == len(keys) - 1, type
        assert "changed" in left.values(), type


def test_equal_keys_that_are_written_differently_are_two_ids(app: App, ev: Evervec) -> None:
    app.execute("create table items (k numeric primary key, body text)")
    ev.attach("items", kind="item", id="k", text="body")
    app.execute("insert into items values (1.0, 'text')")
    assert set(texts(ev)) == {"1.0"}
    app.execute("update items set k = 1.00")
    assert set(texts(ev)) == {"1.00"}


def test_columns_of_every_type_become_text_and_metadata(app: App, ev: Evervec) -> None:
    app.execute("create type pair as (a int, b text)")
    app.execute("create domain doc as json")
    app.execute("""create table items (id int primary key, body jsonb, j json, d doc, tags text[],
                   raw bytea, at timestamptz, day date, p pair, price numeric, js json[],
                   spot point, span int4range, f float8, ok boolean, wait interval)""")  # fmt: skip
    watched = [row[0] for row in app.execute(
        "select attname from pg_attribute where attrelid = 'items'::regclass and attnum > 0")]  # fmt: skip
    ev.attach("items", kind="item", text="body", metadata=watched)
    app.execute("""insert into items values (1, '{"word": "tea", "n": [1]}', '[1,2]', '{"x": 1}',
        '{a,b}', '\\x00ff', '2024-01-01 02:00+02', 'infinity', '(1,two)', 1.50,
        array['{"y": 2}'::json], '(1,2)', '[1,5)', 'NaN', true, '1 day')""")
    app.execute("set timezone = 'Asia/Tokyo'")
    assert texts(ev) == {"1": '{"n": [1], "word": "tea"}'}
    record = ev.get("item", 1)
    assert record is not None
    assert record.metadata == {
        "id": 1, "body": {"word": "tea", "n": [1]}, "j": [1, 2], "d": {"x": 1}, "tags": ["a", "b"],
        "raw": "00ff", "at": "2024-01-01T00:00:00+00:00", "day": "infinity", "p": "(1,two)",
        "price": 1.5, "js": [{"y": 2}], "spot": "(1,2)", "span": "[1,5)", "f": "nan", "ok": True,
        "wait": "1 day",
    }  # fmt: skip
    for column, value in (("j", "'[3]'"), ("d", "'{}'"), ("spot", "'(3,4)'"), ("js", "'{}'"),
                          ("p", "'(2,x)'"), ("day", "'2024-01-01'")):  # fmt: skip
        app.execute(f"update items set {column} = {value}")
        assert app.execute("select count(*) from evervec.changes").fetchone() == (1,), column
        texts(ev)
    assert ev.get("item", 1).metadata["day"] == "2024-01-01"  # type: ignore[union-attr]


def test_an_id_that_is_no_key_does_not_stop_the_others(app: App, ev: Evervec) -> None:
    app.execute("create table items (id int primary key, body text)")
    ev.attach("items", kind="item", text="body")
    ev.queue.enqueue("item", "not a number")
    app.execute("insert into items select n, 'text' from generate_series(1, 5) as n")
    assert len(texts(ev)) == 5
    assert ev.queue.stats().failed == 0


def test_names_with_schemas_quotes_and_letters_of_any_script(
    app: App, ev: Evervec, url: str
) -> None:
    app.execute('create schema "My App"')
    app.execute('create table "My App"."Straße.""x""" ("Id" int primary key, "größe" text)')
    app.execute('set search_path = "My App", public')
    ev.attach('"My App"."Straße.""x"""', kind="näme", id="Id", text="größe")
    app.execute("""insert into "Straße.""x""\" values (1, 'text')""")
    assert texts(ev, "näme") == {"1": "text"}
    app.execute("create schema one")
    app.execute("create table one.items (id int primary key, body text)")
    app.execute("create table items (id int primary key, body text)")
    ev.attach("one.items", kind="one", text="body")
    app.execute("insert into one.items values (1, 'ours')")
    app.execute("insert into items values (1, 'not ours')")
    # a worker to whom the bare name means another table
    elsewhere = f"{url}&options=-csearch_path%3Dpublic"
    with evervec.open(elsewhere, embedder=ScriptedEmbedder()) as other:
        assert texts(other, "one") == {"1": "ours"}


def test_a_hit_whose_row_python_cannot_hold_stays_without_it(app: App, ev: Evervec) -> None:
    app.execute("create table days (id integer primary key, body text, day date)")
    app.execute("insert into days values (1, 'of tea', 'infinity'), (2, 'of tea', '2024-01-01')")
    ev.attach("days", kind="day", text="body")
    ev.process_all()
    assert {hit.id: hit.row is None for hit in ev.search("tea", rows=True)} == {
        "1": True, "2": False
    }  # fmt: skip
