"""The routes of the service, one file per subject.

A route reads its request into a value, calls the library through `server.service`, and answers with
the shape of a value (`server.answers`).
"""
