{%- from "hypervisor/map.jinja" import hypervisor with context %}

include:
  - hypervisor.packages

{#- ifupdown makes bridges by these at the next boot. #}
{%- set tools = hypervisor['ifupdown_packages'] if hypervisor['bridges']
               and salt['file.file_exists']('/etc/network/interfaces') else [] %}
{%- if tools %}

hypervisor_bridge_tools:
  pkg.installed:
    - pkgs: {{ tools | json }}
{%- endif %}

{%- for name, options in hypervisor['bridges'] | dictsort %}

hypervisor_bridge_{{ name }}:
  virt.bridge_present:
    - name: {{ name | json }}
    {%- for option, value in options | dictsort %}
    - {{ option }}: {{ value | json }}
    {%- endfor %}
    - require:
      - pkg: hypervisor_packages
      {%- if tools %}
      - pkg: hypervisor_bridge_tools
      {%- endif %}
{%- endfor %}
