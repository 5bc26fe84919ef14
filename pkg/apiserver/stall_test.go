package apiserver_test

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"podium/pkg/apiserver"
	"podium/pkg/apiserver/authn"
	"podium/pkg/apiserver/request"
)

// requestTimeout is short, since the tests wait until clients are disconnected. A
// quarter of it is how long a request may wait for a seat, even on a busy machine.
const requestTimeout = 4 * time.Second

const leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"

// served is a server on a real connection, with upstream's default limits of
// requests in flight.
type served struct {
	*world
	address string
	tls     *tls.Config // of clients
	client  *http.Client
}

func serve(t *testing.T, change ...func(*apiserver.Config)) *served {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	pair := httptest.NewUnstartedServer(nil)
	pair.StartTLS()
	certificates := pair.TLS.Certificates
	pair.Close()
	client := &tls.Config{InsecureSkipVerify: true} // the certificate is httptest's
	w := start(t, append([]func(*apiserver.Config){allowEverybody, func(c *apiserver.Config) {
		c.Listener, c.TLS = l, &tls.Config{Certificates: certificates, NextProtos: []string{"h2", "http/1.1"}}
		c.MaxReads, c.MaxWrites, c.MaxLongRunning, c.RequestTimeout, c.Memory = 400, 200, 50, requestTimeout, 256*megabyte
		c.Authenticator = asNode(c.Authenticator)
	}}, change...)...)
	must[any](w, 201, "POST", leases, jsonType, `{"metadata":{"name":"a"},"spec":{"holderIdentity":"a"}}`)
	must[any](w, 201, "POST", cms, jsonType, configMap("alice"))
	transport := &http.Transport{TLSClientConfig: client, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &served{w, l.Addr().String(), client, &http.Client{Transport: transport}}
}

// asNode adds the group system:nodes to users that are named as nodes are.
func asNode(next authn.Authenticator) authn.Authenticator {
	return authn.Func(func(r *http.Request) (*request.User, error) {
		user, err := next.Authenticate(r)
		if user != nil && strings.HasPrefix(user.Name, "system:node:") {
			user.Groups = append(user.Groups, "system:nodes")
		}
		return user, err
	})
}

// works fails the test unless requests of other users and health checks
// succeed.
func (s *served) works() {
	s.Helper()
	now := time.Now().UTC().Format("2006-01-02T15:04:05.000000Z")
	for i, tc := range []struct{ user, method, path, body string }{
		{"system:node:a", "GET", "/api/v1/pods", ""},
		{"system:node:a", "PATCH", leases + "/a", `{"spec":{"renewTime":"` + now + `"}}`},
		{"system:kube-scheduler", "PATCH", leases + "/a", `{"spec":{"leaseTransitions":1}}`},
		{"alice", "GET", cms, ""},
		{"alice", "PATCH", cms + "/alice", `{"data":{"now":"` + now + `"}}`},
		{"mallory", "GET", "/readyz", ""},
	} {
		r, err := http.NewRequest(tc.method, "https://"+s.address+tc.path, strings.NewReader(tc.body))
		if err != nil {
			s.Fatal(err)
		}
		r.Header.Set("X-User", tc.user)
		r.Header.Set("Content-Type", mergeType)
		resp, err := s.client.Do(r)
		if err != nil {
			s.Errorf("%d: %v", i, err)
			continue
		}
		text, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode >= 300 {
			s.Errorf("%s %s %s: %s %s", tc.user, tc.method, tc.path, resp.Status, text)
		}
	}
}

// raw is an HTTP/2 client that may violate flow control.
type raw struct {
	*testing.T
	conn   net.Conn
	framer *http2.Framer
	next   uint32
	hpack  bytes.Buffer
	enc    *hpack.Encoder
}

// dial opens a connection whose streams have a receive window of window bytes.
func (s *served) dial(t *testing.T, window uint32) *raw {
	t.Helper()
	conf := s.tls.Clone()
	conf.NextProtos = []string{"h2"}
	conn, err := tls.Dial("tcp", s.address, conf)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	r := &raw{T: t, conn: conn, framer: http2.NewFramer(conn, conn), next: 1}
	r.enc = hpack.NewEncoder(&r.hpack)
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	if err := r.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: window}); err != nil {
		t.Fatal(err)
	}
	return r
}

