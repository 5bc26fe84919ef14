package streams_test

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/gorilla/websocket"
	xwebsocket "golang.org/x/net/websocket"

	"podium/pkg/client/streams"
)

// echo is a server that returns each message with its opcode.
func echo(w http.ResponseWriter, r *http.Request) {
	protocol, err := streams.Negotiate(r, []string{"", "p1", "p2"})
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	ws, err := streams.Accept(w, r, protocol)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	defer ws.Hangup()
	for {
		op, body, err := ws.Next()
		if err != nil {
			return
		}
		data, err := io.ReadAll(body)
		if err != nil || ws.Write(op, data) != nil {
			return
		}
	}
}

var sizes = []int{0, 1, 125, 126, 127, 65535, 65536, 1 << 20}

func TestServesGorilla(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(echo))
	defer srv.Close()
	d := websocket.Dialer{Subprotocols: []string{"unknown", "p2", "p1"}}
	c, _, err := d.Dial(strings.Replace(srv.URL, "http", "ws", 1), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if c.Subprotocol() != "p2" {
		t.Errorf("the server chose %q, the client's first that it knows is p2", c.Subprotocol())
	}
	pongs := 0
	c.SetPongHandler(func(text string) error { pongs += len(text); return nil })
	for _, n := range sizes {
		c.WriteControl(websocket.PingMessage, []byte("abc"), time.Now().Add(time.Minute))
		data := bytes.Repeat([]byte{'x'}, n)
		w, err := c.NextWriter(websocket.BinaryMessage)
		if err != nil {
			t.Fatal(err)
		}
		w.Write(data[:n/2]) // gorilla sends what exceeds its buffer in fragments
		w.Write(data[n/2:])
		w.Close()
		kind, got, err := c.ReadMessage()
		if err != nil || kind != websocket.BinaryMessage || !bytes.Equal(got, data) {
			t.Fatalf("%d bytes: got %d, %v", n, len(got), err)
		}
	}
	if pongs != 3*len(sizes) {
		t.Errorf("%d bytes of pongs", pongs)
	}
	c.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""), time.Now().Add(time.Minute))
	if _, _, err := c.ReadMessage(); !websocket.IsCloseError(err, websocket.CloseNormalClosure) {
		t.Errorf("the close frame is answered with %v", err)
	}
}

func TestServesOtherClients(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(echo))
	defer srv.Close()
	c, err := xwebsocket.Dial(strings.Replace(srv.URL, "http", "ws", 1), "", "http://localhost")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := xwebsocket.Message.Send(c, "text"); err != nil {
		t.Fatal(err)
	}
	var got string
	if err := xwebsocket.Message.Receive(c, &got); err != nil || got != "text" {
		t.Errorf("got %q, %v", got, err)
	}
	for name, change := range map[string]func(http.Header){
		"Version":  func(h http.Header) { h.Set("Sec-Websocket-Version", "8") },
		"Key":      func(h http.Header) { h.Del("Sec-Websocket-Key") },
		"Protocol": func(h http.Header) { h.Set("Sec-Websocket-Protocol", "none of ours") },
		"Upgrade":  func(h http.Header) { h.Del("Upgrade") },
	} {
		req, _ := http.NewRequest("GET", srv.URL, nil)
		req.Header = streams.WebSocketHeader("p1")
		change(req.Header)
		resp, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != 400 {
			t.Errorf("a handshake with a wrong %s is answered with %d", name, resp.StatusCode)
		}
	}
}

