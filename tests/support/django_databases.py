"""Stores' URLs as entries of Django's DATABASES."""

from typing import Any

from psycopg.conninfo import conninfo_to_dict

_KEYS = {"NAME": "dbname", "USER": "user", "PASSWORD": "password", "HOST": "host", "PORT": "port"}


def database(url: str) -> dict[str, Any]:
    if "://" not in url:
        return {"ENGINE": "django.db.backends.sqlite3", "NAME": url}
    known = conninfo_to_dict(url)
    return {
        "ENGINE": "django.db.backends.postgresql",
        "OPTIONS": {
            "application_name": "it's a 100% test",
            "options": "-c statement_timeout=60000",
        },
        **{name: str(known.get(key) or "") for name, key in _KEYS.items()},
    }
