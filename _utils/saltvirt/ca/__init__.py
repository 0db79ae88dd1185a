"""The certificate authority of the cloud, without Salt and network; the clock is an argument."""
