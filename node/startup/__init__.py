"""What happens before a node serves."""
