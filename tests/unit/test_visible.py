"""Whatever a text contains, a terminal and a log show its characters, not their effect."""

import json
import logging
import os
import re
import stat
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import evervec
from evervec.cli import output
from evervec.settings import Settings
from evervec.telemetry.visible import visible_line, visible_text, without_secrets

SOURCE = Path(evervec.__file__).parent
LOGGERS = sorted(
    {
        name
        for path in SOURCE.rglob("*.py")
        for name in re.findall(r'getLogger\("(evervec[\w.]*)"\)', path.read_text())
    }
)
HOSTILE = "a\x1b[2J\x1b]0;title\x07\x9b8m\x7f\u202egpj.exe\u2028b\r"


@given(st.text())
def test_a_line_has_no_control_characters(text: str) -> None:
    shown = visible_line(text)
    assert not any(ord(c) < 32 or 127 <= ord(c) < 160 or c in "\u2028\u202e" for c in shown)
    assert len(shown.splitlines()) <= 1
    assert visible_line(shown) == shown


def test_what_is_hidden_is_written_out() -> None:
    shown = r"a\x1b[2J\x1b]0;title\x07\x9b8m\x7f\u202egpj.exe\u2028b\r"
    assert visible_line(HOSTILE) == visible_text(HOSTILE) == shown
    assert visible_text("one\n\ttwo") == "one\n\ttwo"
    assert visible_line("one\n\ttwo") == r"one\n\ttwo"
    assert visible_line("Grüße 你好 🙂") == "Grüße 你好 🙂"


def test_styles_are_ours_alone(capsys: pytest.CaptureFixture[str]) -> None:
    output.say(f"{output.styled(HOSTILE, 'bold')} {HOSTILE}")
    output.print_table(["head"], [[HOSTILE]])
    output.print_json({"text": HOSTILE})
    output.say_text(HOSTILE)
    printed = capsys.readouterr().out
    assert not set(printed) & set("\x1b\x9b\x07\x7f\r\u202e\u2028")
    assert r"\x1b[2J" in printed


def test_json_stays_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_json({"text": HOSTILE})
    assert json.loads(capsys.readouterr().out) == {"text": HOSTILE}


@pytest.fixture
def log() -> Iterator[StringIO]:
    """What a program's own handler writes, by its own format."""
    written = StringIO()
    handler = logging.StreamHandler(written)
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    loggers = [logging.getLogger("evervec"), logging.getLogger("evervec.server")]
    for logger in loggers[:1]:
        logger.addHandler(handler)
    yield written
    for logger in loggers[:1]:
        logger.removeHandler(handler)


@pytest.mark.parametrize("name", LOGGERS)
def test_a_log_line_cannot_be_forged(name: str, log: StringIO) -> None:
    assert {"evervec", "evervec.access", "evervec.mcp"} <= set(LOGGERS)
    logging.getLogger(name).error("kind %s is odd", "a\nERROR disk is full")
    try:
        raise ValueError("first\nERROR disk is full")
    except ValueError:
        logging.getLogger(name).exception("it failed")
    lines = log.getvalue().splitlines()
    assert [line for line in lines if line.startswith("ERROR")] == [
        r"ERROR kind a\nERROR disk is full is odd",
        "ERROR it failed",
    ]


def test_urls_are_shown_without_their_secrets() -> None:
    assert without_secrets("https://me:secret@host:1/path?key=secret") == "https://…@host:1/path"
    assert without_secrets("me:secret@host:11434") == "…@host:11434"
    assert without_secrets("/data/a@b.db") == "/data/a@b.db"
    settings = Settings(
        openai_url="https://me:secret@host/v1",
        redis_url="redis://:secret@host",
        openai_key="secret",
    )
    assert "secret" not in repr(settings).replace("cron_secret", "").replace("worker_secret", "")
    assert "openai_url='https://…@host/v1'" in repr(settings)


@pytest.mark.parametrize(
    ("store", "index"),
    [
        ("{}/store.db", None),
        ("duckdb:///{}/store.duckdb", None),
        ("{}/store.db", "lancedb://{}/vectors"),
        ("{}/store.db", "qdrant-edge://{}/vectors"),
    ],
)
def test_what_a_store_makes_is_its_owners_alone(
    tmp_path: Path, store: str, index: str | None
) -> None:
    before = os.umask(0o022)
    try:
        where = index.format(tmp_path) if index else None
        with evervec.open(store.format(tmp_path), index=where, embedder="hashing") as ev:
            ev.add("note", "a secret")
            ev.process_all()
            made = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    finally:
        os.umask(before)
    made.pop("store.duckdb.wal", None)  # DuckDB's affair: the command line's umask covers it
    assert all(mode & 0o077 == 0 for mode in made.values()), made
