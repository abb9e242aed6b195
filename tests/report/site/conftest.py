"""What the site shows, read once for all of its tests."""

import pytest

from repro.report.site.pages import Content


@pytest.fixture(scope="session")
def content():
    return Content.load()
