"""The certificate authority of the cloud, without Salt and network; callers pass the time."""
