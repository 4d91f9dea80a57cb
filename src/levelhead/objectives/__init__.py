"""What one stage of training minimises: one objective a file."""
