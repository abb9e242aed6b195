"""What the site shows, read once for all of its tests and for the renderings that they start."""

import pytest

from repro.report.site import build


@pytest.fixture(scope="session")
def content():
    return build.content()
