{%- from "hypervisor/map.jinja" import hypervisor with context %}
{%- set has_bridge_filter = salt['file.directory_exists']('/proc/sys/net/bridge') %}
{%- set wanted = salt['slsutil.merge'](
      hypervisor['sysctl_bridge'] if has_bridge_filter else {}, hypervisor['sysctl']) %}

{%- for name, value in wanted | dictsort %}

hypervisor_sysctl_{{ name }}:
  sysctl.present:
    - name: {{ name }}
    - value: {{ value | json }}
{%- endfor %}
