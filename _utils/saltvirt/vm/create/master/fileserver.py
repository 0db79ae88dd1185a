"""Digests of images on the master's file server, which spare the hosts a request."""

import logging
import re
import threading
from collections.abc import Iterable, Mapping
from typing import Any

from salt.fileserver import Fileserver

log = logging.getLogger(__name__)
# Without what Salt allows beside a path: an environment, or text behind a bar.
_PATH = re.compile(r"salt://([^?|]+)")
_HASH = "sha256"


class Images:
    """The digests of the file server's images; each image is looked up once."""

    def __init__(self, opts: Mapping[str, Any]) -> None:
        self._opts, self._lock = opts, threading.Lock()
        self._server: Fileserver | None = None
        self._digests_by_path: dict[tuple[str, str], str | None] = {}

    def digests(self, images: Iterable[str], saltenv: str) -> dict[str, str]:
        """Return ``{image: digest}`` of images; a host looks up missing ones itself."""
        with self._lock:
            digests_by_image = {image: self._digest(image, saltenv) for image in images}
        return {image: digest for image, digest in digests_by_image.items() if digest}

    def _digest(self, image: str, saltenv: str) -> str | None:
        path = _PATH.fullmatch(image)
        if path is None:
            return None
        key = saltenv, path[1]
        if key not in self._digests_by_path:
            self._digests_by_path[key] = self._look_up(*key)
        return self._digests_by_path[key]

    def _look_up(self, saltenv: str, path: str) -> str | None:
        try:
            self._server = self._server or Fileserver(dict(self._opts))
            answer = self._server.file_hash({"path": path, "saltenv": saltenv})
        except Exception as exc:  # a backend may raise anything; the host asks then, and reports it
            log.warning("the file server does not say what salt://%s is: %s", path, exc)
            return None
        is_known = isinstance(answer, dict) and answer.get("hash_type") == _HASH
        return str(answer["hsum"]) if is_known and answer.get("hsum") else None
