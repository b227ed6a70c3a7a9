"""Tests of what a training is foretold to take."""
