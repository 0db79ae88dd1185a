"""The edge to disk images: fetch, validate, cache by digest, clone."""
