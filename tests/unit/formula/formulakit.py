"""The states of the formula on a system, rendered by Salt itself."""

import functools
from pathlib import Path

import salt.config
import salt.loader
import salt.state

ROOT = Path(__file__).resolve().parents[3]
ONEDIR = "/opt/saltstack/salt/bin/python3.10"


@functools.cache
def of_this_machine():
    """Return the grains that Salt itself finds, which takes about a second."""
    return salt.loader.grains(salt.config.minion_config(None))


def shown(options, sls, pillar, grains):
    """Return the answer of ``state.show_sls`` on such a system: states, or errors."""
    opts = {**options, "grains": {**of_this_machine(), **grains}}
    # As state.show_sls does; Salt's minion takes over the grains of a later minion object.
    with salt.state.HighState(opts, initial_pillar=pillar) as highstate:
        highstate.push_active()
        try:
            states, errors = highstate.render_highstate({"base": [sls]})
        finally:
            highstate.pop_active()
        return errors + highstate.state.verify_high(states) or states


def rendered(options, sls, pillar=None, **grains):
    """Return ``{id: (state.function, {argument: value})}`` of an SLS on such a system."""
    default_grains = {"osarch": "amd64", "init": "systemd", "pythonexecutable": ONEDIR}
    states = shown(options, sls, pillar or {"hypervisor": {}}, {**default_grains, **grains})
    assert isinstance(states, dict), states
    out = {}
    for name, body in states.items():
        ((kind, items),) = ((k, v) for k, v in body.items() if not k.startswith("__"))
        function = next(item for item in items if isinstance(item, str))
        arguments = {k: v for item in items if isinstance(item, dict) for k, v in item.items()}
        out[name] = (f"{kind}.{function}", arguments)
    return out


def units(states, function):
    """Return the units of all states with this function."""
    return {arguments["name"] for name, arguments in states.values() if name == function}


def packages(states):
    """Return the packages that states install."""
    installed_packages = [
        arguments for name, arguments in states.values() if name == "pkg.installed"
    ]
    return {
        name
        for arguments_of_state in installed_packages
        for name in arguments_of_state.get("pkgs", [arguments_of_state.get("name")])
    }
