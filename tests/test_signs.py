"""When nothing has moved for too long, by what two looks tell."""

import time

import pytest

from ddp_lab.kit.run.probe import Progress
from ddp_lab.kit.run.signs import Still

LIMIT = 0.2  # seconds: in a crowd a sleep takes a tenth more


def over(used, first=45.0, **state):
    """Tell whether it is over for ranks that have computed `used` seconds between."""
    looks = iter([Progress(3, 1.0, **state), Progress(3, 1.0 + used, **state)])
    still = Still(lambda: next(looks))
    time.sleep(LIMIT * 0.6)
    assert not still.over(LIMIT, busy=False, first=first)
    time.sleep(LIMIT * 0.6)
    return still.over(LIMIT, busy=False, first=first)


@pytest.mark.parametrize(
    "used, state, expected",
    [
        (1.0, {}, True),  # it computes, and completes no call
        (0.0, {"joining": True}, True),  # it waits for the others
        (1.0, {"joining": True}, False),  # its device is getting ready
        (0.0, {"starting": True}, False),  # it imports, from a slow disk
    ],
)
def test_who_starts_or_joins_has_time(used, state, expected):
    assert over(used, **state) == expected
    assert over(used, first=0.0, **state)
