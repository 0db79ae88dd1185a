"""Records: what is written down before it is done."""
