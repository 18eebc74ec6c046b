"""Texts that records have by turns."""

import hashlib


def passage(about: str) -> str:
    """A paragraph that fills a chunk by itself; no other has its words."""
    letters = hashlib.sha256(about.encode()).hexdigest()
    return " ".join(letters[at : at + 6] for at in range(0, 42, 6)) + "."


def by_turns(id: str, edition: int) -> list[str]:
    """The texts that a record has by turns: some share paragraphs, and one is always new."""
    one, two, three, four = (passage(f"{id} {n}") for n in range(4))
    return [
        "\n\n".join((one, two, three)),
        "\n\n".join((one, two, three)),
        "\n\n".join((one, four, three)),
        "\n\n".join((four,)),
        "\n\n".join((three, one, two, four)),
        passage(f"{id} edition {edition}"),
    ]
