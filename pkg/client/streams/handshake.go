package streams

import (
	"bufio"
	"crypto/rand"
	"crypto/sha1"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
)

// IsUpgrade reports whether a request asks to switch protocols.
func IsUpgrade(r *http.Request) bool { return hasToken(r.Header, "Connection", "upgrade") }

// IsWebSocket reports whether a request asks for a WebSocket.
func IsWebSocket(r *http.Request) bool {
	return IsUpgrade(r) && strings.EqualFold(r.Header.Get("Upgrade"), "websocket")
}

// WantsProtocol reports whether a WebSocket request offers a subprotocol.
func WantsProtocol(r *http.Request, protocol string) bool {
	return IsWebSocket(r) && slices.Contains(protocols(r.Header), protocol)
}

func hasToken(h http.Header, name, token string) bool {
	for _, line := range h.Values(name) {
		for t := range strings.SplitSeq(line, ",") {
			if strings.EqualFold(strings.TrimSpace(t), token) {
				return true
			}
		}
	}
	return false
}

func protocols(h http.Header) []string {
	var out []string
	for _, line := range h.Values("Sec-Websocket-Protocol") {
		for p := range strings.SplitSeq(line, ",") {
			if p = strings.TrimSpace(p); p != "" {
				out = append(out, p)
			}
		}
	}
	return out
}

// Negotiate returns the first subprotocol of the client that is in served. A client
// that offers none gets "" if served contains it; otherwise it is an error.
func Negotiate(r *http.Request, served []string) (string, error) {
	offered := protocols(r.Header)
	if len(offered) == 0 && slices.Contains(served, "") {
		return "", nil
	}
	for _, p := range offered {
		if slices.Contains(served, p) {
			return p, nil
		}
	}
	return "", fmt.Errorf("requested protocol(s) are not supported: %v; supports %v", offered, served)
}

// Accept accepts a WebSocket request and hijacks the connection. On an error nothing has
// been written, unless the connection itself failed.
func Accept(w http.ResponseWriter, r *http.Request, protocol string) (*WebSocket, error) {
	key := r.Header.Get("Sec-Websocket-Key")
	switch {
	case r.Method != http.MethodGet || !IsWebSocket(r):
		return nil, errors.New("not a websocket request")
	case r.Header.Get("Sec-Websocket-Version") != "13":
		return nil, errors.New("only websocket version 13 is served")
	case key == "":
		return nil, errors.New("the websocket request has no key")
	}
	h := http.Header{"Upgrade": {"websocket"}, "Connection": {"Upgrade"}, "Sec-Websocket-Accept": {acceptKey(key)}}
	if protocol != "" {
		h.Set("Sec-Websocket-Protocol", protocol)
	}
	conn, in, err := switchTo(w, h)
	if err != nil {
		return nil, err
	}
	return NewWebSocket(conn, in, false), nil
}

// switchTo writes the 101 response and hijacks the connection.
func switchTo(w http.ResponseWriter, h http.Header) (net.Conn, *bufio.Reader, error) {
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil, nil, fmt.Errorf("take the connection over: %w", err)
	}
	head := "HTTP/1.1 101 Switching Protocols\r\n"
	var b strings.Builder
	b.WriteString(head)
	h.Write(&b)
	b.WriteString("\r\n")
	if _, err := io.WriteString(conn, b.String()); err != nil {
		conn.Close()
		return nil, nil, err
	}
	return conn, rw.Reader, nil
}

// WebSocketHeader returns the headers of a client's WebSocket request.
func WebSocketHeader(protocols ...string) http.Header {
	var nonce [16]byte
	rand.Read(nonce[:]) // never fails
	return http.Header{
		"Connection":             {"Upgrade"},
		"Upgrade":                {"websocket"},
		"Sec-Websocket-Version":  {"13"},
		"Sec-Websocket-Key":      {base64.StdEncoding.EncodeToString(nonce[:])},
		"Sec-Websocket-Protocol": {strings.Join(protocols, ", ")},
	}
}

// CheckAccepted verifies a server's 101 response to the request and returns the
// subprotocol.
func CheckAccepted(request, response http.Header) (protocol string, err error) {
	if !strings.EqualFold(response.Get("Upgrade"), "websocket") || response.Get("Sec-Websocket-Accept") != acceptKey(request.Get("Sec-Websocket-Key")) {
		return "", errors.New("the server switched to another protocol than the requested WebSocket subprotocol")
	}
	protocol = response.Get("Sec-Websocket-Protocol")
	if !slices.Contains(protocols(request), protocol) {
		return "", fmt.Errorf("the server chose the protocol %q, which was not offered", protocol)
	}
	return protocol, nil
}

func acceptKey(key string) string {
	sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11")) // RFC 6455, 1.3
	return base64.StdEncoding.EncodeToString(sum[:])
}
