"""What altered texts count as."""
