"""A VM gets another name, and its guest's minion with it."""
