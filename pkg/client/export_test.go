package client

import "time"

// AgeConnections sets the time at which the client believes that it connected.
func AgeConnections(c *Client, at time.Time) {
	c.network.transport()
	c.network.renewed = at
}
