"""<graphics> and the <video> it needs."""

from saltvirt.arguments import refuse_unknown_keys
from saltvirt.errors import BadArgument
from saltvirt.xml import tag

_KEYS = {"type", "port", "tls_port", "listen", "password", "keymap"}


def vnc(settings):
    """Return the ``graphics`` mapping of ``enable_vnc=True`` under the ``virt:vnc`` options."""
    refuse_unknown_keys("virt:vnc", settings, {"listen", "password", "keymap"})
    listen = {"type": "address", "address": settings.get("listen", "127.0.0.1")}
    return {"type": "vnc", "listen": listen, **{
        key: settings[key] for key in ("password", "keymap") if settings.get(key)}}  # fmt: skip


def elements(graphics):
    """Return <graphics> and <video>; without a listen address it is 127.0.0.1, never all."""
    if not graphics or str(graphics.get("type", "none")).lower() == "none":
        return []
    refuse_unknown_keys("graphics", graphics, _KEYS)
    kind = graphics["type"]
    port = graphics.get("port")
    listen = graphics.get("listen") or {}
    if not isinstance(listen, dict):
        listen = {"address": listen}
    password = graphics.get("password")
    if kind == "vnc" and password is not None and len(str(password)) > 8:
        # The protocol cuts it: a longer one would be weaker than it looks.
        raise BadArgument("graphics:password", "VNC uses only 8 characters; give at most 8")
    attributes = {
        "type": kind,
        "port": port,
        "autoport": None if kind in ("sdl", "egl-headless") else not port,
        "tlsPort": graphics.get("tls_port"),
        "passwd": password,
        "keymap": graphics.get("keymap"),
    }
    listener = None
    if kind in ("vnc", "spice", "rdp"):
        listen_type = listen.get("type", "address")
        address = listen.get("address", "127.0.0.1") if listen_type == "address" else None
        listener = tag("listen", {"type": listen_type, "address": address})
    return [
        tag("graphics", attributes, listener),
        tag("video", None, tag("model", {"type": "virtio" if kind == "egl-headless" else "vga"})),
    ]
