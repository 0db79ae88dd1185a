"""Images on a host: fetched, listed, removed when nobody uses them, and made."""
