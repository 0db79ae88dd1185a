# Who opens foreign images: nobody else, in no other group. A file that it may have is lent to it.
hypervisor_appliance_group:
  group.present:
    - name: salt-virt
    - system: True

hypervisor_appliance_user:
  user.present:
    - name: salt-virt
    - gid: salt-virt
    - system: True
    - home: /nonexistent
    - createhome: False
    - shell: /usr/sbin/nologin
    - require:
      - group: hypervisor_appliance_group
