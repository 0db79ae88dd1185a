"""A guest gets its identity before it boots for the first time (on its host)."""
