package docker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
)

// maxAnswer limits a response, in bytes: enough for a thousand containers.
const maxAnswer = 8 << 20

// engine is a client of the Docker engine API. Its paths contain no version: the calls below
// are the same in every version since 1.24.
type engine struct {
	socket string
	client *http.Client
}

func newEngine(socket string) *engine {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}
	return &engine{socket: socket, client: &http.Client{Transport: &http.Transport{DialContext: dial, MaxIdleConnsPerHost: 4}}}
}

// statusError is a response with an error status.
type statusError struct {
	code    int
	message string
}

func (e *statusError) Error() string {
	return fmt.Sprintf("Docker engine: status %d: %s", e.code, e.message)
}

func isStatus(err error, code int) bool {
	var s *statusError
	return errors.As(err, &s) && s.code == code
}

// call sends body, unless it is nil, as JSON and decodes the response into out, unless that
// is nil. It has no timeout other than ctx.
func (e *engine) call(ctx context.Context, method, path string, query url.Values, body, out any) error {
	data, err := e.raw(ctx, method, path, query, body)
	if err != nil || out == nil {
		return err
	}
	if err := json.Unmarshal(data, out); err != nil {
		return fmt.Errorf("%s %s: read the engine's answer: %w", method, path, err)
	}
	return nil
}

func (e *engine) raw(ctx context.Context, method, path string, query url.Values, body any) ([]byte, error) {
	var send io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		send = bytes.NewReader(text)
	}
	u := url.URL{Scheme: "http", Host: "docker", Path: path, RawQuery: query.Encode()}
	req, err := http.NewRequestWithContext(ctx, method, u.String(), send)
	if err != nil {
		return nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := e.client.Do(req)
	if err != nil {
		return nil, e.explained(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return nil, fmt.Errorf("%s %s: read the engine's answer: %w", method, path, err)
	}
	if len(data) > maxAnswer {
		return nil, fmt.Errorf("%s %s: the engine's answer is longer than %d bytes", method, path, maxAnswer)
	}
	if resp.StatusCode >= 300 {
		return nil, fmt.Errorf("%s %s: %w", method, path, &statusError{resp.StatusCode, message(data)})
	}
	return data, nil
}

// message returns the message of an error response.
func message(data []byte) string {
	var answer struct{ Message string }
	if json.Unmarshal(data, &answer) == nil && answer.Message != "" {
		return answer.Message
	}
	const enough = 200
	return strings.ToValidUTF8(string(data[:min(len(data), enough)]), "?")
}

// explained adds to an error what to do if the engine cannot be reached.
func (e *engine) explained(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("there is no Docker engine's socket at %s: start this control plane's container with it mounted there, or name another in --cloud-config: %w", e.socket, err)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("this process may not use the Docker engine's socket %s: run it as root or in the socket's group: %w", e.socket, err)
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("connect to the Docker engine at %s: is the engine down? A socket mounted before its restart is stale: restart this container: %w", e.socket, err)
	}
	return fmt.Errorf("request to the Docker engine: %w", err)
}