func TestGorillaInteroperability(t *testing.T) {
	up := websocket.Upgrader{Subprotocols: []string{"p1"}, WriteBufferSize: 100}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := up.Upgrade(w, r, nil)
		if err != nil {
			return
		}
		defer c.Close()
		for {
			kind, data, err := c.ReadMessage()
			if err != nil {
				return
			}
			c.WriteControl(websocket.PingMessage, []byte("between"), time.Now().Add(time.Minute))
			w, _ := c.NextWriter(kind)
			w.Write(data)
			c.WriteControl(websocket.PingMessage, []byte("inside"), time.Now().Add(time.Minute))
			w.Close()
			if len(data) == 1 {
				c.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(4000, "enough"), time.Now().Add(time.Minute))
			}
		}
	}))
	defer srv.Close()
	req, _ := http.NewRequest("GET", srv.URL, nil)
	req.Header = streams.WebSocketHeader("p1")
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	if protocol, err := streams.CheckAccepted(req.Header, resp.Header); err != nil || protocol != "p1" {
		t.Fatal(protocol, err)
	}
	if _, err := streams.CheckAccepted(streams.WebSocketHeader("p1"), resp.Header); err == nil {
		t.Error("an answer to another key was accepted")
	}
	ws := streams.NewWebSocket(resp.Body.(io.ReadWriteCloser), nil, true)
	defer ws.Hangup()
	for _, n := range []int{0, 126, 65536, 300000, 1} {
		data := bytes.Repeat([]byte("y"), n)
		if err := ws.Write(streams.OpBinary, data[:n/3], data[n/3:]); err != nil {
			t.Fatal(err)
		}
		op, body, err := ws.Next()
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(body); err != nil || op != streams.OpBinary || !bytes.Equal(got, data) {
			t.Fatalf("%d bytes: got %d, %v", n, len(got), err)
		}
	}
	_, _, err = ws.Next()
	var closed *streams.CloseError
	if !errors.As(err, &closed) || closed.Code != 4000 || closed.Text != "enough" {
		t.Errorf("the close frame came as %v", err)
	}
}

// wire is a connection with canned input.
type wire struct {
	io.Reader
	sent bytes.Buffer
}

func (w *wire) Write(p []byte) (int, error) { return w.sent.Write(p) }
func (w *wire) Close() error                { return nil }

func TestBrokenFrames(t *testing.T) {
	for name, in := range map[string]string{
		"reserved bits":          "\xc2\x80\x00\x00\x00\x00",
		"unknown opcode":         "\x83\x80\x00\x00\x00\x00",
		"unmasked":               "\x82\x01x",
		"fragmented ping":        "\x09\x80\x00\x00\x00\x00",
		"large ping":             "\x89\xfe\x00\x80\x00\x00\x00\x00",
		"lone continuation":      "\x80\x80\x00\x00\x00\x00",
		"message in a message":   "\x02\x81\x00\x00\x00\x00a\x82\x81\x00\x00\x00\x00b",
		"impossible length":      "\x82\xff\xff\xff\xff\xff\xff\xff\xff\xff\x00\x00\x00\x00",
		"ends in a header":       "\x82",
		"ends in a length":       "\x82\xfe\x01",
		"ends in a body":         "\x82\x85\x00\x00\x00\x00ab",
		"ends between the parts": "\x02\x81\x00\x00\x00\x00a",
	} {
		ws := streams.NewWebSocket(&wire{Reader: strings.NewReader(in)}, nil, false)
		_, body, err := ws.Next()
		if err == nil {
			_, err = io.Copy(io.Discard, body)
		}
		var closed *streams.CloseError
		if err == nil || err == io.EOF || errors.As(err, &closed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestChannels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := net.Pipe()
		server := streams.NewChannels(streams.NewWebSocket(a, nil, false), streams.ProtocolV5, streams.Stdin, streams.Resize)
		client := streams.NewChannels(streams.NewWebSocket(b, nil, true), streams.ProtocolV5, streams.Stdout)
		ended := make(chan error, 2)
		go func() { ended <- server.Run() }()
		go func() { ended <- client.Run() }()
		go func() {
			client.Writer(streams.Stdin).Write([]byte("in"))
			client.Writer(7).Write([]byte("nobody's"))
			client.Writer(streams.Resize).Write([]byte("{}"))
			client.CloseWrite(streams.Stdin)
		}()
		resize := make([]byte, 2)
		got := make(chan string, 1)
		go func() {
			io.ReadFull(server.Reader(streams.Resize), resize)
			got <- string(resize)
		}()
		if data, err := io.ReadAll(server.Reader(streams.Stdin)); err != nil || string(data) != "in" {
			t.Errorf("stdin: %q, %v", data, err)
		}
		if text := <-got; text != "{}" {
			t.Errorf("resize: %q", text)
		}
		go server.Writer(streams.Stdout).Write([]byte("out"))
		out := make([]byte, 3)
		io.ReadFull(client.Reader(streams.Stdout), out)
		server.Close(streams.CloseNormal, "")
		if rest, err := io.ReadAll(client.Reader(streams.Stdout)); err != nil || len(rest) > 0 {
			t.Errorf("after the end: %q, %v", rest, err)
		}
		b.Close()
		<-ended
		<-ended
	})
}

