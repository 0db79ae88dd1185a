{%- from "hypervisor/map.jinja" import hypervisor with context %}

include:
  - hypervisor.packages

{%- for name, options in hypervisor['bridges'] | dictsort %}

hypervisor_bridge_{{ name }}:
  virt.bridge_present:
    - name: {{ name | json }}
    {%- for option, value in options | dictsort %}
    - {{ option }}: {{ value | json }}
    {%- endfor %}
    - require:
      - pkg: hypervisor_packages
{%- endfor %}
