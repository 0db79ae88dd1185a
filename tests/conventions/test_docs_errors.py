"""What the pages' tables quote of our errors is in the code, word for word."""

import pytest
import saidkit
from saidkit import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
# Salt's or another program's words, texts put together of several, or not compared by eye yet:
# a line goes when its words are found, and none is added.
NOT_FOUND_YET = {
    ("add-a-hypervisor.md", "State 'virt.keys' was not found"),
    ("add-a-hypervisor.md", "the formula hypervisor knows Arch, Debian,"),
    ("add-a-hypervisor.md", "cannot be reached over br0"),
    ("migration.md", "is still sending it"),
    ("migration.md", "is still taking it"),
    ("migration.md", "is not over: the hosts do not agree:"),
    ("migration.md", "is being moved by another salt-run at this moment"),
    ("migration.md", "is handed over to"),
    ("migration.md", "has been leaving this host since"),
    ("migration.md", "has been coming to this host since"),
    ("migration.md", "is a file of VM"),
    ("migration.md", ", and the move from"),
    ("migration.md", "nothing of it is removed here: it runs here"),
    ("pki.md", "hypervisors.json does not say who is a hypervisor"),
    ("pki.md", "cacert.pem is lost, and its CA has been in use"),
    ("pki.md", "belongs to root (0600), and user salt"),
    ("pki.md", "cannot read it"),
    ("pki.md", "libvirtd has not read them ("),
    ("pki.md", "no tls service"),
    ("quickstart.md", ", and virt:hypervisors matches it"),
    ("quickstart.md", "cannot be finished"),
    ("seeding.md", "no module 'guestfs'; install python3-guestfs"),
    ("seeding.md", "installing salt-minion failed:"),
    ("seeding.md", "Unable to locate package"),
    ("seeding.md", "the appliance's user salt-virt is missing"),
}


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_what_a_page_says_that_we_say_is_in_the_code(page):
    said = [x for quote in saidkit.quoted(page.read_text()) for x in saidkit.pieces(quote)]
    lost = {(page.name, x) for x in said if not saidkit.is_said(x, saidkit.corpus())}

    assert lost == {one for one in NOT_FOUND_YET if one[0] == page.name}


@pytest.mark.parametrize(
    ("quote", "is_ours"),
    [("`no VM called …`", True), ("`no machine called …`", False)],
)
def test_a_planted_quote_is_found_out(quote, is_ours):
    table = f"| It says | It means |\n|---|---|\n| {quote} | nothing |\n"
    (piece,) = [x for one in saidkit.quoted(table) for x in saidkit.pieces(one)]

    assert saidkit.is_said(piece, "no VM called …") is is_ours
