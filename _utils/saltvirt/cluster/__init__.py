"""The hosts of this master: who they are, how they are asked, and what runs there."""
