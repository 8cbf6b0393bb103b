"""What the suite knows of operators that sample rotated RoIs."""
