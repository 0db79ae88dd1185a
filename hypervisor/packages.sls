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
{%- if 'pycdlib' not in hypervisor['python_packages'] | join %}

{#- No package of this family has it, and pip may not write where the distribution's Python is. #}
hypervisor_python_pycdlib:
  test.fail_without_changes:
    - name: >-
        {{ python }}, on which Salt runs, lacks the module pycdlib, without which no seeds are made,
        and this system has no package of it: install it there, or use Salt's own packages
    - unless: {{ (python ~ ' -c "import pycdlib"') | json }}
    - require:
      - pkg: hypervisor_python_modules
{%- endif %}

{%- elif not has_modules %}
{%- set repository = hypervisor['builder_repository'] %}
{%- if repository and grains['os'] == 'RedHat' %}
{%- set major = grains['osrelease'].split('.')[0] %}

{#- subscription-manager writes its file anew: nobody else can switch a repository on in it. #}
hypervisor_builder_repository:
  test.fail_without_changes:
    - name: >-
        libvirt-devel is in CodeReady Linux Builder; run: subscription-manager repos
        --enable codeready-builder-for-rhel-{{ major }}-{{ grains['cpuarch'] }}-rpms
    - unless: dnf -q repolist --enabled | grep -q codeready-builder
    - require:
      - pkg: hypervisor_packages

{%- elif repository %}

hypervisor_builder_repository:
  pkgrepo.managed:
    - name: {{ repository | json }}
    - enabled: True
    - require:
      - pkg: hypervisor_packages
{%- endif %}

hypervisor_compiler:
  pkg.installed:
    - pkgs: {{ hypervisor['pip_packages'] | json }}
    - require:
      - pkg: hypervisor_packages
      {%- if repository %}
      - {{ 'test' if grains['os'] == 'RedHat' else 'pkgrepo' }}: hypervisor_builder_repository
      {%- endif %}

hypervisor_python_modules:
  pip.installed:
    - names: {{ hypervisor['pip'] | json }}
    - reload_modules: True
    - require:
      - pkg: hypervisor_compiler
{%- endif %}
