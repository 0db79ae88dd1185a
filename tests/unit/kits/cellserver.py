"""A salt-api for tests: a real server with TLS and prepared answers."""

import contextlib
import json
import socket
import ssl
import threading

import authorities

OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


def certified(folder):
    """Create a certificate for a server at 127.0.0.1 in a folder; return its TLS context."""
    texts = authorities.of_address("127.0.0.1")
    for name, text in zip(("ca.pem", "api.crt", "api.key"), texts, strict=True):
        (folder / name).write_text(text)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "api.crt", folder / "api.key")
    return context


def _request(connection):
    """Read a complete request and return it."""
    text = b""
    while b"\r\n\r\n" not in text:
        text += connection.recv(65536)
    head, _sign, body = text.partition(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].split()[0])
    while len(body) < length:
        body += connection.recv(65536)
    return head + b"\r\n\r\n" + body


@contextlib.contextmanager
def serving(context, *answers):
    """Answer one connection after the other; yield the port and the requests."""
    requests = []
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(5)

        def serve():
            for answer in answers:
                with contextlib.suppress(OSError):
                    plain, _address = listening.accept()
                    plain.settimeout(5)
                    with context.wrap_socket(plain, server_side=True) as connection:
                        requests.append(_request(connection))
                        answer(connection)

        thread = threading.Thread(target=serve)
        thread.start()
        yield listening.getsockname()[1], requests
        thread.join()


def saying(body, head=OK):
    """Return a function that sends this answer."""
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    return lambda connection: connection.sendall(
        head + b"Content-Length: %d\r\n\r\n" % len(text) + text
    )
