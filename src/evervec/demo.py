"""`make demo`: the way of a record in a few lines, with no model, key or server.

It uses the hashing embedder, which knows words and parts of words but no meaning.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from evervec.facade import Evervec, open
from evervec.model import Ticket

NOTES = {
    "backup": "The nightly backup copies the database to the second disk at two o'clock.",
    "restore": "To restore a backup, stop the service, copy the file back and start it again.",
    "coffee": "The coffee machine in the kitchen wants descaling on the first Monday.",
    "printer": "The printer on the third floor prints in colour; paper is in the cupboard.",
    "holiday": "Holidays are entered in the calendar, and your lead confirms them.",
}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "notes.db"
        with open(path, embedder="hashing") as ev, ev.worker():
            _show(ev)


def _show(ev: Evervec) -> None:
    notes = ({"id": id, "text": text} for id, text in NOTES.items())
    tickets = list(ev.add_many("note", notes))
    for ticket in tickets:
        ev.wait(ticket)
    print(f"added {len(tickets)} notes; a worker embedded them in the background")
    _ask(ev, "restoring the database backup")

    edited = ev.add("note", "Restoring a backup takes one command: restore-backup.", id="restore")
    print("\nedited one note; search waits for just that change")
    _ask(ev, "restoring the database backup", after=edited)

    ev.delete("note", "restore")
    print("\ndeleted it; it is gone from every search at once")
    _ask(ev, "restoring the database backup")

    report = ev.verify()
    stats = ev.queue.stats()
    print(f"\n{stats.done} jobs done, {stats.pending} waiting, {stats.failed} failed")
    print(f"verify: {report.checked} records checked, index {'clean' if report.clean else report}")


def _ask(ev: Evervec, question: str, after: Ticket | None = None) -> None:
    print(f"  search: {question}")
    for hit in ev.search(question, k=2, after=after):
        print(f"    {hit.relevance:.2f}  {hit.id:8} {hit.text}")


if __name__ == "__main__":
    main()
