"""Notes with search: python notes.py add TITLE BODY [AUTHOR] | python notes.py search QUERY"""

import sys

from models import STORE, Note, Session

import evervec


def add(title: str, body: str, author: str | None = None) -> None:
    """Plain SQLAlchemy: the application knows nothing of evervec here."""
    with Session.begin() as session:
        session.add(Note(title=title, body=body, author=author))


def search(query: str, k: int = 5) -> None:
    """The best notes, as objects of the session."""
    with evervec.open(STORE) as ev, Session() as session:
        hits = ev.search(query, k, kind="note")
        notes = {note.id: note for note in session.query(Note).filter(Note.id.in_(
            [int(hit.id) for hit in hits]
        ))}  # fmt: skip
        for hit in hits:
            if note := notes.get(int(hit.id)):  # it may have been deleted a moment ago
                print(f"{hit.relevance:.2f} {note.id} {note.title} ({note.author or 'unknown'})")


if __name__ == "__main__":
    command, *given = sys.argv[1:]
    add(*given) if command == "add" else search(" ".join(given))
