"""A light minion: Salt's own channels, matchers and modules, and nothing else of a minion."""

import os
import signal
import traceback

import salt.channel.client
import salt.loader
import salt.pillar

from swarmkit import conf, faults, work

_SEND_S = 60
_AGAIN_S = 1
_UP = conf.ROOT / "up"


class Peer:
    """One host: how it is reached, and the jobs that it is at."""

    def __init__(self, opts, loop, turn, *, is_alone):
        self.opts, self._loop, self._turn = opts, loop, turn
        self._jobs = {}
        self._private = (conf.HOSTS / opts["id"] / "pki/minion.pem").read_text()
        own = {
            "saltutil.find_job": self._find_job,
            "saltutil.is_running": lambda _fun: list(map(self._said, self._jobs)),
            "saltutil.running": lambda: list(map(self._said, self._jobs)),
            "saltutil.term_job": lambda jid: self._end(jid, signal.SIGTERM),
            "saltutil.kill_job": lambda jid: self._end(jid, signal.SIGKILL),
        }
        self._functions = work.functions(opts, own, is_alone=is_alone)
        self._matchers = None

    async def up(self):
        """Connect, again and again until the master is there, and say so."""
        while True:
            try:
                await self._connect()
                break
            except Exception:  # whatever kept it from the master: a minion tries again
                traceback.print_exc()
                await self._loop.sleep(_AGAIN_S)
        (_UP / self.opts["id"]).touch()

    async def _connect(self):
        self._published = salt.channel.client.AsyncPubChannel.factory(
            self.opts, io_loop=self._loop.io
        )
        await self._published.connect()
        self._master = salt.channel.client.AsyncReqChannel.factory(self.opts, io_loop=self._loop.io)
        connecting = self._master.connect()
        if connecting is not None:
            await connecting
        # The master learns the grains by it.
        pillar = salt.pillar.get_async_pillar(self.opts, self.opts["grains"], self.opts["id"], None)
        self.opts["pillar"] = await pillar.compile_pillar()
        if hasattr(pillar, "aclose"):
            await pillar.aclose()
        else:
            pillar.destroy()
        self._loop.hear(self._published, self._got)
        await self._fire(
            f"Minion {self.opts['id']} started", f"salt/minion/{self.opts['id']}/start"
        )

    async def _fire(self, data, tag):
        await self._send({"cmd": "_minion_event", "pretag": None, "data": data, "tag": tag})

    async def _send(self, load):
        load = {"id": self.opts["id"], "tok": self._published.auth.gen_token(b"salt"), **load}
        await self._master.send(load, timeout=_SEND_S)

    def _is_meant(self, load):
        if self._matchers is None:
            self._matchers = salt.loader.matchers(self.opts)
        kind = load.get("tgt_type", "glob")
        takes = kind in ("grain", "grain_pcre", "pillar")
        extra = {"delimiter": load.get("delimiter", ":")} if takes else {}
        match = self._matchers[f"{kind}_match.match"]
        return match(load["tgt"], opts=self.opts, minion_id=self.opts["id"], **extra)

    async def _got(self, payload):
        try:
            load = payload["load"] if payload and payload.get("enc") == "aes" else None
            if load is not None and self._is_meant(load):
                await self._take(load)
        except Exception:  # one job that goes wrong is not the end of the host
            traceback.print_exc()

    async def _take(self, load):
        fun, is_order = work.asked(load, self._private)
        rule = faults.of(self.opts["id"], fun, load["jid"])
        if rule.get("silent"):
            return
        await self._late(rule)
        self._jobs[load["jid"]] = {"load": load, "forked": None}
        if is_order or "slow_s" in rule:
            self._fork(load, rule, fun)
        elif load["fun"] == work.SIGNED:
            # One answer is sent before that of the next host of this process is made.
            async with self._turn:
                await self._answer(load, rule, work.call(self._functions, load, rule, fun))
        else:
            await self._answer(load, rule, work.call(self._functions, load, rule, fun))

    async def _late(self, rule):
        if "latency_s" in rule:
            await self._loop.sleep(rule["latency_s"])

    def _fork(self, load, rule, fun):
        # What the child would load, each time anew, the parent keeps.
        self._functions.get(fun)
        forked = work.Forked(lambda say: self._done(load, rule, fun, say))
        self._jobs[load["jid"]]["forked"] = forked
        self._loop.on_readable(forked.reading, lambda: self._heard(load, rule, forked))

    def _done(self, load, rule, fun, say):
        """Do a job in its own process."""
        if "slow_s" in rule:
            import time

            time.sleep(rule["slow_s"])
        self._functions["event.fire_master"] = lambda data, tag: say({"data": data, "tag": tag})
        return work.call(self._functions, load, rule, fun)

    def _heard(self, load, rule, forked):
        # The descriptor is closed with the last of it.
        descriptor = forked.reading
        said, is_all = forked.read()
        if is_all:
            self._loop.forget(descriptor)
            self._jobs.pop(load["jid"], None)
        for one in said:
            if "tag" in one:
                self._loop.spawn(self._fire, one["data"], one["tag"])
            else:
                self._loop.spawn(self._answered, load, rule, tuple(one["return"]))

    async def _answered(self, load, rule, came):
        try:
            await self._answer(load, rule, came)
        except Exception:  # a minion that cannot return logs it, and lives on
            traceback.print_exc()

    async def _answer(self, load, rule, came):
        value, code = came
        self._jobs.pop(load["jid"], None)
        await self._late(rule)
        if rule.get("lost"):
            return
        await self._send(
            {
                "cmd": "_return",
                "jid": load["jid"],
                "fun": load["fun"],
                "fun_args": load["arg"],
                "return": value,
                "retcode": code,
                "success": code == 0,
            }
        )

    def _said(self, jid):
        job = self._jobs[jid]
        load, forked = job["load"], job["forked"]
        return {
            **{name: load.get(name) for name in ("fun", "jid", "tgt", "tgt_type", "ret", "arg")},
            "pid": forked.pid if forked else os.getpid(),
        }

    def _find_job(self, jid):
        return self._said(jid) if jid in self._jobs else {}

    def _end(self, jid, number):
        forked = self._jobs.get(jid, {}).get("forked")
        if forked is None:
            return ""
        forked.end(number)
        return f"Signal {int(number)} sent to job {jid} at pid {forked.pid}"
