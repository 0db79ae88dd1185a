{%- from "hypervisor/map.jinja" import hypervisor with context %}

include:
  - hypervisor.packages

hypervisor_keys:
  virt.keys:
    - basepath: {{ hypervisor['keys']['basepath'] | json }}
    - vnc: {{ hypervisor['keys']['vnc'] | json }}
    - require:
      - pkg: hypervisor_packages
