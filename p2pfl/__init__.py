"""Fully decentralised learning: peers gossip masked models over MQTT, no server."""
