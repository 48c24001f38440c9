"""The fixtures of this scenario."""

import pytest


@pytest.fixture(scope="session", autouse=True)
def _proved(lab):
    """The nodes come from images, in which a model is another file than the one that was hashed."""
    status, output = lab.playbook("site", "--tags", "model", "--skip-tags", "preflight")
    assert status == 0, output
