{%- from "hypervisor/map.jinja" import hypervisor with context %}

include:
  - hypervisor.libvirt

# QEMU's user must reach the files below; nobody else needs to list them.
hypervisor_images:
  file.directory:
    - name: {{ hypervisor['images'] | json }}
    - mode: '0711'
    - makedirs: True

{%- if grains.get('selinux', {}).get('enabled') and hypervisor['selinux_packages'] %}

hypervisor_selinux_tools:
  pkg.installed:
    - pkgs: {{ hypervisor['selinux_packages'] | json }}
    - reload_modules: True

{#- What is made below takes the folder's label; libvirt labels the disks of running VMs itself. #}
hypervisor_images_policy:
  selinux.fcontext_policy_present:
    - name: {{ (hypervisor['images'] | replace('.', '\\.') ~ '(/.*)?') | json }}
    - sel_type: virt_image_t
    - require:
      - pkg: hypervisor_selinux_tools

hypervisor_images_label:
  selinux.fcontext_policy_applied:
    - name: {{ hypervisor['images'] | json }}
    - require:
      - selinux: hypervisor_images_policy
      - file: hypervisor_images

{%- for name in hypervisor['selinux_booleans'] %}

hypervisor_selinux_{{ name }}:
  selinux.boolean:
    - name: {{ name | json }}
    - value: True
    - persist: True
    - require:
      - pkg: hypervisor_selinux_tools
{%- endfor %}
{%- endif %}

{#- One that was there before stays where it is, with its VMs' disks, unless a path is asked for. #}
{%- set is_there = salt['file.file_exists'](
      '/etc/libvirt/storage/' ~ hypervisor['pool']['name'] ~ '.xml') %}

hypervisor_pool:
  virt.pool_running:
    - name: {{ hypervisor['pool']['name'] | json }}
    {%- if hypervisor['has_own_pool'] or not is_there %}
    - ptype: dir
    - target: {{ hypervisor['pool']['path'] | json }}
    {%- endif %}
    - autostart: True
    - require:
      {%- if hypervisor['init'] == 'sysv' %}
      - service: hypervisor_daemon
      {%- else %}
      - service: hypervisor_{{ hypervisor['proxy'] }}_socket
      {%- endif %}
