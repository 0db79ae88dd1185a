"""Parts for master and hosts that know nothing of a VM's life: options, records, protocols."""
