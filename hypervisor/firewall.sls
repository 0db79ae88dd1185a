{%- from "hypervisor/map.jinja" import hypervisor with context %}
{%- set firewall = hypervisor['firewall'] %}
{%- set qemu = hypervisor['qemu_conf'] %}
{%- set migration = qemu['migration_port_min'] ~ '-' ~ qemu['migration_port_max'] %}
{%- set is_firewalld = firewall['backend'] == 'firewalld' %}

include:
  - hypervisor.packages

{%- if firewall['backend'] != 'none' %}

{%- set packages = hypervisor['firewall_packages'] %}

hypervisor_firewall_package:
  pkg.installed:
    {#- Whatever lets hosts in, nftables keeps back what they forward for guests. #}
    - pkgs: {{ [packages[firewall['backend']], packages['nftables']] | unique | list | json }}

{%- if is_firewalld %}

hypervisor_firewalld:
  service.running:
    - name: firewalld
    - enable: True
    - require:
      - pkg: hypervisor_firewall_package

{#- The minion only listens on this connection, so a firewalld that is new takes what the master
    says on it for an attack, until the minion's kernel asks after 5 minutes whether it is there. #}
{%- set port = salt['config.get']('publish_port', 4505) | string %}
{%- set peers = [] %}
{%- for connection in salt['network.active_tcp']().values()
    if connection['remote_port'] | string == port %}
  {%- do peers.append(connection['remote_addr']) %}
{%- endfor %}
{#- Any user of this host can have a connection to such a port of another machine: of those, only
    the addresses count that the minion has for its master. #}
{%- set configured = opts.get('master') %}
{%- set own = [configured] if configured is string else configured or [] %}
{%- set own = (own + [opts.get('master_ip') or '']) | map('replace', '[', '')
    | map('replace', ']', '') | list %}
{%- set masters = peers | unique | select('in', own) | list %}
{#- Without a master, as in salt-call --local, a minion beside it may have one: the only peer. #}
{%- if opts.get('file_client') == 'local' and not opts.get('master_ip')
       and peers | unique | list | length == 1 %}
  {%- set masters = peers | unique | list %}
{%- endif %}
{%- for master in masters | sort %}

hypervisor_firewalld_hears_{{ master }}:
  cmd.run:
    - name: >-
        firewall-cmd --timeout=10m --add-rich-rule='rule
        family="ipv{{ 6 if ':' in master else 4 }}" source address="{{ master }}"
        source-port port="{{ port }}" protocol="tcp" accept'
    {#- Debian's package starts it, others leave that to the service. #}
    - onchanges:
      - pkg: hypervisor_firewall_package
      - service: hypervisor_firewalld
    - require_in:
      - virt: hypervisor_firewall
{%- endfor %}
{%- endif %}

hypervisor_firewall:
  virt.firewall_present:
    - name: salt_virt
    - backend: {{ firewall['backend'] }}
    - ports: {{ (firewall['ports'] + [migration]) | json }}
    - peers: {{ firewall['peers'] | json }}
    - require:
      - pkg: hypervisor_firewall_package
      - pkg: hypervisor_packages
      {%- if is_firewalld %}
      - service: hypervisor_firewalld
      {%- endif %}
{%- endif %}
