"""The static site: every page of the project in both languages, and the claims table that ties them together.

`claims` collects what is known about each published figure; `pages` lists the pages; `build` writes them. Pages are
`Document`s like the Markdown reports, so this package adds only what a site needs: navigation, links, the home page.
"""
