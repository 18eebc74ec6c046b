"""Writes the small files that come with a model."""

import json
from pathlib import Path


def write_json(folder: Path, name: str, content: object) -> None:
    (folder / name).write_text(json.dumps(content), encoding="utf-8")
