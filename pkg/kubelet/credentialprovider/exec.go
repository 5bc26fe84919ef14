package credentialprovider

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/kubelet/images"
)

// Limits of a program: how long it may run, and how much it may write.
const (
	execTimeout = time.Minute
	maxResponse = 1 << 20
)

// The keys of the cache that a program may ask for.
const (
	keyImage    = "Image"
	keyRegistry = "Registry"
	keyGlobal   = "Global"
)

// request is the input of a program.
type request struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Image      string `json:"image"`
}

// response is the output of a program.
type response struct {
	APIVersion    string           `json:"apiVersion"`
	Kind          string           `json:"kind"`
	CacheKeyType  string           `json:"cacheKeyType"`
	CacheDuration *metav1.Duration `json:"cacheDuration"` // nil: the default of the config file
	Auth          images.Auths     `json:"auth"`
}

// Run runs a program with a text as its input and returns its output. It blocks until
// the program exits or ctx ends, which kills the program.
type Run func(ctx context.Context, path string, args, env []string, input []byte) ([]byte, error)

// Exec is the Run of real programs. It kills a program, with its children, that writes
// more than a response can have. Its errors quote nothing that a program writes: that
// may be secret.
func Exec(ctx context.Context, path string, args, env []string, input []byte) ([]byte, error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdin = bytes.NewReader(input)
	out := &limited{full: stop}
	cmd.Stdout = out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second // a child in a group of its own may hold the output open
	if err := cmd.Run(); err != nil {
		return nil, errors.Join(context.Cause(ctx), err)
	}
	return out.buffer.Bytes(), nil
}

// limited is a buffer of at most maxResponse bytes. It calls full when there are more. It
// does not embed its buffer, whose ReadFrom would pass by the limit.
type limited struct {
	buffer bytes.Buffer
	full   context.CancelCauseFunc
}

func (l *limited) Write(p []byte) (int, error) {
	if l.buffer.Len()+len(p) > maxResponse {
		err := fmt.Errorf("the output exceeds %d bytes", maxResponse)
		l.full(err)
		return 0, err
	}
	return l.buffer.Write(p)
}

// parseResponse parses the output of a program. Its errors do not quote the output.
func parseResponse(data []byte) (*response, error) {
	r := &response{}
	if json.Unmarshal(data, r) != nil {
		return nil, errors.New("the output is not a response in JSON")
	}
	if r.APIVersion != protocolVersion || r.Kind != "CredentialProviderResponse" {
		return nil, fmt.Errorf("the output is not of apiVersion %s, kind CredentialProviderResponse", protocolVersion)
	}
	switch r.CacheKeyType {
	case keyImage, keyRegistry, keyGlobal:
	default:
		return nil, fmt.Errorf("the response has no cacheKeyType of %s, %s and %s", keyImage, keyRegistry, keyGlobal)
	}
	return r, nil
}
