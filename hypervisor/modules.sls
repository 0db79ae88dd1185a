# The states and modules of this project, on a minion that may never have had them.
hypervisor_modules:
  saltutil.sync_all:
    - refresh: True
    - reload_modules: True
