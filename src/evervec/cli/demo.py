"""`evervec demo`: index the documentation of this Python, kill a worker, and verify.

It uses real processes, as an application would: it saves records, starts a worker, kills it
in the middle of a batch, starts another one, edits and deletes records, and checks with
`verify` that nothing is missing, doubled or stale.
"""

from __future__ import annotations

import importlib
import inspect
import os
import shutil
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from evervec.cli.hits import passage
from evervec.cli.output import progress, say, say_text, styled
from evervec.cli.query_words import query_words
from evervec.facade import Evervec
from evervec.opening import open
from evervec.runtime.packages import install_command

MODULES = [
    "argparse", "array", "ast", "asyncio", "base64", "bisect", "bz2", "calendar", "cmath", "codecs",
    "collections", "collections.abc", "concurrent.futures", "configparser", "contextlib", "copy",
    "csv", "ctypes", "datetime", "decimal", "difflib", "dis", "email.message", "enum", "fileinput",
    "fnmatch", "fractions", "ftplib", "functools", "gc", "getpass", "gettext", "glob", "gzip",
    "hashlib", "heapq", "hmac", "html", "html.parser", "http.client", "http.cookies", "http.server",
    "imaplib", "importlib", "inspect", "io", "ipaddress", "itertools", "json", "keyword",
    "linecache", "locale", "logging", "logging.handlers", "lzma", "mailbox", "math", "mimetypes",
    "mmap", "multiprocessing", "multiprocessing.pool", "numbers", "operator", "os", "os.path",
    "pathlib", "pickle", "pkgutil", "platform", "plistlib", "poplib", "pprint", "profile", "pstats",
    "queue", "quopri", "random", "re", "reprlib", "sched", "secrets", "select", "selectors",
    "shelve", "shlex", "shutil", "signal", "smtplib", "socket", "socketserver", "sqlite3", "ssl",
    "stat", "statistics", "string", "struct", "subprocess", "symtable", "sys", "sysconfig",
    "tarfile", "tempfile", "textwrap", "threading", "time", "timeit", "tkinter", "token",
    "tokenize", "trace", "traceback", "tracemalloc", "types", "typing", "unicodedata", "unittest",
    "unittest.mock", "urllib.parse", "urllib.request", "uuid", "venv", "warnings", "wave",
    "weakref", "webbrowser", "xml.dom.minidom", "xml.etree.ElementTree", "xml.sax", "zipfile",
    "zlib",
]  # fmt: skip

QUESTIONS = (
    "wait until several workers have all arrived",
    "make text fit a narrow column",
    "ask for a password without showing it",
    "compare two versions of a text",
    "pick the few biggest items without sorting everything",
)


def main(keep: str = "evervec-demo.db", embedder: str | None = None) -> int:
    """Run the demo; return 0 if every check passed."""
    path = Path(keep)
    for old in (path, Path(f"{path}-wal"), Path(f"{path}-shm")):
        old.unlink(missing_ok=True)
    began = time.perf_counter()
    with open(path, embedder=embedder or "local", lease_seconds=2.0) as ev:
        if ev.embedder.dimensions == 0:
            say(f"the demo needs a model: {install_command('evervec[local]')}", err=True)
            return 1
        say_text(
            f"Model: {ev.embedder.model} ({ev.embedder.name}), on this machine. Store: {path}."
        )
        say_text("Nothing is downloaded, and nothing leaves this machine.\n")
        count = _save(ev)
        _embed_with_a_crash(ev, path, count)
        say_text("3. Search by meaning; the results share few words with the queries.")
        for question in QUESTIONS:
            _ask(ev, question)
        clean = _edit_and_delete(ev)
    say_text(f"\nDone in {time.perf_counter() - began:.0f} s. The store is kept; try:")
    evervec = os.path.relpath(sys.argv[0]) if "evervec" in Path(sys.argv[0]).name else "evervec"
    if shutil.which("evervec"):
        evervec = "evervec"
    say_text(f"  {evervec} --store {path} search 'how to pack files together'")
    say_text(f"  {evervec} --store {path} status")
    say_text(f"  {evervec} --store {path} doctor")
    return 0 if clean else 1


def _save(ev: Evervec) -> int:
    say_text("1. Save the documentation of this Python's standard library.")
    count = 0
    with progress("   saving") as bar:
        for _ in ev.add_many("doc", docstrings()):
            count += 1
            bar.advance()
    say_text(f"   {count} records are saved; text search finds them already.\n")
    return count


