"""Probes of the machine: GPUs, driver, toolkits, compilers, libraries, resources."""
