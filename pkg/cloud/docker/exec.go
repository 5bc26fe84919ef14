package docker

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/http"
	"strings"
)

// run runs a command in a container and returns its standard output. If the command fails,
// the error contains its standard error.
func (e *engine) run(ctx context.Context, container string, command ...string) (string, error) {
	var made struct {
		ID string `json:"Id"`
	}
	err := e.call(ctx, http.MethodPost, "/containers/"+container+"/exec", nil,
		map[string]any{"AttachStdout": true, "AttachStderr": true, "Cmd": command}, &made)
	if err != nil {
		return "", err
	}
	stream, err := e.raw(ctx, http.MethodPost, "/exec/"+made.ID+"/start", nil, map[string]any{"Detach": false, "Tty": false})
	if err != nil {
		return "", err
	}
	stdout, stderr, err := split(stream)
	if err != nil {
		return "", err
	}
	var ended struct {
		ExitCode int
		Running  bool
	}
	if err := e.call(ctx, http.MethodGet, "/exec/"+made.ID+"/json", nil, nil, &ended); err != nil {
		return "", err
	}
	if ended.Running || ended.ExitCode != 0 {
		return "", fmt.Errorf("%s: exit code %d: %s", strings.Join(command, " "), ended.ExitCode, strings.TrimSpace(stderr))
	}
	return stdout, nil
}

// split demultiplexes the engine's stream: frames with a header of the stream's number (1:
// standard output, 2: standard error), three zero bytes, and the length of the payload.
func split(stream []byte) (stdout, stderr string, err error) {
	const header = 8
	var out, complaint strings.Builder
	for len(stream) > 0 {
		if len(stream) < header {
			return "", "", fmt.Errorf("the engine's stream ends in a frame's header")
		}
		n := binary.BigEndian.Uint32(stream[4:header])
		if uint64(n) > uint64(len(stream)-header) {
			return "", "", fmt.Errorf("the engine's stream ends %d bytes before its frame does", uint64(n)-uint64(len(stream)-header))
		}
		frame := stream[header : header+int(n)]
		switch stream[0] {
		case 1:
			out.Write(frame)
		case 2:
			complaint.Write(frame)
		default:
			return "", "", fmt.Errorf("the engine's stream has a frame of kind %d", stream[0])
		}
		stream = stream[header+int(n):]
	}
	return out.String(), complaint.String(), nil
}
