"""What families with upright RoIs share: where samples lie, error bounds, random cases, drawings."""
