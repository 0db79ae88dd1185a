{%- from "hypervisor/map.jinja" import hypervisor with context %}
{#- libvirt's driver comes with the other packages; dnsmasq gives the guests their addresses. #}
{%- set packages = {'Arch': ['dnsmasq'], 'Debian': ['dnsmasq-base']}.get(
      grains['os_family'], ['libvirt-daemon-config-network']) %}

include:
  - hypervisor.libvirt

{%- if hypervisor['nat'] %}

hypervisor_nat_packages:
  pkg.installed:
    - pkgs: {{ packages | json }}
    - require:
      - pkg: hypervisor_packages

hypervisor_nat:
  virt.nat_running:
    - name: default
    - require:
      - pkg: hypervisor_nat_packages
      {%- if hypervisor['init'] == 'sysv' %}
      - service: hypervisor_daemon
      {%- else %}
      - service: hypervisor_{{ hypervisor['proxy'] }}_socket
      {%- endif %}
{%- endif %}
