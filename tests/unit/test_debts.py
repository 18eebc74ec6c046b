"""What a job has to do that is asked for again: a debt never shrinks."""

import pytest

from evervec.model.jobs import Op
from evervec.queue.transitions import Work, debt

BOX = Work(Op.OPEN, "box")
NEWER = Work(Op.OPEN, "newer box", 7)
ROW = Work(Op.LOAD)
OLDER_ROW = Work(Op.LOAD, None, 3)
NEWEST_ROW = Work(Op.LOAD, None, 9)


@pytest.mark.parametrize("asked", list(Op))
@pytest.mark.parametrize(
    ("owed", "wanted"),
    [
        ([BOX], BOX),
        ([ROW], ROW),
        ([BOX, ROW], ROW),
        ([ROW, BOX], ROW),
        ([BOX, OLDER_ROW], ROW),
        ([OLDER_ROW, BOX], ROW),
        ([BOX, BOX], BOX),
        ([BOX, NEWER], NEWER),
        ([NEWER, BOX], NEWER),
        ([NEWER, NEWEST_ROW], ROW),
        ([NEWEST_ROW, NEWER], ROW),
        ([NEWER, OLDER_ROW], NEWER),
        ([OLDER_ROW, NEWER], NEWER),
    ],
)
def test_what_was_to_be_read_stays_to_be_read(asked: Op, owed: list[Work], wanted: Work) -> None:
    assert debt(asked, owed) == wanted


@pytest.mark.parametrize("asked", list(Op))
def test_without_debts_it_is_as_asked(asked: Op) -> None:
    assert debt(asked, []) == Work(asked)


@pytest.mark.parametrize("owed", [[], [BOX], [ROW], [BOX, ROW]])
def test_a_row_that_is_to_be_loaded_now_is_loaded(owed: list[Work]) -> None:
    assert debt(Op.EMBED, owed, is_loaded=True) == ROW
