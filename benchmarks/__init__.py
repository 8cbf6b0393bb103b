"""What our operators cost, beside what others take for the same: `make bench`."""
