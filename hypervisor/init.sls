# A bare host becomes a hypervisor: salt-run virt.allow newhost; salt newhost state.apply hypervisor
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
