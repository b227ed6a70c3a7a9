"""What must not change while the house is redrawn."""
