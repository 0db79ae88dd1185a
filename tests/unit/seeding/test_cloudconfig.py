"""Of cloud-config nothing is said that may be secret."""

import pytest
from saltvirt.core.errors import BadArgument
from saltvirt.seeding import cloudconfig


@pytest.mark.parametrize(
    "text",
    [
        *('password: "s3cret', "a: b: s3cret", "password: @s3cret"),
        *("a: *s3cret", "a: !s3cret b", "- {s3cret"),
    ],
)
def test_of_user_data_that_is_no_yaml_it_is_said_where_and_not_what(text):
    with pytest.raises(BadArgument, match="user_data: is not YAML, line 2") as refused:
        cloudconfig.mapping("user_data", f"#cloud-config\n{text}")

    assert "s3cret" not in str(refused.value)
    assert refused.value.__cause__ is None
