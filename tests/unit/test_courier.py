"""Jobs on their way to the worker endpoint: which endpoint can be used at all."""

import pytest

from evervec import Settings
from evervec.errors import SettingsError
from evervec.worker.push import Courier


@pytest.mark.parametrize("url", ["", "ftp://host", "http://ann:s3cret@host:port"])
def test_an_endpoint_that_cannot_be_called_is_refused_before_a_claim(url: str) -> None:
    with pytest.raises(SettingsError, match="jobs cannot be sent to") as raised:
        Courier(url, Settings())
    assert "s3cret" not in str(raised.value)