// A peer that neither reads nor closes does not block Close for long.
func TestCloseDoesNotWaitForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := net.Pipe()
		defer b.Close()
		c := streams.NewChannels(streams.NewWebSocket(a, nil, false), streams.ProtocolV5, streams.Stdin)
		go c.Run()
		go c.Writer(streams.Stdout).Write([]byte("nobody reads this"))
		synctest.Wait()
		start := time.Now()
		c.Close(streams.CloseNormal, "")
		if took := time.Since(start); took > 10*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

func FuzzFrames(f *testing.F) {
	f.Add([]byte("\x82\x85\x01\x02\x03\x04abcde\x88\x80\x00\x00\x00\x00"), false)
	f.Add([]byte("\x02\x01a\x89\x01p\x80\x01b\x88\x02\x03\xe8"), true)
	f.Add([]byte("\x82\x7f\x00\x00\x00\x00\xff\xff\xff\xffabc"), true)
	f.Fuzz(func(t *testing.T, in []byte, client bool) {
		w := &wire{Reader: bytes.NewReader(in)}
		ws := streams.NewWebSocket(w, bufio.NewReader(w), client)
		total := 0
		for {
			op, body, err := ws.Next()
			if err != nil {
				break
			}
			if op != streams.OpText && op != streams.OpBinary {
				t.Fatalf("a message with opcode %d", op)
			}
			data, err := io.ReadAll(body)
			total += len(data)
			if err != nil {
				break
			}
		}
		if total > len(in) {
			t.Errorf("%d bytes of messages out of %d bytes", total, len(in))
		}
	})
}

func FuzzChannels(f *testing.F) {
	f.Add([]byte("\x82\x83\x00\x00\x00\x00\x00hi\x82\x82\x00\x00\x00\x00\xff\x00"), streams.ProtocolV5)
	f.Add([]byte("\x81\x89\x00\x00\x00\x000aGVsbG8="), streams.ProtocolV1Base64)
	f.Fuzz(func(t *testing.T, in []byte, protocol string) {
		ws := streams.NewWebSocket(&wire{Reader: bytes.NewReader(in)}, nil, false)
		c := streams.NewChannels(ws, protocol, streams.Stdin, streams.Resize)
		for _, ch := range []byte{streams.Stdin, streams.Resize} {
			go io.Copy(io.Discard, c.Reader(ch))
		}
		if c.Run() == nil {
			t.Error("a connection that ended has no reason")
		}
	})
}

// What one side writes, the other reads.
func FuzzRoundTrip(f *testing.F) {
	f.Add([]byte("hello"), []byte{}, true)
	f.Fuzz(func(t *testing.T, one, two []byte, client bool) {
		w := &wire{Reader: strings.NewReader("")}
		ws := streams.NewWebSocket(w, nil, client)
		ws.Write(streams.OpBinary, one, two)
		ws.Ping()
		ws.Write(streams.OpText, two)
		there := streams.NewWebSocket(&wire{Reader: &w.sent}, nil, !client)
		var got [][]byte
		for range 2 {
			_, body, err := there.Next()
			if err != nil {
				t.Fatal(err)
			}
			data, err := io.ReadAll(body)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, append([]byte{}, data...))
		}
		if diff := cmp.Diff([][]byte{append(append([]byte{}, one...), two...), append([]byte{}, two...)}, got); diff != "" {
			t.Error(diff)
		}
	})
}

func BenchmarkChannel(b *testing.B) {
	w := &wire{Reader: strings.NewReader("")}
	c := streams.NewChannels(streams.NewWebSocket(w, nil, false), streams.ProtocolV5)
	out := c.Writer(streams.Stdout)
	data := make([]byte, 32<<10)
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		w.sent.Reset()
		out.Write(data)
	}
}
