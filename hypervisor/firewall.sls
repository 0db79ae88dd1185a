{%- from "hypervisor/map.jinja" import hypervisor with context %}
{%- set firewall = hypervisor['firewall'] %}
{%- set qemu = hypervisor['qemu_conf'] %}
{%- set migration = qemu['migration_port_min'] ~ '-' ~ qemu['migration_port_max'] %}

include:
  - hypervisor.packages

{%- if firewall['backend'] != 'none' %}

hypervisor_firewall_package:
  pkg.installed:
    - name: {{ hypervisor['firewall_packages'][firewall['backend']] }}

hypervisor_firewall:
  virt.firewall_present:
    - name: salt_virt
    - backend: {{ firewall['backend'] }}
    - ports: {{ (firewall['ports'] + [migration]) | json }}
    - peers: {{ firewall['peers'] | json }}
    - require:
      - pkg: hypervisor_firewall_package
      - pkg: hypervisor_packages
{%- endif %}
