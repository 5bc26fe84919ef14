package security

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// unknown returns an HTTP client without credentials.
func unknown(t *testing.T) *http.Client {
	t.Helper()
	tr := &http.Transport{TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}, MaxIdleConnsPerHost: 1}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

// ask sends a request and returns the status code.
func ask(t *testing.T, c *http.Client, method, path string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, server+path, http.NoBody)
	check(t, err)
	resp, err := c.Do(r)
	check(t, err)
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	check(t, err)
	return resp.StatusCode
}

// Unauthenticated requests cannot push other records out of the audit log: their records are
// short and few, and an event contains the number of missing ones.
func TestAuditFloodByStrangers(t *testing.T) {
	log := filepath.Join(filepath.Dir(pkiDir), "logs", "audit.log")
	size := func() int64 {
		info, err := os.Stat(log)
		check(t, err)
		return info.Size()
	}
	before, c := size(), unknown(t)
	const requests, long = 2000, 4000
	for i := range requests {
		if code := ask(t, c, "GET", fmt.Sprintf("/api/v1/namespaces/x/secrets/%d?%s", i, strings.Repeat("a", long))); code != http.StatusUnauthorized {
			t.Fatalf("a stranger gets %d", code)
		}
	}
	eventually(t, "the log says how many are missing", func() error {
		file, err := os.Open(log)
		check(t, err)
		defer file.Close()
		text, err := io.ReadAll(io.NewSectionReader(file, before, 1<<30))
		check(t, err)
		if !strings.Contains(string(text), `"podium.dev/suppressed-events"`) {
			return errNotYet
		}
		return nil
	})
	if grown := size() - before; grown > 1<<20 {
		t.Errorf("%d requests of %d bytes make the log grow by %d bytes", requests, long, grown)
	}
}
