"""Stand-ins for compiled packages that are no splatting extension; staged in a rehearsal where the package is missing."""
