# Who opens foreign images: nobody else, in no other group. A file that it may have is lent to it.
# One for each appliance at a time: users cannot look into each other's memory and disks.
{% for name in ["salt-virt", "salt-virt2", "salt-virt3", "salt-virt4"] %}
hypervisor_appliance_group_{{ name }}:
  group.present:
    - name: {{ name }}
    - system: True

hypervisor_appliance_user_{{ name }}:
  user.present:
    - name: {{ name }}
    - gid: {{ name }}
    - system: True
    - home: /nonexistent
    - createhome: False
    - shell: /usr/sbin/nologin
    - require:
      - group: hypervisor_appliance_group_{{ name }}
{% endfor %}
