package security

import (
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
)

// pingEnv is the environment variable with the address that this program pings instead of
// running tests. It runs in a pod because its image's busybox uses a raw socket instead of the
// kernel's ICMP sockets.
const pingEnv = "PODIUM_TEST_PING"

func init() {
	address := os.Getenv(pingEnv)
	if address == "" {
		return
	}
	if err := ping(address); err != nil {
		fmt.Fprintln(os.Stderr, "ping:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// ping sends an echo request over a socket that needs no capability.
func ping(address string) error {
	conn, err := icmp.ListenPacket("udp4", "0.0.0.0")
	if err != nil {
		return err
	}
	defer conn.Close()
	request, err := (&icmp.Message{Type: ipv4.ICMPTypeEcho, Body: &icmp.Echo{Seq: 1}}).Marshal(nil)
	if err != nil {
		return err
	}
	if _, err := conn.WriteTo(request, &net.UDPAddr{IP: net.ParseIP(address)}); err != nil {
		return err
	}
	if err := conn.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return err
	}
	_, _, err = conn.ReadFrom(make([]byte, 1500))
	return err
}
