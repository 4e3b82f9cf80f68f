"""``p2pfl serve``: the newest model of a peer answers requests on the device, over HTTP and MQTT."""
