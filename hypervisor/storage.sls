{%- from "hypervisor/map.jinja" import hypervisor with context %}

include:
  - hypervisor.libvirt

# QEMU's user must reach the files below; nobody else needs to list them.
hypervisor_images:
  file.directory:
    - name: {{ hypervisor['images'] | json }}
    - mode: '0711'
    - makedirs: True

hypervisor_pool:
  virt.pool_running:
    - name: {{ hypervisor['pool']['name'] | json }}
    - ptype: dir
    - target: {{ hypervisor['pool']['path'] | json }}
    - autostart: True
    - require:
      {%- if hypervisor['init'] == 'sysv' %}
      - service: hypervisor_daemon
      {%- else %}
      - service: hypervisor_{{ hypervisor['proxy'] }}_socket
      {%- endif %}
