"""Outputters of Salt Virt: how answers read in a terminal."""
