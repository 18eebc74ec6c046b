"""The handlers of the pages, one module for each subject."""

from evervec.server.dashboard.pages import (
    audit,
    bulk,
    failures,
    jobs,
    keys,
    map,
    overview,
    records,
    search,
    tables,
    tenants,
    verify,
    versions,
    visit,
    workers,
)

_MODULES = (
    audit, bulk, failures, jobs, keys, map, overview, records, search, tables, tenants, verify,
    versions, visit, workers,
)  # fmt: skip
"""`bulk` before `jobs`, whose path of one job would match"""
PAGES = tuple(module.router for module in _MODULES)
