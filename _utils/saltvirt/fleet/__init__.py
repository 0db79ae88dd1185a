"""The master's side: ask minions, find hosts, deploy. The only user of salt.client."""
