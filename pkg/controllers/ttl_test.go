package controllers_test

import (
	"testing"
	"time"
)

func TestNodesAreAnnotatedWithATTL(t *testing.T) {
	inCluster(t, 2, func(t *testing.T, c *cluster) {
		for _, name := range []string{"node-0", "node-1"} {
			c.until(time.Minute, name+" has a TTL", func() bool { return c.node(name).Annotations["node.alpha.kubernetes.io/ttl"] == "0" })
		}
		c.quiet()
	})
}
