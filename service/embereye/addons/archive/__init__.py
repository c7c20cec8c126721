"""Evidence outside the hub: alarms with their pictures in an S3 bucket, and in one file for an insurer."""
