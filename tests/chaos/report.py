"""The tables that are printed, and kept in the documentation."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from chaos.judging import SORTS
from chaos.storm import Storm

_BEGIN, _END = "<!-- chaos: begin -->", "<!-- chaos: end -->"
_NONE = "-"


def faults_of(storm: Storm) -> list[str]:
    """What was done to a pair."""
    rows = [
        (name, str(count), _seconds(storm.recovery.longest.get(name)))
        for name, count in sorted(storm.injected.items())
    ]
    rows.append(("end of a lap", _NONE, _seconds(storm.recovery.longest.get("end of a lap"))))
    return _table(("fault", "times", "longest recovery, s"), rows)


def verdicts(storms: Iterable[Storm]) -> list[str]:
    """What came of it."""
    head = (
        "pair", "minutes", "faults", "writes acknowledged", "without an answer", "table changes",
        "migration steps", "records at the end", *SORTS, "dead letters", "longest recovery, s", "oracle", "verify",
    )  # fmt: skip
    rows = []
    for storm in storms:
        verdict = storm.verdict
        rows.append((
            storm.pair.name, f"{storm.seconds / 60:.1f}", str(storm.injected.total()),
            str(verdict.acknowledged), str(verdict.unknown), str(storm.table_changes),
            str(storm.migration_steps), str(verdict.records), *(str(verdict.counts[sort]) for sort in SORTS),
            str(len(storm.dead)), _seconds(max(storm.recovery.longest.values(), default=None)),
            verdict.oracle, verdict.verify,
        ))  # fmt: skip
    return _table(head, rows)


def page(storms: Sequence[Storm], when: str, how: str) -> str:
    lines = [f"Run on {when} by `{how}`.", "", *verdicts(storms)]
    for storm in storms:
        lines += ["", f"### {storm.pair.name}", "", *faults_of(storm)]
    return "\n".join(lines)


def write(path: Path, content: str) -> None:
    """Put it between the two marks of a page."""
    text = path.read_text(encoding="utf-8")
    before, begin, rest = text.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not (begin and end):
        raise ValueError(f"{path} lacks {_BEGIN} or {_END}")
    path.write_text(f"{before}{begin}\n{content}\n{end}{after}", encoding="utf-8")


def _seconds(found: float | None) -> str:
    return _NONE if found is None else f"{found:.1f}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]

    def line(cells: Sequence[str]) -> str:
        padded = (cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
        return f"| {' | '.join(padded)} |"

    return [line(head), f"|{'|'.join('-' * (width + 2) for width in widths)}|", *map(line, rows)]
