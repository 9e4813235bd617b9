"""The audit: from site logs and journals alone, who was owed what, and what they got."""
