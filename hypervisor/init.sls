# A bare host becomes a hypervisor: salt-run virt.allow newhost; salt newhost state.apply hypervisor
{#- A slip in the pillar is then said once, and not by each part. #}
{%- from "hypervisor/said.jinja" import said with context %}

include:
  - hypervisor.modules
  - hypervisor.packages
  - hypervisor.bridge
  - hypervisor.keys
  - hypervisor.libvirt
  - hypervisor.storage
  - hypervisor.nat
  - hypervisor.appliance
  - hypervisor.sysctl
  - hypervisor.firewall
