"""How this proxy comes to own sessions, and gives them away."""
