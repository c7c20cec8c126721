"""Commands about one device, or a recording of one."""
