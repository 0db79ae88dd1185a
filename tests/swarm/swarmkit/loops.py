"""The event loop of Salt's channels: asyncio's on 3008, on 3006 the Tornado in Salt."""

import asyncio

import salt.version

IS_3006 = salt.version.__version__.startswith("3006")


class _Asyncio:
    def __init__(self):
        self.io = asyncio.new_event_loop()
        asyncio.set_event_loop(self.io)
        self._tasks = set()

    def spawn(self, function, *words):
        task = self.io.create_task(function(*words))
        # The loop itself holds it only weakly.
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    sleep = staticmethod(asyncio.sleep)
    turn = staticmethod(asyncio.Lock)

    def on_readable(self, descriptor, call):
        self.io.add_reader(descriptor, call)

    def forget(self, descriptor):
        self.io.remove_reader(descriptor)

    def hear(self, channel, got):
        channel.on_recv(got)

    def run(self):
        self.io.run_forever()


class _Tornado:
    def __init__(self):
        import salt.ext.tornado.gen
        import salt.ext.tornado.ioloop
        import salt.ext.tornado.locks

        self.io = salt.ext.tornado.ioloop.IOLoop.current()
        self.sleep = salt.ext.tornado.gen.sleep
        self.turn = salt.ext.tornado.locks.Lock

    def spawn(self, function, *words):
        self.io.spawn_callback(function, *words)

    def on_readable(self, descriptor, call):
        self.io.add_handler(descriptor, lambda *_: call(), self.io.READ)

    def forget(self, descriptor):
        self.io.remove_handler(descriptor)

    def hear(self, channel, got):
        channel.on_recv(lambda payload: self.io.spawn_callback(got, payload))

    def run(self):
        self.io.start()


def loop():
    """Return the loop of this line of Salt: ``io`` is what channels take."""
    return _Tornado() if IS_3006 else _Asyncio()
