"""Django: models that are searched by meaning, and stay so whatever changes their tables.

Add `evervec.integrations.django` to INSTALLED_APPS, declare a `SearchIndex` on a model, and run
`makemigrations` and `migrate`: triggers in the database then log every change of the model's table.
It calls the facade only; `stores` opens the store of a database, `search` is where models begin.
"""

from evervec.errors import EvervecError
from evervec.runtime.packages import install_command

try:
    import django
except ImportError as error:
    raise EvervecError(f"Django is not installed: {install_command('evervec[django]')}") from error

from evervec.integrations.django.declaration import SearchIndex

__all__ = ["SearchIndex"]

if django.VERSION < (5, 2):
    raise EvervecError(f"Django {django.__version__} is too old: install Django 5.2 or newer")
