"""What every EmberEye process shares: its life, its gRPC server, its metrics page, its retries."""
