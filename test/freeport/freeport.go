// Package freeport finds ports for the servers that tests start.
package freeport

import (
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
)

// The ports are below those that Linux gives to clients (ip_local_port_range), so that no
// connection takes one between its choice and its use, and below Kubernetes' node ports.
const first, last = 15000, 29999

// TCP returns a port on which nothing listens on 127.0.0.1.
func TCP(t *testing.T) int {
	t.Helper()
	var failed error
	for range 100 {
		port := first + rand.IntN(last-first+1)
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			l.Close()
			return port
		}
		failed = err
	}
	t.Fatal(failed)
	return 0
}

// Address returns "127.0.0.1:" and a port on which nothing listens there.
func Address(t *testing.T) string {
	t.Helper()
	return fmt.Sprintf("127.0.0.1:%d", TCP(t))
}
