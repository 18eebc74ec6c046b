"""The user's own files: ids, renames, what is skipped, and what a hit says of its place."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import evervec
from evervec.cli.files import COUNTED, FileRecords, known_folders
from evervec.cli.hits import passage
from evervec.cli.output import _Lines
from evervec.cli.own_files import own_files
from evervec.cli.query_words import better_place, query_words
from evervec.embedders.hashing import HashingEmbedder
from evervec.errors import InvalidArgument
from evervec.files.folder import snapshot, walk
from support.command import Run
from support.documents import write_pdf


class CountingEmbedder(HashingEmbedder):
    """Counts the texts that it embeds."""

    name = "counting"
    texts = 0

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.texts += len(texts)
        return super().embed(texts)


def ids(run: Run, folder: Path, kind: str = "doc") -> set[str]:
    with evervec.open(folder / "evervec.db", embedder="hashing") as ev:
        return {record.id for record in ev.records(kind)}


def sync(ev: evervec.Evervec, *named: Path, root: Path | None = None, kind: str = "doc",
         delete: bool = True) -> dict[str, int]:  # fmt: skip
    counts = dict.fromkeys(COUNTED, 0)
    adding = FileRecords(ev, kind, counts, quiet=True)
    adding.add([str(path) for path in named], str(root) if root else None, sync=delete)
    ev.process_all()
    return {what: count for what, count in counts.items() if count}


@pytest.fixture
def ev() -> Any:
    with evervec.open("memory:", embedder=CountingEmbedder(32)) as ev:
        yield ev


def test_an_id_is_the_path_below_the_folder_however_that_is_written(
    run: Run, notes: Path, tmp_path: Path
) -> None:
    run("add", "doc", "notes")
    expected = {"tea.md", "deep/rock.txt", "page.html"}
    assert ids(run, tmp_path) == expected
    (tmp_path / "link").symlink_to(notes)
    (tmp_path / "elsewhere").mkdir()
    for given in (
        "notes/",
        "./notes",
        str(notes),
        "link",
        "link/",
        "notes/../notes",
        "elsewhere/../notes",
    ):
        assert "3 unchanged" in run("add", "doc", given, "--sync").stdout, given
    for where, given in (
        (notes, "."),
        (notes / "deep", ".."),
        (tmp_path / "elsewhere", "../notes"),
    ):
        done = subprocess.run(
            [sys.executable, "-m", "evervec", "--store", tmp_path / "evervec.db", "add", "doc", given],
            cwd=where, env={**os.environ, "EVERVEC_EMBEDDER": "hashing"},
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert "3 unchanged" in done.stdout, given
    assert ids(run, tmp_path) == expected


def test_a_root_makes_ids_paths_below_it(run: Run, notes: Path, tmp_path: Path) -> None:
    run("add", "doc", "notes/deep", "notes/tea.md", "--root", ".")
    assert ids(run, tmp_path) == {"notes/deep/rock.txt", "notes/tea.md"}
    assert "not inside --root" in run("add", "doc", "notes", "--root", "notes/deep", code=2).stderr
    assert "no such folder" in run("add", "doc", "notes", "--root", "nowhere", code=2).stderr
    assert "--root needs files" in run("add", "doc", "--jsonl", "-", "--root", ".", code=2).stderr


def test_a_file_of_a_known_folder_keeps_its_id(ev: evervec.Evervec, notes: Path) -> None:
    assert sync(ev, notes, delete=False) == {"added": 3, "skipped": 1}
    assert sync(ev, notes / "deep") == {"unchanged": 1}
    assert sync(ev, notes / "deep" / "rock.txt", delete=False) == {"unchanged": 1}
    assert sync(ev, notes) == {"unchanged": 3, "skipped": 1}


def test_a_folder_inside_keeps_its_ids_when_the_one_above_is_added(
    ev: evervec.Evervec, notes: Path
) -> None:
    assert sync(ev, notes / "deep") == {"added": 1}
    assert sync(ev, notes) == {"added": 2, "unchanged": 1, "skipped": 1}
    assert {record.id for record in ev.records("doc")} == {"rock.txt", "tea.md", "page.html"}


def test_a_folder_is_synced_as_the_kind_that_its_files_have(run: Run, notes: Path) -> None:
    assert "3 added" in run("add", "note", str(notes)).stdout
    assert "3 unchanged" in run("sync", str(notes)).stdout
    assert "1 unchanged" in run("sync", str(notes / "deep")).stdout
    run("add", "other", str(notes))
    refused = run("sync", str(notes), code=2)
    assert "the kinds note, other: name one with --kind" in refused.stderr
    assert "3 unchanged" in run("sync", str(notes), "--kind", "note").stdout


def test_two_folders_of_a_kind_are_synced_apart(ev: evervec.Evervec, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    for folder in (one, two):
        folder.mkdir()
        (folder / f"{folder.name}.txt").write_text(f"text of {folder.name}")
    sync(ev, one)
    assert sync(ev, two) == {"added": 1}
    (two / "two.txt").unlink()
    assert sync(ev, two) == {"deleted": 1}
    assert [record.id for record in ev.records("doc")] == ["one.txt"]
    (two / "one.txt").write_text("another file of the same id")
    with pytest.raises(InvalidArgument, match="would both have the id 'one"):
        sync(ev, two)
    with pytest.raises(InvalidArgument, match="would both have the id"):
        sync(ev, one, two, kind="other")
    assert sync(ev, one, two, root=tmp_path, kind="other") == {"added": 2}


def test_a_moved_folder_is_the_same_folder(
    ev: evervec.Evervec, notes: Path, tmp_path: Path
) -> None:
    sync(ev, notes)
    before = ev.embedder.texts  # type: ignore[attr-defined]
    (tmp_path / "new").mkdir()
    notes.rename(tmp_path / "new" / "notes")
    assert sync(ev, tmp_path / "new" / "notes") == {"unchanged": 3, "skipped": 1}
    assert known_folders(ev, "doc")["notes"].path == str(tmp_path / "new" / "notes")
    assert ev.embedder.texts == before  # type: ignore[attr-defined]


def test_a_renamed_file_keeps_its_vectors(ev: evervec.Evervec, notes: Path) -> None:
    long = "\n\n".join(f"Paragraph {n} tells of tea, rain and stones. " * 9 for n in range(30))
    (notes / "long.txt").write_text(long)
    (notes / "copy.txt").write_text(long)
    sync(ev, notes)
    embedder: Any = ev.embedder
    before, found = embedder.texts, ev.vectors("doc", ["long.txt"])["long.txt"]
    assert len(found) > 3
    (notes / "long.txt").rename(notes / "deep" / "renamed.txt")
    (notes / "tea.md").rename(notes / "herbs.md")
    assert sync(ev, notes) == {"moved": 2, "unchanged": 3, "skipped": 1}
    assert embedder.texts == before
    moved = ev.vectors("doc", ["deep/renamed.txt"])["deep/renamed.txt"]
    assert np.allclose([v.vector for v in moved], [v.vector for v in found])
    assert ev.get("doc", "long.txt") is None
    assert ev.verify().complete
    # renamed and edited: it is embedded
    (notes / "herbs.md").rename(notes / "mint.md")
    (notes / "mint.md").write_text("# Mint\n\nIt grows anywhere.")
    assert sync(ev, notes) == {"added": 1, "unchanged": 4, "deleted": 1, "skipped": 1}
    assert embedder.texts == before + 1


def test_a_renamed_file_is_not_embedded_again_without_sync_either(
    ev: evervec.Evervec, notes: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sync(ev, notes)
    embedder: Any = ev.embedder
    before = embedder.texts
    (notes / "tea.md").rename(notes / "herbs.md")
    assert sync(ev, notes, delete=False) == {"added": 1, "unchanged": 2, "skipped": 1}
    # the same files with other ids
    assert sync(ev, notes, root=notes.parent, delete=False) == {"added": 3, "skipped": 1}
    assert embedder.texts == before
    assert {record.id for record in ev.records("doc")} >= {"tea.md", "herbs.md", "notes/herbs.md"}
    counts = dict.fromkeys(COUNTED, 0)
    FileRecords(ev, "doc", counts, quiet=False).add([str(notes)], str(notes.parent))
    assert (
        "4 records of these folders: the file was deleted or moved. Run the command with --sync"
        in (capsys.readouterr().err)
    )
    assert sync(ev, notes, root=notes.parent) == {"unchanged": 3, "deleted": 4, "skipped": 1}
    assert embedder.texts == before
    assert ev.verify().complete


def test_a_renamed_file_gets_no_vectors_of_a_text_that_its_record_has_now(
    ev: evervec.Evervec, notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody changes the record under the old path, after it was compared with the files."""
    sync(ev, notes)
    (notes / "tea.md").rename(notes / "zz.md")
    text = (notes / "zz.md").read_text()
    monkeypatch.setattr("evervec.cli.files._AT_ONCE", 1)

    def told(what: str, id: str) -> None:
        if (old := ev.get("doc", "tea.md")) is not None and old.text != "Granite is hard.":
            ev.add("doc", "Granite is hard.", id="tea.md", metadata=old.metadata)
            ev.process_all()

    adding = FileRecords(ev, "doc", dict.fromkeys(COUNTED, 0), quiet=True, told=told)
    adding.add([str(notes)], sync=True)
    ev.process_all()
    moved = ev.get("doc", "zz.md")
    assert moved is not None
    (found,) = ev.vectors("doc", ["zz.md"])["zz.md"]
    (wanted,) = HashingEmbedder(32).embed(ev.chunks("doc", moved.text, title=moved.title))
    assert moved.text in text
    assert np.allclose(found.vector, wanted)


