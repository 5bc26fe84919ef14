package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

// visitor sends requests from one place: the node, or a pod's network.
type visitor struct {
	name string
	http *http.Client
}

// fromNode returns a visitor on the node. kept enables keep-alive connections.
func fromNode(t *testing.T, kept bool) *visitor {
	return newVisitor(t, "node", kept, (&net.Dialer{}).DialContext)
}

// fromPod returns a visitor in the network namespace of a running pod.
func fromPod(t *testing.T, pod *corev1.Pod, kept bool) *visitor {
	t.Helper()
	netns, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", the.containerPID(t, pod)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { netns.Close() })
	return newVisitor(t, "pod "+pod.Name, kept, func(ctx context.Context, network, address string) (net.Conn, error) {
		return dialIn(ctx, int(netns.Fd()), network, address)
	})
}

type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

func newVisitor(t *testing.T, name string, kept bool, dial dialFunc) *visitor {
	if kept {
		name += ", connections kept"
	}
	transport := &http.Transport{DialContext: dial, DisableKeepAlives: !kept, MaxIdleConnsPerHost: 10}
	t.Cleanup(transport.CloseIdleConnections)
	return &visitor{name: name, http: &http.Client{Transport: transport, Timeout: 10 * time.Second}}
}

// dialIn connects from another network namespace: a socket belongs to the namespace in which
// its thread created it.
func dialIn(ctx context.Context, netns int, network, address string) (conn net.Conn, err error) {
	runtime.LockOSThread()
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return nil, err
	}
	defer home.Close()
	if err := unix.Setns(netns, unix.CLONE_NEWNET); err != nil {
		return nil, fmt.Errorf("enter the pod's network: %w", err)
	}
	conn, err = (&net.Dialer{}).DialContext(ctx, network, address)
	if back := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET); back != nil {
		return nil, errors.Join(err, back) // the thread stays locked and ends with its goroutine
	}
	runtime.UnlockOSThread()
	return conn, err
}

// get returns the body of a 200.
func (v *visitor) get(url string) (string, error) { return v.do("GET", url) }

func (v *visitor) do(method, url string) (string, error) {
	req, err := http.NewRequest(method, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := v.http.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s %s: %s: %s", method, url, resp.Status, body)
	}
	return strings.TrimSpace(string(body)), err
}

// answers waits until that many different pods have answered, and returns their names.
func (v *visitor) answers(t *testing.T, url string, pods int) []string {
	t.Helper()
	seen := map[string]bool{}
	eventually(t, 30*time.Second, fmt.Sprintf("%d pods answer on %s from the %s", pods, url, v.name), func() error {
		for range 4 * pods {
			name, err := v.get(url)
			if err != nil {
				return err
			}
			seen[name] = true
		}
		if len(seen) < pods {
			return fmt.Errorf("only %d have", len(seen))
		}
		return nil
	})
	var names []string
	for name := range seen {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// load sends requests until it is stopped: two at a time, a hundred per second.
type load struct {
	*visitor
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu       sync.Mutex
	sent     int
	slowest  time.Duration
	failures []string
	answered map[string]int // by pod name
}

func (v *visitor) load(url string) *load {
	ctx, cancel := context.WithCancel(context.Background())
	l := &load{visitor: v, cancel: cancel, answered: map[string]int{}}
	tick := time.NewTicker(10 * time.Millisecond)
	for range 2 {
		l.done.Go(func() {
			for {
				select {
				case <-ctx.Done():
					tick.Stop()
					return
				case <-tick.C:
					l.request(url)
				}
			}
		})
	}
	return l
}

func (l *load) request(url string) {
	begin := time.Now()
	name, err := l.get(url)
	took := time.Since(begin)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent++
	l.slowest = max(l.slowest, took)
	if err != nil {
		l.failures = append(l.failures, fmt.Sprintf("at %s after %v: %v", begin.Format("15:04:05.000"), took.Round(time.Millisecond), err))
		return
	}
	l.answered[name]++
}

// count returns the number of requests answered so far.
func (l *load) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sent
}

// loads are several loads on one address.
type loads []*load

// startLoads sends requests to a URL from the node and from a pod, with keep-alive connections
// and with a new connection for each request.
func startLoads(t *testing.T, url string, from *corev1.Pod) loads {
	t.Helper()
	var all loads
	for _, kept := range []bool{false, true} {
		all = append(all, fromNode(t, kept).load(url), fromPod(t, from, kept).load(url))
	}
	t.Cleanup(func() {
		for _, l := range all {
			l.cancel()
		}
	})
	return all
}

// more waits until each of the loads has had n more requests answered.
func (all loads) more(t *testing.T, n int) {
	t.Helper()
	for _, l := range all {
		goal := l.count() + n
		eventually(t, 30*time.Second, "requests from the "+l.name+" go on", func() error {
			if l.count() < goal {
				return errNotYet
			}
			return nil
		})
	}
}

// lostNone stops the loads and checks that no request failed.
func (all loads) lostNone(t *testing.T) {
	t.Helper()
	for _, l := range all {
		l.cancel()
		l.done.Wait()
		t.Logf("%d requests from the %s to %d pods, the slowest took %v", l.sent, l.name, len(l.answered), l.slowest.Round(time.Millisecond))
		if n := len(l.failures); n > 0 {
			t.Errorf("%d of %d requests from the %s failed, such as\n%s", n, l.sent, l.name, strings.Join(l.failures[:min(n, 5)], "\n"))
		}
	}
}

// trusting returns a visitor that uses TLS and trusts this CA.
func (v *visitor) trusting(t *testing.T, authority string) *visitor {
	t.Helper()
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM([]byte(authority)) {
		t.Fatalf("no certificates in %q", authority)
	}
	v.http.Transport.(*http.Transport).TLSClientConfig = &tls.Config{RootCAs: pool}
	return v
}

// ask requests a page with a bearer token.
func (v *visitor) ask(t *testing.T, url, token string) (code int, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := v.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(data)
}
