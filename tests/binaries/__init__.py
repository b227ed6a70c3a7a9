"""Tests of the binary reader; `forge_*` build the files they read."""
