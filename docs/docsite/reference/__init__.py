"""Reference pages made from the code. Each maker returns the Markdown of a page, or of a part that
a page of `docs/` takes in with `<!-- made from the code: NAME -->`."""

from collections.abc import Callable, Mapping

from docsite.reference import (
    alerts,
    command_line,
    error_classes,
    growth,
    http_api,
    python_api,
    settings,
)
from docsite.reference import metrics as metric_families

MAKERS: Mapping[str, Callable[[], str]] = {
    "python": python_api.library,
    "client": python_api.clients,
    "values": python_api.values,
    "protocols": python_api.protocols,
    "errors": error_classes.page,
    "cli": command_line.page,
    "http": http_api.page,
    "metrics": metric_families.page,
    "settings": settings.made_table,
    "alerts": alerts.made_table,
    "growth": growth.made_table,
}
