"""Outputters of Salt Virt: format answers for a terminal."""
