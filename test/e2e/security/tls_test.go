package security

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

// secured returns the addresses at which daemons use TLS.
func secured(t *testing.T) map[string]string {
	t.Helper()
	return map[string]string{
		"kube-apiserver": host(t), "kubelet": net.JoinHostPort(nodeIP(t), "10250"),
		"kube-controller-manager": "127.0.0.1:10257", "kube-scheduler": "127.0.0.1:10259",
	}
}

// handshake tries one version and one cipher suite.
func handshake(address string, version, suite uint16) error {
	cfg := &tls.Config{InsecureSkipVerify: true, MinVersion: version, MaxVersion: version}
	if suite != 0 {
		cfg.CipherSuites = []uint16{suite}
	}
	conn, err := tls.DialWithDialer(&net.Dialer{Timeout: 10 * time.Second}, "tcp", address, cfg)
	if err == nil {
		err = conn.Close()
	}
	return err
}

// Daemons support TLS 1.2 with forward secrecy and authenticated encryption, and TLS 1.3, and
// nothing older or weaker.
func TestTLSVersionsAndSuites(t *testing.T) {
	t.Parallel()
	strong := func(c *tls.CipherSuite) bool {
		return strings.HasPrefix(c.Name, "TLS_ECDHE_") && (strings.Contains(c.Name, "_GCM_") || strings.Contains(c.Name, "CHACHA20"))
	}
	for daemon, address := range secured(t) {
		for version, want := range map[uint16]bool{tls.VersionTLS10: false, tls.VersionTLS11: false, tls.VersionTLS12: true, tls.VersionTLS13: true} {
			if err := handshake(address, version, 0); (err == nil) != want {
				t.Errorf("%s, %s: %v, accepted should be %v", daemon, tls.VersionName(version), err, want)
			}
		}
		agreed := 0
		for _, suite := range slices.Concat(tls.CipherSuites(), tls.InsecureCipherSuites()) {
			if !slices.Contains(suite.SupportedVersions, tls.VersionTLS12) {
				continue
			}
			err := handshake(address, tls.VersionTLS12, suite.ID)
			if err == nil && !strong(suite) {
				t.Errorf("%s accepts %s", daemon, suite.Name)
			}
			if err == nil {
				agreed++
			}
		}
		if agreed == 0 {
			t.Errorf("%s accepts no suite of TLS 1.2: this test tries nothing", daemon)
		}
		notTLS(t, daemon, address)
	}
}

// notTLS sends data that is not a TLS handshake, and checks that it is not served.
func notTLS(t *testing.T, daemon, address string) {
	t.Helper()
	hello := func(version byte) string { // a ClientHello of this minor version, with suites of that time
		body := "\x03" + string(version) + strings.Repeat("r", 32) + "\x00\x00\x04\x00\x0a\x00\x05\x01\x00"
		return "\x16\x03" + string(version) + "\x00" + string([]byte{byte(len(body) + 4)}) + "\x01\x00\x00" + string([]byte{byte(len(body))}) + body
	}
	for what, text := range map[string]string{
		"plain HTTP": "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", "plain HTTP/2": "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"SSL 3.0": hello(0), "SSL 2.0": "\x80\x2e\x01\x00\x02\x00\x15\x00\x00\x00\x10\x07\x00\xc0" + strings.Repeat("c", 16),
		"a heartbeat": "\x18\x03\x02\x00\x03\x01\x40\x00", "zeros": strings.Repeat("\x00", 64),
	} {
		conn, err := net.Dial("tcp", address)
		check(t, err)
		check(t, conn.SetDeadline(time.Now().Add(20*time.Second)))
		_, err = io.WriteString(conn, text)
		check(t, err)
		check(t, conn.(*net.TCPConn).CloseWrite())
		answer, _ := io.ReadAll(conn) // an alert, a 400 or nothing
		conn.Close()
		if alert := len(answer) > 0 && answer[0] == 0x15; len(answer) > 0 && !alert && !bytes.HasPrefix(answer, []byte("HTTP/1.0 400")) {
			t.Errorf("%s, %s: answered with %.100q", daemon, what, answer)
		}
	}
}

// A client cannot renegotiate, which would cost the server work or mix the data of two clients.
func TestTLSRenegotiation(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("openssl"); err != nil {
		t.Skip("needs openssl, the client that can still renegotiate (Debian's package: openssl)")
	}
	for daemon, address := range secured(t) {
		cmd := exec.CommandContext(t.Context(), "openssl", "s_client", "-connect", address, "-tls1_2", "-legacy_renegotiation")
		in, err := cmd.StdinPipe()
		check(t, err)
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		check(t, cmd.Start())
		_, err = io.WriteString(in, "R\n") // on a line of its own: renegotiate
		check(t, err)
		err = cmd.Wait() // it ends by itself when it is refused
		in.Close()
		text := out.String()
		if !strings.Contains(text, "RENEGOTIATING") {
			t.Errorf("%s: openssl has not tried (%v): %.500s", daemon, err, text)
		}
		if after := text[strings.LastIndex(text, "RENEGOTIATING"):]; strings.Contains(after, "verify return") || !strings.Contains(after, "no renegotiation") && !strings.Contains(after, "error") {
			t.Errorf("%s: renegotiates: %.500s", daemon, after)
		}
	}
}

// A load balancer or a user needs no certificate to read the health of the API server, and gets
// nothing else without one.
func TestHealthNeedsNoCertificate(t *testing.T) {
	t.Parallel()
	unknown := anonymous(t)
	for _, page := range []string{"/healthz", "/livez", "/readyz"} {
		if a := unknown.do(t, "GET", page, ""); a.code != http.StatusOK || a.body != "ok" {
			t.Errorf("%s: %d %s, want ok", page, a.code, a.body)
		}
	}
	for _, page := range []string{"/metrics", "/api/v1/namespaces/kube-system/secrets", "/healthz/../metrics", "/readyz/..%2fmetrics"} {
		if a := unknown.do(t, "GET", page, ""); a.code != http.StatusForbidden && a.code != http.StatusUnauthorized {
			t.Errorf("%s: %d, want 401 or 403", page, a.code)
		}
	}
}
