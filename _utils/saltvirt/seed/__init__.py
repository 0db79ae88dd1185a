"""Seeding: give a guest its identity before it boots for the first time."""
