package security

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
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

// neighbourHost creates a machine on the node's network: a network namespace with a route to
// 127.0.0.1 by way of the node. It returns the node's address there and the namespace's name.
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

// inNamespace runs f on a thread in the network namespace of a file. The thread returns to its
// own namespace, because it may be the process's first thread, which cannot end.
func inNamespace(t *testing.T, network string, f func()) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		own, err := os.Open("/proc/thread-self/ns/net")
		if err != nil {
			done <- err
			return
		}
		defer own.Close()
		if err = enter(network); err == nil {
			f()
			err = unix.Setns(int(own.Fd()), unix.CLONE_NEWNET)
		}
		if err == nil {
			runtime.UnlockOSThread()
		}
		done <- err
	}()
	check(t, <-done)
}

// enter moves the calling thread to the network namespace of a file.
func enter(network string) error {
	file, err := os.Open(network)
	if err != nil {
		return err
	}
	defer file.Close()
	return unix.Setns(int(file.Fd()), unix.CLONE_NEWNET)
}

// Listeners on the node's 127.0.0.1 cannot be reached by another machine on its network that
// routes that address to the node (CVE-2020-8558).
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
	inNamespace(t, "/run/netns/"+name, func() {
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
	check(t, local.SetReadDeadline(time.Now().Add(50*time.Millisecond))) // they were sent before the one that has arrived
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
	// SO_SNDTIMEO is the timeout of connect.
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &unix.Timeval{Usec: 300_000}); err != nil {
		return err
	}
	to, err := net.ResolveTCPAddr("tcp4", address)
	if err != nil {
		return err
	}
	return unix.Connect(fd, &unix.SockaddrInet4{Port: to.Port, Addr: [4]byte(to.IP.To4())})
}

// The same from a pod with all capabilities in its own network.
func TestLoopbackFromAPod(t *testing.T) {
	t.Parallel()
	network := podNetwork(t, space(t))
	gateway := gatewayOf(t, network)
	closed, err := net.Listen("tcp4", "127.0.0.1:0")
	check(t, err)
	defer closed.Close()
	open, err := net.Listen("tcp4", gateway+":0")
	check(t, err)
	defer open.Close()
	within := func(command ...string) { run(t, append([]string{"nsenter", "--net=" + network}, command...)...) }
	within("ip", "addr", "del", "127.0.0.1/8", "dev", "lo")
	within("sh", "-c", "echo 1 > /proc/sys/net/ipv4/conf/all/route_localnet")
	within("ip", "route", "add", "127.0.0.0/8", "via", gateway)
	inNamespace(t, network, func() {
		if err := reached(open.Addr().String()); err != nil {
			t.Errorf("the pod does not reach the node at all: this test proves nothing: %v", err)
		}
		for _, address := range []string{closed.Addr().String(), "127.0.0.1:10257", "127.0.0.1:10259", "127.0.0.1:10249", "127.0.0.1:10248"} {
			if reached(address) == nil {
				t.Errorf("a pod has a connection to the node's %s", address)
			}
		}
	})
}

// podNetwork runs a pod and returns the file of its network namespace.
func podNetwork(t *testing.T, ns string) string {
	t.Helper()
	pods := client.For[*corev1.Pod](admin).In(ns)
	made, err := pods.Create(t.Context(), plainPod("martian"))
	check(t, err)
	eventually(t, "the pod runs", func() error {
		p, err := pods.Get(t.Context(), made.Name)
		if err == nil && p.Status.Phase != corev1.PodRunning {
			err = errNotYet
		}
		return err
	})
	groups, err := filepath.Glob("/proc/[0-9]*/cgroup")
	check(t, err)
	for _, file := range groups {
		if data, err := os.ReadFile(file); err == nil && strings.Contains(string(data), string(made.UID)) {
			return filepath.Join(filepath.Dir(file), "ns", "net")
		}
	}
	t.Fatalf("no process is in a cgroup of the pod %s", made.UID)
	return ""
}

func plainPod(name string) *corev1.Pod {
	p := pod("", name, "none")
	p.Spec.Volumes = nil
	return p
}

// gatewayOf returns the node's address on the pod's link.
func gatewayOf(t *testing.T, network string) string {
	t.Helper()
	out, err := exec.Command("nsenter", "--net="+network, "ip", "-4", "route", "show", "default").Output()
	check(t, err)
	words := strings.Fields(string(out))
	for i, word := range words[:max(len(words)-1, 0)] {
		if word == "via" {
			return words[i+1]
		}
	}
	t.Fatalf("the pod has no gateway: %q", out)
	return ""
}
