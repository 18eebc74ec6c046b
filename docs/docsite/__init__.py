"""Builds the documentation site: `make docs`.

`pages` gathers the Markdown of the site: the pages of `docs/`, and reference pages made from the
code by `reference`. `site` lets Zensical render them, adds the Markdown of each page and
`llms.txt`, and `links` checks the result. Nothing is fetched from the network.
"""
