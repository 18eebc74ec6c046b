"""The page of errors: each has an anchor with its own name in lower case, to which the `type` of a
problem document leads."""

from __future__ import annotations

import evervec
from docsite.reference.markdown import code, prose, sections, table
from docsite.reference.python_api import call
from evervec import errors
from evervec.server.problems import error_classes, status_of


def page() -> str:
    return sections(
        "# Errors",
        "Every error that evervec raises derives from `evervec.EvervecError`. A message says what "
        "happened, to what, and what to do. The service answers with a problem document (RFC 9457) "
        "whose `type` is `urn:evervec:` and the name of the class: look it up here. `evervec.Client` "
        "raises the same class again.",
        table(
            ("error", "HTTP status", "meaning"),
            (
                (f"[`{e.__name__}`](#{e.__name__.lower()})", _status(e), _first(e))
                for e in error_classes()
            ),
        ),
        *(_section(each) for each in error_classes()),
    )


def _section(error: type[errors.EvervecError]) -> str:
    bases = [base.__name__ for base in error.__bases__ if base is not Exception]
    facts = [f"`urn:evervec:{error.__name__}`, HTTP status {_status(error)}."]
    if bases:
        facts.append(f"A subclass of {', '.join(map(code, bases))}.")
    if error.__name__ not in evervec.__all__:
        facts.append(f"Import it from `{error.__module__}`.")
    return sections(
        f"## {error.__name__}",
        prose(error.__doc__),
        " ".join(facts),
        call(error.__name__, error.__name__, error.__init__),
    )


def _first(error: type[errors.EvervecError]) -> str:
    return prose(error.__doc__).split("\n\n")[0]


def _status(error: type[errors.EvervecError]) -> str:
    if error is errors.AccessDenied:  # a client raises it for these responses
        return "401 or 403"
    return str(status_of(error))
