"""What happened in a run, by those who have no part in the product: what tests believe."""
