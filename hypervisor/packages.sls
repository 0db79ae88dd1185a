{%- from "hypervisor/map.jinja" import hypervisor with context %}
{%- set python = grains['pythonexecutable'] %}
{%- set has_modules = salt['file.file_exists'](python) and salt['cmd.retcode'](
      [python, '-c', 'import libvirt, pycdlib, pyroute2'],
      python_shell=False, ignore_retcode=True) == 0 %}

include:
  - hypervisor.modules

hypervisor_packages:
  pkg.installed:
    - pkgs: {{ hypervisor['packages'] | json }}
    - reload_modules: True
    - require:
      - saltutil: hypervisor_modules

{%- if not has_modules and hypervisor['has_system_python'] %}

hypervisor_python_modules:
  pkg.installed:
    - pkgs: {{ hypervisor['python_packages'] | json }}
    - reload_modules: True
    - require:
      - pkg: hypervisor_packages

{%- elif not has_modules %}

hypervisor_compiler:
  pkg.installed:
    - pkgs: {{ hypervisor['pip_packages'] | json }}
    - require:
      - pkg: hypervisor_packages

hypervisor_python_modules:
  pip.installed:
    - names: {{ hypervisor['pip'] | json }}
    - reload_modules: True
    - require:
      - pkg: hypervisor_compiler
{%- endif %}
