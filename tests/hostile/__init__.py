"""Hostile input by the hundred, made by generators, and a child process whose time and memory are measured."""
