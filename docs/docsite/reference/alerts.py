"""The table of alert rules for Prometheus, from `deploy/prometheus/alerts.yaml`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from docsite.reference.markdown import code, table

RULES = Path(__file__).parents[3] / "deploy" / "prometheus" / "alerts.yaml"


def rules() -> list[dict[str, Any]]:
    """The alert rules, in the order of the file."""
    groups = yaml.safe_load(RULES.read_text("utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def made_table() -> str:
    return table(
        ("alert", "severity", "when", "for"),
        (
            (
                f"[{rule['alert']}](#{rule['alert'].lower()})",
                rule["labels"]["severity"],
                code(rule["expr"]),
                rule.get("for", "at once"),
            )
            for rule in rules()
        ),
    )
