"""What makes the samples and the documentation; not part of the installed program."""
