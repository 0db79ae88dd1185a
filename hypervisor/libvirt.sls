{%- from "hypervisor/map.jinja" import hypervisor with context %}
{%- set proxy = hypervisor['proxy'] %}
{%- set daemon_conf = salt['slsutil.merge'](
      {'tls_allowed_dn_list': hypervisor['tls_allowed_dn_list']}, hypervisor['daemon_conf']) %}

include:
  - hypervisor.keys

{%- macro settings(path, values) %}
    - name: {{ path }}
    - separator: ' = '
    - uncomment: '#'
    - append_if_not_found: True
    - key_values:
      {%- for key, value in values | dictsort %}
        {{ key }}: {{ value | json | yaml_squote }}
      {%- endfor %}
{%- endmacro %}

hypervisor_daemon_settings:
  file.keyvalue:
    {{- settings('/etc/libvirt/' ~ proxy ~ '.conf', daemon_conf) }}
    - require:
      - pkg: hypervisor_packages

hypervisor_qemu_settings:
  file.keyvalue:
    {{- settings('/etc/libvirt/qemu.conf', hypervisor['qemu_conf']) }}
    - require:
      - pkg: hypervisor_packages

# A QEMU that takes a VM over one connection reads this file: virt.migrate names it to that QEMU
# alone. In FIPS mode there is no ChaCha20.
hypervisor_qemu_gnutls:
  file.managed:
    - name: /etc/pki/qemu/salt-virt-gnutls.conf
    - mode: '0644'
    - contents: |
        # Salt Virt: QEMU takes no AES, whose keys GnuTLS renews while QEMU reads.
        [priorities]
        SYSTEM = NORMAL
        QEMU = NORMAL
        [overrides]
        tls-disabled-cipher = aes-256-gcm
        tls-disabled-cipher = aes-128-gcm
        tls-disabled-cipher = aes-256-ccm
        tls-disabled-cipher = aes-128-ccm
    - unless:
      - fun: file.contains
        path: /proc/sys/crypto/fips_enabled
        text: '1'
    - require:
      - virt: hypervisor_keys

{%- if hypervisor['init'] == 'sysv' %}

hypervisor_listen:
  file.keyvalue:
    - name: {{ hypervisor['default_file'] }}
    - key_values: {LIBVIRTD_ARGS: '"--listen"'}
    - separator: '='
    - uncomment: '#'
    - append_if_not_found: True
    - require:
      - pkg: hypervisor_packages

hypervisor_log_daemon:
  service.running:
    - name: virtlogd
    - enable: True
    - require:
      - pkg: hypervisor_packages

hypervisor_daemon:
  service.running:
    - name: libvirtd
    - enable: True
    - require:
      - service: hypervisor_log_daemon
      - virt: hypervisor_keys
    - watch:
      - file: hypervisor_listen
      - file: hypervisor_daemon_settings
      - file: hypervisor_qemu_settings

{%- else %}

{%- if hypervisor['daemons'] == 'modular' %}
{#- The one daemon and its sockets hold the paths that the many want. #}
{%- for unit in ['libvirtd.service', 'libvirtd.socket', 'libvirtd-ro.socket',
                 'libvirtd-admin.socket', 'libvirtd-tls.socket', 'libvirtd-tcp.socket'] %}

hypervisor_no_{{ unit }}:
  service.dead:
    - name: {{ unit }}
    - enable: False
    - onlyif:
      - fun: service.available
        name: {{ unit }}
    - require:
      - pkg: hypervisor_packages
    - require_in:
      - service: hypervisor_tls_socket
{%- endfor %}
{%- endif %}

# systemd gives the socket to a daemon only at its start. Running VMs do not need the daemon.
hypervisor_before_tls_socket:
  service.dead:
    - name: {{ proxy }}.service
    - unless:
      - fun: service.status
        name: {{ proxy }}-tls.socket
    - require:
      - virt: hypervisor_keys
      - file: hypervisor_daemon_settings

hypervisor_tls_socket:
  service.running:
    - name: {{ proxy }}-tls.socket
    - enable: True
    - require:
      - service: hypervisor_before_tls_socket

{%- for unit in [proxy] + hypervisor['drivers'] %}

hypervisor_{{ unit }}_socket:
  service.running:
    - name: {{ unit }}.socket
    - enable: True
    - require:
      - service: hypervisor_tls_socket

# Enabled so that VMs with autostart start with the host; it ends by itself when it is idle.
hypervisor_{{ unit }}:
  service.enabled:
    - name: {{ unit }}.service
    - require:
      - service: hypervisor_{{ unit }}_socket

hypervisor_{{ unit }}_reread:
  module.run:
    - service.restart:
      - name: {{ unit }}.service
    - require:
      - service: hypervisor_{{ unit }}
    - onchanges:
      - file: hypervisor_{{ 'qemu' if unit == 'virtqemud' else 'daemon' }}_settings
      {%- if unit == 'libvirtd' %}
      - file: hypervisor_qemu_settings
      {%- endif %}
{%- endfor %}
{%- endif %}
