package client

import "time"

// AgeConnections makes the client believe that it connected at another time.
func AgeConnections(c *Client, at time.Time) {
	c.network.transport()
	c.network.renewed = at
}
