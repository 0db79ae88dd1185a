"""An error in cloud-config shows nothing that may be secret."""

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
def test_user_data_that_is_no_yaml_is_refused_by_its_line_without_its_content(text):
    with pytest.raises(BadArgument, match="user_data: is not YAML, line 2") as excinfo:
        cloudconfig.mapping("user_data", f"#cloud-config\n{text}")

    assert "s3cret" not in str(excinfo.value)
    assert excinfo.value.__cause__ is None
