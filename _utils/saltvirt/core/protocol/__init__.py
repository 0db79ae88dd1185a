"""The state machines of builds and moves: pure, and explored by the tests' checker."""
