"""How clients find a proxy on their network."""
