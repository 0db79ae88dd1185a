"""The names of files in a CA's folder."""

KEY, CERTIFICATE, REVOCATIONS = "cakey.pem", "cacert.pem", "cacrl.pem"
# The list of hypervisors; see saltvirt.cluster.membership.
HYPERVISORS = "hypervisors.json"
# Folders that exist during a rotation only: the CA that will sign, and the one that did.
NEXT, PREVIOUS = "next", "previous"
