"""Floor plans of the building, with devices placed on them."""
