package security

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// frames is an HTTP/2 connection on which a test writes frames itself.
type frames struct {
	*http2.Framer
	conn   *tls.Conn
	text   bytes.Buffer // what enc has encoded
	enc    *hpack.Encoder
	stream uint32 // the next stream's id
}

// dialHTTP2 connects and exchanges the initial settings.
func dialHTTP2(t *testing.T) *frames {
	t.Helper()
	conn, err := tls.Dial("tcp", host(t), &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, NextProtos: []string{"h2"}})
	check(t, err)
	t.Cleanup(func() { conn.Close() })
	check(t, conn.SetDeadline(time.Now().Add(time.Minute)))
	_, err = io.WriteString(conn, http2.ClientPreface)
	check(t, err)
	f := &frames{Framer: http2.NewFramer(conn, conn), conn: conn, stream: 1}
	f.AllowIllegalWrites, f.AllowIllegalReads = true, true
	f.enc = hpack.NewEncoder(&f.text)
	check(t, f.WriteSettings())
	return f
}

// block encodes header fields: names and values alternately.
func (f *frames) block(fields ...string) []byte {
	f.text.Reset()
	for i := 0; i+1 < len(fields); i += 2 {
		_ = f.enc.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}) // a write to memory does not fail
	}
	return bytes.Clone(f.text.Bytes())
}

// open starts a stream with these header fields and returns its id.
func (f *frames) open(end bool, fields ...string) (uint32, error) {
	id := f.stream
	f.stream += 2
	return id, f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: f.block(fields...), EndStream: end, EndHeaders: true})
}

func pseudo(method, path string) []string {
	return []string{":method", method, ":scheme", "https", ":authority", "x", ":path", path}
}

// outcome reads until a stream has ended and returns how: a status code, a reset stream or a
// closed connection. It also returns the body.
func (f *frames) outcome(id uint32) (string, string) {
	status, body := "", ""
	decoder := hpack.NewDecoder(4096, func(h hpack.HeaderField) {
		if h.Name == ":status" {
			status = h.Value
		}
	})
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return "closed", body
		}
		end := false
		switch frame := frame.(type) {
		case *http2.GoAwayFrame:
			return "closed", body
		case *http2.RSTStreamFrame:
			if frame.StreamID == id {
				return "reset", body
			}
		case *http2.HeadersFrame:
			_, _ = decoder.Write(frame.HeaderBlockFragment()) // also for other streams: they share the table
			end = frame.StreamID == id && frame.StreamEnded()
		case *http2.DataFrame:
			if frame.StreamID == id {
				body += string(frame.Data())
				end = frame.StreamEnded()
			}
		}
		if end {
			return status, body
		}
	}
}

