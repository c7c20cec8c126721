"""Plans of the building, with devices on them."""
