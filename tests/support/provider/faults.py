"""What goes wrong, in the words of the services."""

import math

from support.provider.behaviour import Behaviour, hits
from support.provider.formats import INVALID_INPUT, Asked, Complaint
from support.provider.http import Answer
from support.provider.vectors import in_json, sound, vectors, worded

PAGE = Answer(
    502,
    b"<html>\r\n<head><title>502 Bad Gateway</title></head>\r\n<body>\r\n"
    b"<center><h1>502 Bad Gateway</h1></center>\r\n<hr><center>nginx</center>\r\n"
    b"</body>\r\n</html>\r\n",
    "text/html",
)
BUSY = "server busy, please try again.  maximum pending requests exceeded"


def check_key(given: str, behaviour: Behaviour) -> None:
    if behaviour.key is None or given == f"Bearer {behaviour.key}":
        return
    if not given:
        raise Complaint(401, "You didn't provide an API key.")
    message = (
        f"Incorrect API key provided: {given.removeprefix('Bearer ')}. You can find your API key "
        "at https://platform.openai.com/account/api-keys."
    )
    raise Complaint(behaviour.key_status, message, code="invalid_api_key")


def failure(path: str, behaviour: Behaviour) -> Complaint:
    if not path.startswith("/v1"):
        message = 'do embedding request: Post "http://127.0.0.1:34567/embedding": EOF'
        return Complaint(behaviour.fail_status, BUSY if behaviour.fail_status == 503 else message)
    message = "The server had an error while processing your request. Sorry about that!"
    if behaviour.fail_status == 503:
        message = "The engine is currently overloaded, please try again later."
    return Complaint(behaviour.fail_status, message, type="server_error")


def refusal(path: str, behaviour: Behaviour) -> Complaint:
    too_long = "the input length exceeds the context length"
    usual = INVALID_INPUT if path.startswith("/v1") else too_long
    return Complaint(behaviour.refuse_status, behaviour.refuse_words or usual)


def rows_of(asked: Asked, behaviour: Behaviour) -> list[tuple[int, str]]:
    """Place and vector of each text, as the answer is to have them."""
    form = {"in_base64": asked.in_base64 and behaviour.base64}
    write = worded if behaviour.words else sound
    rows = list(enumerate(write(asked.taken, asked.dimensions, asked.length, **form)))
    triggers = (behaviour.wrong_dimensions, behaviour.nan, behaviour.zero)
    spoils = any(hits(trigger, asked.texts) for trigger in triggers)
    for at, text in enumerate(asked.texts if spoils else ()):
        wrong, nan, zero = (hits(trigger, [text]) for trigger in triggers)
        if wrong or nan or zero:
            dimensions = asked.dimensions // 2 or 2 if wrong else asked.dimensions
            row = vectors([asked.taken[at]], dimensions, asked.length)
            if zero:
                row[:] = 0.0
            if nan:
                row[0, 0] = math.nan
            rows[at] = at, in_json(row, **form)[0]
    if hits(behaviour.wrong_count, asked.texts):
        rows = rows[:-1]
    return rows[::-1] if behaviour.shuffled else rows
