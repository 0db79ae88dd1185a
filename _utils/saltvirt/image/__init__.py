"""The edge to disk images: fetch, judge, cache by digest, clone."""
