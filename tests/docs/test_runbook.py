"""Every alert has its section in the runbook, and leads to it."""

import inspect
import re

from docsite.pages import DOCS
from docsite.reference import alerts
from evervec.maintenance import housekeeping, stream_alerts

RUNBOOK = (DOCS / "runbook.md").read_text()


def _section(heading: str) -> str:
    return RUNBOOK.partition(f" {heading}\n")[2].partition("\n#")[0].strip()


def test_every_rule_for_prometheus_has_a_section_and_a_link_to_it() -> None:
    for rule in alerts.rules():
        assert _section(rule["alert"]), rule["alert"]
        link = rule["annotations"]["runbook_url"]
        assert link.endswith(f"/docs/runbook.md#{rule['alert'].lower()}")


def test_every_alert_that_evervec_raises_has_a_section() -> None:
    source = "".join(map(inspect.getsource, (housekeeping, stream_alerts)))
    names = re.findall(r'Problem\(\s*f?"([a-z]+)', source)
    assert {"failed", "lag", "table"} <= set(names)
    for name in names:
        assert _section(f"Alert {name}"), name
