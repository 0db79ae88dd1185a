"""Read and write a guest's disk while the VM does not run."""
