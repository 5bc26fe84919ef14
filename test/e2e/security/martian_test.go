package security

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"podium/pkg/client"
)

// run runs a program that must succeed.
func run(t *testing.T, command ...string) {
	t.Helper()
	if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", strings.Join(command, " "), err, out)
	}
}

// neighbourHost is a machine on the node's network, made as a network namespace
// whose route to 127.0.0.1 leads to the node. It returns the node's address
// there and the namespace's name.
func neighbourHost(t *testing.T) (node, name string) {
	t.Helper()
	name = fmt.Sprintf("podium-martian-%d", os.Getpid())
	run(t, "ip", "netns", "add", name)
	t.Cleanup(func() { run(t, "ip", "netns", "delete", name) })
	run(t, "ip", "link", "add", "martian0", "type", "veth", "peer", "name", "martian1")
	t.Cleanup(func() { run(t, "ip", "link", "delete", "martian0") })
	run(t, "ip", "link", "set", "martian1", "netns", name)
	run(t, "ip", "addr", "add", "10.98.0.1/24", "dev", "martian0")
	run(t, "ip", "link", "set", "martian0", "up")
	run(t, "ip", "-n", name, "addr", "add", "10.98.0.2/24", "dev", "martian1")
	run(t, "ip", "-n", name, "link", "set", "martian1", "up")
	run(t, "ip", "netns", "exec", name, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/conf/all/route_localnet")
	run(t, "ip", "-n", name, "route", "add", "127.0.0.0/8", "via", "10.98.0.1") // its own loopback interface is down
	return "10.98.0.1", name
}

// inNamespace runs f on a thread that is in a network namespace.
func inNamespace(t *testing.T, name string, f func()) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with this goroutine
		file, err := os.Open("/run/netns/" + name)
		if err == nil {
			err = unix.Setns(int(file.Fd()), unix.CLONE_NEWNET)
			file.Close()
		}
		if err == nil {
			f()
		}
		done <- err
	}()
	check(t, <-done)
}

// What listens on the node's 127.0.0.1 alone is not reached by another machine
// on its network that routes that address to it (CVE-2020-8558).
func TestLoopbackFromANeighbour(t *testing.T) {
	node, name := neighbourHost(t)
	local, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	check(t, err)
	defer local.Close()
	open, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.ParseIP(node)})
	check(t, err)
	defer open.Close()
	tcp, err := net.Listen("tcp4", "127.0.0.1:0")
	check(t, err)
	defer tcp.Close()

	var dialled error
	inNamespace(t, name, func() {
		socket, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.ParseIP("10.98.0.2")})
		if err != nil {
			dialled = err
			return
		}
		defer socket.Close()
		for range 20 {
			_, _ = socket.WriteToUDP([]byte("martian"), local.LocalAddr().(*net.UDPAddr))
		}
		if _, err := socket.WriteToUDP([]byte("neighbour"), open.LocalAddr().(*net.UDPAddr)); err != nil {
			t.Error(err)
		}
		for _, address := range []string{tcp.Addr().String(), "127.0.0.1:10257", "127.0.0.1:10259", "127.0.0.1:10249"} {
			if reached(address) == nil {
				t.Errorf("a neighbour has a connection to the node's %s", address)
			}
		}
		dialled = reached(net.JoinHostPort(node, "10250"))
	})
	if dialled != nil {
		t.Fatalf("the neighbour does not reach the node at all: this test proves nothing: %v", dialled)
	}
	buffer := make([]byte, 64)
	check(t, open.SetReadDeadline(time.Now().Add(10*time.Second)))
	if _, _, err := open.ReadFromUDP(buffer); err != nil {
		t.Fatalf("the neighbour's datagram does not reach the node: this test proves nothing: %v", err)
	}
	check(t, local.SetReadDeadline(time.Now().Add(50*time.Millisecond))) // they were sent before the one that has come
	if n, from, err := local.ReadFromUDP(buffer); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%q from %v has reached 127.0.0.1: %v", buffer[:n], from, err)
	}
}

// reached tries to connect to an address.
func reached(address string) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	// Without an answer connect gives up when the time for sending is over.
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &unix.Timeval{Usec: 300_000}); err != nil {
		return err
	}
	to, err := net.ResolveTCPAddr("tcp4", address)
	if err != nil {
		return err
	}
	return unix.Connect(fd, &unix.SockaddrInet4{Port: to.Port, Addr: [4]byte(to.IP.To4())})
}

// The same from a pod that has every right over its own network.
func TestLoopbackFromAPod(t *testing.T) {
	t.Parallel()
	serve := func(address, text string) int {
		l, err := net.Listen("tcp4", address)
		check(t, err)
		s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, text) })}
		go s.Serve(l)
		t.Cleanup(func() { s.Close() })
		return l.Addr().(*net.TCPAddr).Port
	}
	gateway := bridgeAddress(t)
	closed, open := serve("127.0.0.1:0", sesame), serve(gateway+":0", "reached")
	script := fmt.Sprintf(`set -e
gw=$(ip route | sed -n 's/default via \([^ ]*\).*/\1/p')
ip addr del 127.0.0.1/8 dev lo
echo 1 > /proc/sys/net/ipv4/conf/all/route_localnet
ip route add 127.0.0.1/32 via $gw
wget -q -T 10 -O - http://%s:%d/
wget -q -T 1 -O - http://127.0.0.1:%d/ || true
wget -q -T 10 -O - http://%s:%d/
`, gateway, open, closed, gateway, open)
	ns := space(t)
	status := finished(t, ns, fmt.Sprintf(`{"metadata":{"name":"martian"},"spec":{"restartPolicy":"Never","terminationGracePeriodSeconds":0,"containers":[
		{"name":"c","image":"localhost/podium/busybox:v1","securityContext":{"privileged":true},"terminationMessagePolicy":"FallbackToLogsOnError",
		 "command":["sh","-c",%q]}]}}`, "exec > /dev/termination-log 2>&1\n"+script))
	text := status.ContainerStatuses[0].State.Terminated.Message
	if reveals(text) {
		t.Errorf("a pod reads what listens on the node's 127.0.0.1: %s", text)
	}
	if strings.Count(text, "reached") != 2 {
		t.Errorf("the pod does not reach the node at all: this test proves nothing: %q", text)
	}
}

// bridgeAddress is the node's address on the bridge of its pods.
func bridgeAddress(t *testing.T) string {
	t.Helper()
	bridge, err := net.InterfaceByName("podium0")
	check(t, err)
	addresses, err := bridge.Addrs()
	check(t, err)
	for _, a := range addresses {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil {
			return n.IP.String()
		}
	}
	t.Fatal("the bridge of pods has no address")
	return ""
}

// finished runs a pod to its end and returns its status.
func finished(t *testing.T, ns, manifest string) corev1.PodStatus {
	t.Helper()
	made := administrator(t).must(t, "POST", "/api/v1/namespaces/"+ns+"/pods", manifest)
	name := objectName(t, made)
	var status corev1.PodStatus
	eventually(t, "the pod "+name+" has ended", func() error {
		p, err := client.For[*corev1.Pod](admin).In(ns).Get(context.Background(), name)
		if err != nil {
			return err
		}
		if status = p.Status; status.Phase != corev1.PodSucceeded && status.Phase != corev1.PodFailed {
			return fmt.Errorf("it is %s: %+v", status.Phase, status.ContainerStatuses)
		}
		return nil
	})
	return status
}
