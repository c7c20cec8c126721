"""What end-to-end tests are made of: a real cluster, independent witnesses and probers, a diary of what happened."""
