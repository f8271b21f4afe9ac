"""What becomes of bad records: policy and quarantine."""