// Requests that HTTP/2 forbids and that a translation to HTTP/1.1 would interpret differently
// are errors, and reveal nothing.
func TestForbiddenHeadersOfHTTP2(t *testing.T) {
	t.Parallel()
	theirs := victim(t)
	ns, key := accountWith(t, everything)
	mine, path := "/api/v1/namespaces/"+ns+"/configmaps", "/api/v1/namespaces/"+theirs+"/secrets/victim"
	user := []string{"authorization", "Bearer " + key}
	get := pseudo("GET", mine)
	with := func(fields ...string) []string { return append(append(append([]string{}, get...), user...), fields...) }
	if status, _ := requestHTTP2(t, with(), ""); status != "200" {
		t.Fatalf("a good request gets %s: this test would prove nothing", status)
	}
	for what, fields := range map[string][]string{
		"connection":                    with("connection", "upgrade"),
		"transfer-encoding":             with("transfer-encoding", "chunked"),
		"keep-alive":                    with("keep-alive", "1"),
		"proxy-connection":              with("proxy-connection", "keep-alive"),
		"upgrade":                       with("upgrade", "websocket"),
		"te":                            with("te", "gzip"),
		"upper case":                    with("Authorization", "Bearer x"),
		"space in a name":               with("a b", "c"),
		"colon in a name":               with("a:b", "c"),
		"line feed in a name":           with("a\nb", "c"),
		"no name":                       with("", "c"),
		"line feed in a value":          with("x", "a\r\nimpersonate-user: kubernetes-admin"),
		"return in a value":             with("x", "a\rb"),
		"NUL in a value":                with("x", "a\x00b"),
		"pseudo header at the end":      with(":path", path),
		"pseudo header after others":    append(append([]string{}, user...), get...),
		"unknown pseudo header":         append([]string{":user", "kubernetes-admin"}, with()...),
		"status in a request":           append([]string{":status", "200"}, with()...),
		"two paths":                     append([]string{":path", path}, with()...),
		"two methods":                   append([]string{":method", "DELETE"}, with()...),
		"two schemes":                   append([]string{":scheme", "http"}, with()...),
		"no path":                       append([]string{":method", "GET", ":scheme", "https", ":authority", "x"}, user...),
		"empty path":                    append(pseudo("GET", ""), user...),
		"path without a slash":          append(pseudo("GET", mine[1:]), user...),
		"path with a space":             append(pseudo("GET", mine+" HTTP/1.1"), user...),
		"path with a line feed":         append(pseudo("GET", mine+"\r\nimpersonate-user: x"), user...),
		"path with a host":              append(pseudo("GET", "https://x"+path), user...),
		"no method":                     append([]string{":scheme", "https", ":authority", "x", ":path", mine}, user...),
		"method with a space":           append(pseudo("GET /x", mine), user...),
		"method with a line feed":       append(pseudo("GET\r\n", mine), user...),
		"no scheme":                     append([]string{":method", "GET", ":authority", "x", ":path", mine}, user...),
		"unknown scheme":                append([]string{":method", "GET", ":scheme", "ftp", ":authority", "x", ":path", mine}, user...),
		"CONNECT":                       append([]string{":method", "CONNECT", ":authority", "127.0.0.1:10250"}, user...),
		"CONNECT with a protocol":       append([]string{":method", "CONNECT", ":protocol", "websocket", ":scheme", "https", ":authority", "x", ":path", mine}, user...),
		"authority with a user":         append([]string{":method", "GET", ":scheme", "https", ":authority", "a@b c", ":path", mine}, user...),
		"length that is not the body's": append(append(pseudo("POST", mine), user...), "content-type", jsonType, "content-length", "5"),
		"two lengths":                   append(append(pseudo("POST", mine), user...), "content-type", jsonType, "content-length", "2", "content-length", "3"),
		"negative length":               append(append(pseudo("POST", mine), user...), "content-type", jsonType, "content-length", "-1"),
	} {
		body := ""
		if fields[1] == "POST" {
			body = `{"metadata":{"name":"smuggled"}}`
		}
		status, text := requestHTTP2(t, fields, body)
		if status[0] == '2' || status[0] == '5' && status != "501" || reveals(text) {
			t.Errorf("%s: %s %.300s", what, status, text)
		}
	}
	if a := bearer(t, key).do(t, "GET", mine+"/smuggled", ""); a.code != http.StatusNotFound {
		t.Errorf("a request of the wrong length was carried out: %d", a.code)
	}
}

// requestHTTP2 sends one request on a new connection.
func requestHTTP2(t *testing.T, fields []string, body string) (status, text string) {
	t.Helper()
	f := dialHTTP2(t)
	defer f.conn.Close()
	id, err := f.open(body == "", fields...)
	if err == nil && body != "" {
		err = f.WriteData(id, true, []byte(body))
	}
	if err != nil {
		return "closed", ""
	}
	return f.outcome(id)
}

// apiServerMemory returns the resident memory of the API server in bytes.
func apiServerMemory(t *testing.T) int {
	t.Helper()
	var p struct{ PID int }
	data, err := os.ReadFile(filepath.Join(filepath.Dir(pkiDir), "pids", "kube-apiserver.json"))
	check(t, err)
	check(t, json.Unmarshal(data, &p))
	data, err = os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID))
	check(t, err)
	for line := range strings.Lines(string(data)) {
		if text, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kilobytes, err := strconv.Atoi(strings.Fields(text)[0])
			check(t, err)
			return kilobytes << 10
		}
	}
	t.Fatalf("no memory of process %d in %s", p.PID, data)
	return 0
}

// flood sends abusive HTTP/2 frames. It writes until it has sent everything or the server has
// closed the connection, which the server may do.
type flood func(*frames) error

// times calls write until it fails, at most n times.
func times(n int, write func() error) error {
	for range n {
		if err := write(); err != nil {
			return err
		}
	}
	return nil
}

// streamFloods open, fill and reset streams with a token's credentials.
func streamFloods(get, user []string) map[string]flood {
	return map[string]flood{
		"rapid reset": func(f *frames) error {
			return times(20_000, func() error {
				id, err := f.open(true, get...)
				if err == nil {
					err = f.WriteRSTStream(id, http2.ErrCodeCancel)
				}
				return err
			})
		},
		"streams that the client makes the server reset": func(f *frames) error {
			return times(20_000, func() error {
				id, err := f.open(false, get...)
				if err == nil {
					err = f.WriteWindowUpdate(id, 0)
				}
				return err
			})
		},
		"more streams than allowed": func(f *frames) error {
			return times(5_000, func() error { _, err := f.open(false, append(pseudo("POST", "/api"), user...)...); return err })
		},
		"empty DATA": func(f *frames) error {
			id, err := f.open(false, append(pseudo("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"), append(user, "content-type", jsonType)...)...)
			for i := 0; i < 50_000 && err == nil; i++ {
				err = f.WriteData(id, false, nil)
			}
			return err
		},
		"padded DATA": func(f *frames) error {
			id, err := f.open(false, append(pseudo("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"), append(user, "content-type", jsonType)...)...)
			for i := 0; i < 5_000 && err == nil; i++ {
				err = f.WriteDataPadded(id, false, nil, make([]byte, 255))
			}
			return err
		},
		"resets of no stream": func(f *frames) error {
			return times(50_000, func() error { return f.WriteRSTStream(1, http2.ErrCodeCancel) })
		},
	}
}