def _embed_with_a_crash(ev: Evervec, path: Path, count: int) -> None:
    say_text("2. Embed them in a worker process, and kill it in the middle of a batch.")
    with progress("   embedding", count) as bar:
        first = _worker(ev, path)
        done = _follow(ev, first, bar, 0, until=count // 3)
        first.send_signal(signal.SIGKILL)
        first.wait()
        stats = ev.queue.stats()
        held = stats.processing
        second = _worker(ev, path)
        _follow(ev, second, bar, done, until=count)
        second.wait()
    say_text(
        f"   Killed with SIGKILL after {done}, with {held} claimed; a second worker took over.\n"
    )


def _worker(ev: Evervec, path: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "evervec", "--store", str(path), "worker"]
    name = ev.embedder.name
    environment = {
        **os.environ,
        "EVERVEC_EMBEDDER": name,
        "EVERVEC_LEASE_SECONDS": "2",
        "EVERVEC_BATCH_SIZE": "128",
    }
    quiet = subprocess.DEVNULL
    return subprocess.Popen(command, env=environment, stdout=quiet, stderr=quiet)


def _follow(ev: Evervec, worker: subprocess.Popen[bytes], bar: Any, done: int, until: int) -> int:
    """Wait until `until` jobs are done, then terminate the worker if nothing is pending."""
    while done < until and worker.poll() is None:
        now = ev.queue.stats().done
        bar.advance(now - done)
        done = now
        time.sleep(0.1)
    if done >= until and ev.queue.stats().pending == 0:
        worker.terminate()
    return done


def _ask(ev: Evervec, question: str) -> None:
    began = time.perf_counter()
    hits = ev.search(question, k=1, mode="semantic")
    took = (time.perf_counter() - began) * 1000
    say_text(f"   {styled(question + '?', 'bold')}")
    for hit in hits:
        say_text(f"     {styled(hit.id, 'cyan')}  (similarity {hit.similarity:.2f}, {took:.0f} ms)")
        shown, _ = passage(hit.text, query_words(question, hit.text), 150)
        say_text(f"     {shown}")


def _edit_and_delete(ev: Evervec) -> bool:
    say_text("\n4. Edit a record, delete it, and verify that index and records agree.")
    with ev.worker():
        edited = ev.add(
            "doc", "Counts the bees in a hive by listening to their buzz.", id="heapq.nlargest"
        )
        found = ev.search("apiary population by sound", k=1, mode="semantic", after=edited)
        right = bool(found) and found[0].id == "heapq.nlargest"
        say_text(f"   edited:  'apiary population by sound' finds {found[0].id if found else None}")
        ev.delete("doc", "heapq.nlargest", wait=10)
        gone = all(hit.id != "heapq.nlargest" for hit in ev.search("counts bees in a hive"))
        say_text(f"   deleted: it is {'gone from every search' if gone else 'STILL THERE'}")
    report = ev.verify()
    state = "nothing missing, stale, orphaned or doubled" if report.complete else str(report)
    say_text(f"   verify:  {report.checked} records checked, {state}")
    return report.complete and right and gone


def docstrings() -> Iterator[dict[str, str]]:
    """The documentation of modules, classes, methods and functions, without duplicates."""
    seen: set[str] = set()
    for name in MODULES:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                module = importlib.import_module(name)
        except ImportError:
            continue  # some Pythons lack modules such as tkinter
        for id, thing in _public(module):
            documented = callable(thing) or isinstance(thing, ModuleType | property)
            text = inspect.getdoc(thing) if documented else None
            if text and len(text) >= 60 and id not in seen and text not in seen:
                seen.update((id, text))
                yield {"id": id, "title": id, "text": text[:1500]}


def _public(module: Any) -> Iterator[tuple[str, Any]]:
    yield module.__name__, module
    for name, thing in sorted(vars(module).items()):
        if name.startswith("_") or inspect.ismodule(thing):
            continue
        home = getattr(thing, "__module__", None) or module.__name__
        if home.split(".")[0].lstrip("_") != module.__name__.split(".")[0]:
            continue
        yield f"{module.__name__}.{name}", thing
        if inspect.isclass(thing):
            for member, value in sorted(vars(thing).items()):
                if not member.startswith("_"):
                    yield f"{module.__name__}.{name}.{member}", value
