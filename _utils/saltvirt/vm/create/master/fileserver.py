"""Digests of images on the master's file server, which spare the hosts a request."""

import logging
import re
import threading
from collections.abc import Mapping
from typing import Any

from salt.fileserver import Fileserver

from saltvirt.vm import profiles, spec

log = logging.getLogger(__name__)
# Without what Salt allows beside a path: an environment, or text behind a bar.
_PATH = re.compile(r"salt://([^?|]+)")
_HASH = "sha256"


class Images:
    """The digests of the file server's images; each image is looked up once."""

    def __init__(self, opts: Mapping[str, Any]) -> None:
        self._opts, self._lock = opts, threading.Lock()
        self._server: Fileserver | None = None
        self._known: dict[tuple[str, str], str | None] = {}

    def of(self, kwargs: Mapping[str, Any]) -> dict[str, str]:
        """
        Return ``{image: digest}`` of a call's images; a host looks up missing ones itself.

        kwargs
            The keyword arguments of ``virt.init``.
        """
        saltenv = kwargs.get("saltenv", spec.OPTIONS["saltenv"])
        with self._lock:
            texts = {image for image in profiles.images(kwargs) if isinstance(image, str)}
            digests_by_image = {image: self._digest(image, saltenv) for image in texts}
        return {image: digest for image, digest in digests_by_image.items() if digest}

    def _digest(self, image: str, saltenv: object) -> str | None:
        path = _PATH.fullmatch(image)
        if path is None or not isinstance(saltenv, str):
            return None
        key = saltenv, path[1]
        if key not in self._known:
            self._known[key] = self._asked(*key)
        return self._known[key]

    def _asked(self, saltenv: str, path: str) -> str | None:
        try:
            self._server = self._server or Fileserver(dict(self._opts))
            answer = self._server.file_hash({"path": path, "saltenv": saltenv})
        except Exception as exc:  # a backend may raise anything; the host asks then, and reports it
            log.warning("the file server does not say what salt://%s is: %s", path, exc)
            return None
        is_known = isinstance(answer, dict) and answer.get("hash_type") == _HASH
        return str(answer["hsum"]) if is_known and answer.get("hsum") else None