// controlFloods send frames about the connection.
func controlFloods() map[string]flood {
	return map[string]flood{
		"settings": func(f *frames) error {
			return times(50_000, func() error { return f.WriteSettings(http2.Setting{ID: http2.SettingHeaderTableSize, Val: 1 << 30}) })
		},
		"pings": func(f *frames) error {
			return times(50_000, func() error { return f.WritePing(false, [8]byte{}) })
		},
		"priorities": func(f *frames) error {
			n := uint32(1)
			return times(50_000, func() error { n += 2; return f.WritePriority(n, http2.PriorityParam{StreamDep: n - 2}) })
		},
		"window updates": func(f *frames) error {
			return times(50_000, func() error { return f.WriteWindowUpdate(0, 1) })
		},
		"window that overflows": func(f *frames) error {
			return times(100, func() error { return f.WriteWindowUpdate(0, 1<<31-1) })
		},
		"unknown frames": func(f *frames) error {
			return times(5_000, func() error { return f.WriteRawFrame(0xfa, 0, 0, make([]byte, 4096)) })
		},
		"frame beyond its limit": func(f *frames) error {
			_, err := f.conn.Write([]byte{0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 1})
			return errors.Join(err, times(100, func() error { _, err := f.conn.Write(make([]byte, 16<<10)); return err }))
		},
	}
}

// headerFloods send endless header fields.
func headerFloods(get []string) map[string]flood {
	return map[string]flood{
		"CONTINUATION without end": func(f *frames) error {
			err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: f.block(get...)})
			more := f.block("x", strings.Repeat("a", 8000))
			for i := 0; i < 20_000 && err == nil; i++ {
				err = f.WriteContinuation(1, false, more)
			}
			return err
		},
		"empty CONTINUATION": func(f *frames) error {
			err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: f.block(get...)})
			for i := 0; i < 50_000 && err == nil; i++ {
				err = f.WriteContinuation(1, false, nil)
			}
			return err
		},
		"header list that grows by its table": func(f *frames) error {
			large := f.block("x", strings.Repeat("a", 4000)) // the table now holds it: one byte stands for 4,000
			block := append(f.block(get...), large...)
			for range 12_000 {
				block = append(block, f.block("x", strings.Repeat("a", 4000))...)
			}
			err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block[:12_000], EndStream: true})
			for block = block[min(12_000, len(block)):]; len(block) > 0 && err == nil; block = block[min(12_000, len(block)):] {
				err = f.WriteContinuation(1, len(block) <= 12_000, block[:min(12_000, len(block))])
			}
			return err
		},
	}
}

// A flood of frames costs its sender the connection, or the server nothing lasting: during and
// after it, others are answered, and the server's memory does not grow with what was sent.
func TestFloodsOfHTTP2(t *testing.T) {
	ns, key := accountWith(t, everything)
	joe := bearer(t, key)
	before := apiServerMemory(t)
	user := []string{"authorization", "Bearer " + key}
	get := append(pseudo("GET", "/api/v1/namespaces/kube-system/configmaps"), user...)
	floods := streamFloods(get, user)
	maps.Copy(floods, controlFloods())
	maps.Copy(floods, headerFloods(get))
	for what, flood := range floods {
		f := dialHTTP2(t)
		ctx, cancel := context.WithCancel(t.Context())
		unread := make(chan error, 1)
		go func() { // responses are read late, so that the server must buffer them
			err := flood(f)
			cancel()
			unread <- err
		}()
		for ctx.Err() == nil {
			if a := joe.do(t, "GET", "/api/v1/namespaces/"+ns+"/configmaps", ""); a.code != http.StatusOK {
				t.Errorf("%s: meanwhile another connection gets %d", what, a.code)
			}
		}
		err := <-unread
		t.Logf("%s: the server holds %d MB; the writer ends with %v", what, apiServerMemory(t)>>20, err)
		f.conn.Close()
	}
	if a := anonymous(t).do(t, "GET", "/readyz", ""); a.code != http.StatusOK {
		t.Errorf("afterwards /readyz says %d %s", a.code, a.body)
	}
	const most = 256 << 20
	if grown := apiServerMemory(t) - before; grown > most {
		t.Errorf("the API server has grown by %d MB", grown>>20)
	}
}
