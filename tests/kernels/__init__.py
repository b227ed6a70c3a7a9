"""Tests of the kernels against independent references."""