def test_a_renamed_file_that_is_not_embedded_yet_is_embedded(
    ev: evervec.Evervec, notes: Path
) -> None:
    counts = dict.fromkeys(COUNTED, 0)
    FileRecords(ev, "doc", counts, quiet=True).add([str(notes)])
    (notes / "tea.md").rename(notes / "herbs.md")
    assert sync(ev, notes)["moved"] == 1
    assert ev.verify().complete
    assert ev.search("tea on hills", 1, kind="doc")[0].id == "herbs.md"


def test_a_file_that_cannot_be_read_now_keeps_its_record(
    ev: evervec.Evervec, notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync(ev, notes)
    read = Path.stat

    def stat(path: Path, **options: Any) -> os.stat_result:
        if path.name == "tea.md":
            raise PermissionError(13, "Permission denied")
        return read(path, **options)

    monkeypatch.setattr(Path, "stat", stat)
    assert sync(ev, notes) == {"unchanged": 2, "skipped": 2}
    assert ev.get("doc", "tea.md") is not None


def test_files_without_text_are_summed_up_and_bad_ones_are_named(run: Run, notes: Path) -> None:
    for name in ("a.png", "b.PNG", "c.zip"):
        (notes / name).write_bytes(b"\0")
    for name in ("empty.txt", "__init__.py"):
        (notes / name).write_text("")
    (notes / "old.txt").write_bytes(b"caf\xe9")
    (notes / "broken.pdf").write_bytes(b"no pdf")
    Path(os.fsdecode(os.fsencode(notes) + b"/\xff.txt")).write_text("named in another encoding")
    said = run("add", "doc", "notes")
    assert "skipped 3 files without text (2 png, 1 zip)" in said.stderr
    assert "skipped 2 empty files" in said.stderr
    assert "skipped notes/old.txt: not UTF-8 text: save it as UTF-8" in said.stderr
    assert "skipped notes/broken.pdf: not a readable PDF" in said.stderr
    assert "its name is not UTF-8" in said.stderr
    assert "3 added, 9 skipped" in said.stdout


def test_what_gitignore_excludes_is_left_out_unless_asked_for(run: Run, notes: Path) -> None:
    (notes / ".gitignore").write_text("*.html\n/deep/\n")
    assert "1 added" in run("add", "doc", "notes").stdout
    assert "2 added, 1 unchanged" in run("add", "doc", "notes", "--no-ignore").stdout
    assert "2 deleted" in run("sync", "notes").stdout
    assert "1 added" in run("add", "doc", "notes/page.html").stdout  # it is named itself


def test_a_hit_names_file_and_line_to_open(run: Run, notes: Path, tmp_path: Path) -> None:
    (notes / "garden.py").write_text("class Garden:\n    def water(self):\n        irrigate()\n")
    write_pdf(notes / "volcano.pdf", ["Lava.", "An eruption of magma."])
    run("add", "note", "notes")
    assert "note notes/garden.py:3 in class Garden > def water" in run("search", "irrigate").stdout
    assert "note notes/volcano.pdf page 2" in run("search", "eruption magma").stdout
    assert "note notes/deep/rock.txt:1" in run("search", "feldspar").stdout
    (hit,) = json.loads(run("search", "irrigate", "-k", "1", "--json").stdout)["hits"]
    assert hit["location"] == "notes/garden.py:3 in class Garden > def water"
    assert hit["explanation"] is None
    assert "notes/tea.md:1" in run("similar", "note", "garden.py").stdout
    run("add", "plain", "-", "--id", "7", input="Obsidian is glass.")
    (hit,) = json.loads(run("search", "obsidian", "--kind", "plain", "--json").stdout)["hits"]
    assert "location" not in hit
    (notes / "tea.md").unlink()  # where the file is not, its id is shown
    assert "note tea.md:1" in run("search", "tea assam").stdout


def test_a_hit_shows_the_place_that_has_the_words(run: Run, tmp_path: Path) -> None:
    """Not the chunk that is nearest in meaning, if only another one has the words."""
    body = "    total = first + second\n    return total * 2\n\n\n"
    names = [f"func_{number}" for number in range(1, 61)]
    (tmp_path / "big.py").write_text("".join(f"def {x}(first, second):\n{body}" for x in names))
    run("add", "code", "big.py")
    for number in (3, 37, 60):
        found = run("search", f"func_{number}").stdout
        assert f"big.py:{5 * number - 4} in def func_{number} " in found
        assert f"def func_{number}(first" in found
    (hit,) = json.loads(run("search", "func_37", "--json").stdout)["hits"]
    assert hit["location"] == "big.py:181 in def func_37"


def test_another_place_is_shown_only_if_it_has_more_of_the_query() -> None:
    text = "Undo a commit: reset it. " + "Filler of words. " * 100 + "A red_tea commit and undoing."
    chunk = "Filler of words. " * 10
    spots = better_place("how to undo commits", chunk, text, 240)
    assert spots is not None
    assert [text[a:b] for a, b in spots] == ["Undo", "commit"]
    assert better_place("undo commit", "undo only", text, 240) is not None
    assert better_place("undo filler", "undo only", text, 20) is None  # nowhere together
    assert better_place("undo", "undo only", text, 240) is None
    assert better_place("absent", chunk, text, 240) is None
    assert better_place("", chunk, text, 240) is None
    assert better_place("red_te", chunk, "a red_tea", 240) is None  # a part of a name
    spots = better_place("RED_tea", "red, and then tea", text, 240)
    assert spots is not None
    assert text[spots[0][0] :].startswith("red_tea")


def test_rows_of_attached_tables_are_shown(run: Run, tmp_path: Path) -> None:
    import sqlite3
    from contextlib import closing

    with closing(sqlite3.connect(tmp_path / "evervec.db")) as conn, conn:
        conn.execute("create table articles (id integer primary key, body text, author text)")
        conn.execute("insert into articles values (1, 'tea on hills', 'Ann')")
    run("attach", "articles", "--text", "body")
    run("worker", "--drain")
    assert "author Ann" in run("search", "tea", "--rows").stdout
    assert "author" not in run("search", "tea").stdout
    (hit,) = json.loads(run("search", "tea", "--rows", "--json").stdout)["hits"]
    assert hit["row"]["author"] == "Ann"


def test_a_passage_is_cut_between_words_around_those_of_the_query() -> None:
    text = "wordy " * 200 + "the   volcano\nerupts today " + "after " * 200
    shown, first = passage(text, query_words("volcanoes erupted", text), 80)
    assert text[first : first + 7] == "volcano"
    assert shown.startswith("…wordy ")
    assert shown.endswith(" after…")
    assert "the " in shown
    assert shown.count("volcano") == 1
    plain, start = passage("one two three", [], 8)
    assert (plain, start) == ("one two…", 0)
    assert passage("x" * 500, [], 80)[0] == "x" * 80 + "…"
    assert passage("", [])[0] == ""


def test_progress_in_lines_says_that_nothing_is_done_yet(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = _Lines("embedding", 700, "", every=0.0)
    lines.advance(0)
    assert capsys.readouterr().err == "embedding: 0 of 700\n"


def test_progress_tells_chunks_rate_and_time_left(capsys: pytest.CaptureFixture[str]) -> None:
    lines = _Lines("embedding", None, "chunks", every=0.0)
    lines._began -= 10
    lines.expect(1000, about=True)
    lines.advance(100)
    lines.expect(900)
    lines.advance(800)
    lines.end()
    first, last = capsys.readouterr().err.splitlines()
    assert first == "embedding: 100 of about 1,000 chunks, 10/s, 90 s left"
    assert last == "embedding: 900 of 900 chunks, 90/s"


def test_add_counts_chunks(run: Run, tmp_path: Path) -> None:
    text = "\n\n".join(f"Paragraph {n} tells of tea, rain and stones. " * 9 for n in range(30))
    (tmp_path / "long.txt").write_text(text)
    (line,) = [x for x in run("add", "doc", "long.txt").stderr.splitlines() if "chunks" in x]
    with evervec.open(tmp_path / "evervec.db", embedder="hashing") as ev:
        count = len(ev.vectors("doc", ["long.txt"])["long.txt"])
    assert count > 3
    assert f"embedding: {count} of {count} chunks" in line


def test_the_files_of_the_store_are_not_documents(run: Run, tmp_path: Path) -> None:
    (tmp_path / "tea.md").write_text("Tea grows on hills.")
    (tmp_path / "evervec.toml").write_text("batch_size = 8\n")
    (tmp_path / "other.db-wal").write_bytes(b"\0")
    with evervec.open(tmp_path / "evervec.db", embedder="hashing") as ev:  # so that it has a -wal
        said = run("add", "doc", ".")
        own = own_files(ev)
        before = snapshot(str(tmp_path), own=own)
        run("add", "note", "-", "--id", "1", input="text")
        assert snapshot(str(tmp_path), own=own) == before
    assert "1 added, 1 skipped" in said.stdout
    assert "skipped 1 file without text (1 db-wal)" in said.stderr
    assert "saving: 2 of 2" in said.stderr
    assert ids(run, tmp_path) == {"tea.md"}
    run("add", "doc", "evervec.toml")  # it is named itself
    assert "1 deleted" in run("sync", ".").stdout


def test_an_index_in_a_folder_is_no_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with evervec.open("a.db", index="lancedb://vectors", embedder="hashing") as ev:
        ev.add("note", "text", id="1")
        ev.process_all()
        assert list(walk(tmp_path, own=own_files(ev))) == []
    with evervec.open("duckdb:///b.duckdb", embedder="hashing") as ev:
        ev.add("note", "text", id="1")
        own = own_files(ev)
        assert not {path.name for path in walk(tmp_path, own=own)} & {"b.duckdb", "b.duckdb.wal"}


def test_watch_says_nothing_of_what_did_not_change(notes: Path, tmp_path: Path) -> None:
    watching = subprocess.Popen(
        [sys.executable, "-u", "-m", "evervec", "sync", ".", "--watch", "--every", "0.05"],
        cwd=notes, env={**os.environ, "EVERVEC_EMBEDDER": "hashing"},
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    assert watching.stdout is not None
    try:
        assert "3 added" in watching.stdout.readline()
        (notes / "new.bin").write_bytes(b"\0")  # seen, and skipped
        os.utime(notes / "tea.md", (1, 1))
        (notes / "herbs.md").write_text("Mint grows anywhere.")
        assert watching.stdout.readline().split() == ["added", "herbs.md"]
        assert "1 added" in watching.stdout.readline()
        (notes / "herbs.md").write_text("Mint grows anywhere, also in pots.")
        assert watching.stdout.readline().split() == ["updated", "herbs.md"]
        assert "1 updated" in watching.stdout.readline()
    finally:
        watching.kill()
        watching.communicate()


def test_watch_names_the_files_that_change(run: Run, notes: Path, tmp_path: Path) -> None:
    watching = subprocess.Popen(
        [sys.executable, "-u", "-m", "evervec", "sync", "notes", "--watch", "--every", "0.05"],
        cwd=tmp_path, env={**os.environ, "EVERVEC_EMBEDDER": "hashing"},
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    assert watching.stdout is not None
    try:
        assert "3 added" in watching.stdout.readline()
        (notes / "tea.md").rename(notes / "herbs.md")
        assert watching.stdout.readline().split() == ["moved", "tea.md", "→", "herbs.md"]
        assert "1 moved" in watching.stdout.readline()
        (notes / "page.html").unlink()
        assert watching.stdout.readline().split() == ["deleted", "page.html"]
        assert "1 deleted" in watching.stdout.readline()
        watching.send_signal(signal.SIGINT)
        assert watching.wait(30) == 0
    finally:
        watching.kill()
        watching.communicate()


def test_watch_says_once_why_a_new_file_is_skipped(notes: Path, tmp_path: Path) -> None:
    watching = subprocess.Popen(
        [sys.executable, "-u", "-m", "evervec", "sync", "notes", "--watch", "--every", "0.05"],
        cwd=tmp_path, env={**os.environ, "EVERVEC_EMBEDDER": "hashing"},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    assert watching.stdout is not None
    try:
        assert any("watching notes" in line for line in watching.stdout)
        (notes / "latin.txt").write_bytes("Tee für den Bären".encode("latin-1"))
        assert "skipped notes/latin.txt: not UTF-8 text" in watching.stdout.readline()
        (notes / "herbs.md").write_text("Mint grows anywhere.")
        assert watching.stdout.readline().split() == ["added", "herbs.md"]
    finally:
        watching.kill()
        watching.communicate()
