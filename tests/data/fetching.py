"""Images, fetched as virt.init does, and web servers that they come from."""

import http.server
import threading
from contextlib import contextmanager

from saltvirt.core import writelimit
from saltvirt.storage.images import cache


def obtain(host, image, heard=None, **more):
    """Obtain an image as virt.init does."""
    progress = (lambda *figures: heard.append(figures)) if heard is not None else lambda *_: None
    given = {"saltenv": "base", "settings": host, "opts": {}, "progress": progress, **more}
    return cache.obtain(str(image), **given)


@contextmanager
def least_free(folder):
    """Yield a list that has, after the block, how few bytes were free in a folder meanwhile."""
    out, over = [writelimit.read_space(folder)[1]], threading.Event()

    def look():
        while not over.wait(0.005):
            out[0] = min(out[0], writelimit.read_space(folder)[1])

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield out
    finally:
        over.set()
        thread.join()


@contextmanager
def served(handler, tls=None, at="127.0.0.1"):
    """Serve on this machine alone, with TLS if it is given; yield the address."""
    server = http.server.ThreadingHTTPServer((at, 0), handler)
    if tls:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"http://{at}:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
