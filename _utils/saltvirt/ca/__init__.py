"""The certificate authority of the cloud: no Salt, no network; the clock is an argument."""
