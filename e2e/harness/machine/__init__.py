"""EmberEye on one machine under faults and for hours: the site, faults, their matrix, soaks."""
