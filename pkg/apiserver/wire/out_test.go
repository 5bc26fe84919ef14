package wire

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
)

// Whatever the sizes of the parts, the body is their sum, as it is or compressed.
func TestOutJoinsParts(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for _, coding := range []string{"", "gzip"} {
		for range 50 {
			var want bytes.Buffer
			for range 1 + r.IntN(20) {
				want.WriteString(strings.Repeat(string(rune('a'+r.IntN(26))), r.IntN([]int{8, 5000, 2 * bufferSize}[r.IntN(3)])))
			}
			req := httptest.NewRequest("GET", "/", nil)
			req.Header.Set("Accept-Encoding", coding)
			w := httptest.NewRecorder()
			o := Begin(w, req, http.StatusOK, "text/plain", want.Len())
			for rest := want.String(); rest != ""; {
				n := 1 + r.IntN(len(rest))
				var err error
				if r.IntN(2) == 0 {
					_, err = o.Write([]byte(rest[:n]))
				} else {
					_, err = o.WriteString(rest[:n])
				}
				if err != nil {
					t.Fatal(err)
				}
				rest = rest[n:]
			}
			if err := o.Close(); err != nil {
				t.Fatal(err)
			}
			if got := body(t, w); got != want.String() {
				t.Fatalf("%q: %d bytes, want %d", coding, len(got), want.Len())
			}
		}
	}
}

// body returns the response's body, and checks its header.
func body(t *testing.T, w *httptest.ResponseRecorder) string {
	t.Helper()
	if w.Header().Get("Content-Encoding") == "" {
		if n := w.Header().Get("Content-Length"); n != strconv.Itoa(w.Body.Len()) {
			t.Fatalf("Content-Length: %s of %d bytes", n, w.Body.Len())
		}
		return w.Body.String()
	}
	z, err := gzip.NewReader(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

type broken struct{ http.ResponseWriter }

var errGone = errors.New("the client is gone")

func (broken) Write([]byte) (int, error) { return 0, errGone }

func TestOutReportsABrokenConnection(t *testing.T) {
	o := Begin(broken{httptest.NewRecorder()}, httptest.NewRequest("GET", "/", nil), http.StatusOK, "text/plain", -1)
	part := strings.Repeat("x", bufferSize/2+1)
	for range 3 {
		o.WriteString(part)
	}
	if _, err := o.Write([]byte("x")); !errors.Is(err, errGone) {
		t.Errorf("Write: %v", err)
	}
	if err := o.Close(); !errors.Is(err, errGone) {
		t.Errorf("Close: %v", err)
	}
}
