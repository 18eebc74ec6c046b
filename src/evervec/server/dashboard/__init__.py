"""The dashboard: server-rendered pages for people who run evervec.

A page is a handler that reads the store and a template that shows it (`pages/`, `templates/`).
`page_routes` turns a handler into HTML, a live stream, NDJSON or CSV, and a form into an action;
`session` signs people in. Pages call the same library methods as the HTTP routes.
"""