// open starts a request of the user mallory. It does not end the body of a
// POST.
func (r *raw) open(method, path string) {
	r.Helper()
	r.hpack.Reset()
	for _, f := range [][2]string{{":method", method}, {":scheme", "https"}, {":authority", "x"}, {":path", path}, {"x-user", "mallory"}, {"content-type", jsonType}} {
		if err := r.enc.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}); err != nil {
			r.Fatal(err)
		}
	}
	err := r.framer.WriteHeaders(http2.HeadersFrameParam{
		StreamID: r.next, BlockFragment: r.hpack.Bytes(), EndHeaders: true, EndStream: method == "GET",
	})
	if err != nil {
		r.Fatal(err)
	}
	r.next += 2
}

// answers reads until every stream has ended and returns the number of
// responses by status; streams that were reset count under "reset".
func (r *raw) answers() map[string]int {
	r.Helper()
	streams, got := int(r.next/2), map[string]int{}
	r.conn.SetReadDeadline(time.Now().Add(time.Minute))
	decoder := hpack.NewDecoder(4096, nil)
	status, ended := map[uint32]string{}, map[uint32]bool{}
	for len(ended) < streams {
		frame, err := r.framer.ReadFrame()
		if err != nil {
			r.Fatalf("after %d of %d streams: %v; %v", len(ended), streams, err, got)
		}
		id, last := frame.Header().StreamID, false
		switch f := frame.(type) {
		case *http2.HeadersFrame:
			fields, err := decoder.DecodeFull(f.HeaderBlockFragment())
			if err != nil {
				r.Fatal(err)
			}
			status[id], last = fields[0].Value, f.StreamEnded()
		case *http2.DataFrame:
			last = f.StreamEnded()
		case *http2.RSTStreamFrame:
			if ended[id] {
				continue // the response to a request whose body was not read
			}
			got["reset"]++
			last = true
		}
		if last {
			got[status[id]]++ // the status of a short response whose body could not be sent
			ended[id] = true
		}
	}
	return got
}

// heads reads until the responses of all streams have begun and returns their number by
// status.
func (r *raw) heads() map[string]int {
	r.Helper()
	got, decoder := map[string]int{}, hpack.NewDecoder(4096, nil)
	r.conn.SetReadDeadline(time.Now().Add(time.Minute))
	for n := 0; n < int(r.next/2); {
		frame, err := r.framer.ReadFrame()
		if err != nil {
			r.Fatalf("after %v: %v", got, err)
		}
		if f, ok := frame.(*http2.HeadersFrame); ok {
			fields, err := decoder.DecodeFull(f.HeaderBlockFragment())
			if err != nil {
				r.Fatal(err)
			}
			got[fields[0].Value]++
			n++
		}
	}
	return got
}

// unread opens 480 requests of one user, whose responses are not read.
func (s *served) unread(t *testing.T) (conns []*raw) {
	for range 2 {
		c := s.dial(t, 0)
		for range 240 {
			c.open("GET", "/openapi/v2")
		}
		conns = append(conns, c)
	}
	return conns
}

// Unread responses hold no seats, but places: a user has half of those for reads. The
// timeout is long, since a response that is cut off frees its place.
func TestUnreadAnswers(t *testing.T) {
	s := serve(t, func(c *apiserver.Config) { c.RequestTimeout = 2 * time.Minute })
	conns := s.unread(t)
	s.works()
	sent, refused := 0, 0
	for _, c := range conns {
		got := c.heads()
		sent, refused = sent+got["200"], refused+got["429"]
	}
	if sent != 200 || refused != 280 {
		t.Errorf("%d responses began, %d requests were refused", sent, refused)
	}
	s.works()
}

func TestUnreadAnswersAreCutOff(t *testing.T) {
	s := serve(t)
	conns := s.unread(t)
	s.works()
	for _, c := range conns {
		if got := c.answers(); got["reset"] != 240 {
			t.Errorf("%v", got)
		}
	}
	s.works()
}

func TestStalledBodies(t *testing.T) {
	s := serve(t)
	c := s.dial(t, 65535)
	for range 240 {
		c.open("POST", cms)
	}
	s.works()
	if got := c.answers(); got["429"] != 140 || got["504"] != 100 {
		t.Errorf("%v", got)
	}
	s.works()
}

// As above over HTTP/1.1, with one connection per request.
func TestStalledConnections(t *testing.T) {
	s := serve(t)
	for i := range 6 {
		must[any](s.world, 201, "POST", cms, jsonType, fmt.Sprintf(`{"metadata":{"name":"big-%d"},"data":{"a":"%s"}}`, i, strings.Repeat("x", 1000<<10)))
	}
	var all sync.WaitGroup
	var conns []net.Conn
	open := func(text string) {
		conn, err := tls.Dial("tcp", s.address, s.tls)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		conn.NetConn().(*net.TCPConn).SetReadBuffer(4096)
		if _, err := io.WriteString(conn, text); err != nil {
			t.Fatal(err)
		}
		conns = append(conns, conn)
	}
	for range 120 {
		open("POST " + cms + " HTTP/1.1\r\nHost: x\r\nX-User: mallory\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{")
		open("GET " + cms + " HTTP/1.1\r\nHost: x\r\nX-User: oscar\r\n\r\n")
		open("GET " + cms + " HTTP/1.1\r\nHost: x\r\nX-User: trudy\r\nContent-Length: 1000\r\n\r\n")
	}
	s.works()
	for _, conn := range conns {
		all.Go(func() {
			conn.SetReadDeadline(time.Now().Add(time.Minute))
			if _, err := io.Copy(io.Discard, bufio.NewReader(conn)); err != nil && strings.Contains(err.Error(), "timeout") {
				t.Error(err)
			}
		})
	}
	s.works()
}

// A watch whose client does not read is ended; an idle watch is not.
func TestUnreadWatches(t *testing.T) {
	s := serve(t)
	c := s.dial(t, 0)
	for range 60 {
		c.open("GET", cms+"?watch=true&timeoutSeconds=600")
	}
	idle, err := http.NewRequest("GET", "https://"+s.address+"/api/v1/secrets?watch=true&resourceVersion=1&timeoutSeconds=600", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := s.client.Do(idle)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	s.works()
	if got := c.answers(); got["reset"] != 60 || got["429"] != 10 {
		t.Errorf("%v", got)
	}
	must[any](s.world, 201, "POST", "/api/v1/namespaces/default/secrets", jsonType, `{"metadata":{"name":"late"}}`)
	for lines := bufio.NewScanner(resp.Body); ; {
		if !lines.Scan() {
			t.Fatalf("the idle watch has ended: %v", lines.Err())
		}
		if strings.Contains(lines.Text(), `"late"`) {
			return
		}
	}
}

func TestHeadersThatAreTooLong(t *testing.T) {
	s := serve(t)
	transport := &http.Transport{TLSClientConfig: s.tls, TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{}} // HTTP/1.1
	t.Cleanup(transport.CloseIdleConnections)
	for size, want := range map[int]int{100 << 10: 200, 200 << 10: 431} {
		r, err := http.NewRequest("GET", "https://"+s.address+"/version?"+strings.Repeat("x", size), nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := transport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("an address of %d bytes: %s", size, resp.Status)
		}
	}
}
