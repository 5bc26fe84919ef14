package docker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// Engine is a Docker engine, used through the docker command. The zero value is
// ready to use, concurrently.
type Engine struct {
	// Run runs `docker ARGS`; nil: the real command. Its error includes the
	// command's standard error.
	Run func(ctx context.Context, stdin io.Reader, stdout io.Writer, args ...string) error
	// Trace is called after each command with its duration, concurrently; nil:
	// not called.
	Trace func(args []string, took time.Duration)
}

// output runs a command and returns its standard output, without surrounding
// space.
func (e *Engine) output(ctx context.Context, args ...string) (string, error) {
	var out bytes.Buffer
	err := e.run(ctx, nil, &out, args...)
	return strings.TrimSpace(out.String()), err
}

// lines returns the lines of a command's output; empty for no output.
func (e *Engine) lines(ctx context.Context, args ...string) ([]string, error) {
	out, err := e.output(ctx, args...)
	return strings.FieldsFunc(out, func(r rune) bool { return r == '\n' }), err
}

func (e *Engine) run(ctx context.Context, stdin io.Reader, stdout io.Writer, args ...string) error {
	run := e.Run
	if run == nil {
		run = runDocker
	}
	begin := time.Now()
	err := run(ctx, stdin, stdout, args...)
	if e.Trace != nil {
		e.Trace(args, time.Since(begin))
	}
	return explained(err)
}

func runDocker(ctx context.Context, stdin io.Reader, stdout io.Writer, args ...string) error {
	var complaint tail
	cmd := exec.CommandContext(ctx, "docker", args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, stdout, &complaint
	if args[0] == "logs" {
		cmd.Stderr = stdout // the container's standard error goes there
	}
	// On SIGINT docker also terminates the process that it runs in a container.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Run(); err != nil {
		return &CommandError{Args: args, Complaint: strings.TrimSpace(complaint.String()), Err: err}
	}
	return nil
}

// CommandError is the error of a docker command that failed.
type CommandError struct {
	Args      []string
	Complaint string // the end of its standard error
	Err       error
}

func (e *CommandError) Error() string {
	what := "docker " + strings.Join(e.Args[:min(2, len(e.Args))], " ")
	if e.Complaint == "" {
		return fmt.Sprintf("%s: %v", what, e.Err)
	}
	return what + ": " + e.Complaint
}

func (e *CommandError) Unwrap() error { return e.Err }

// advice maps common errors of the engine to advice; the first match applies.
var advice = []struct{ complaint, do string }{
	{"permission denied while trying to connect", "let this user access the engine (usermod -aG docker USER, then log in again), or run this as root"},
	{"Cannot connect to the Docker daemon", "start the engine (systemctl start docker), or set DOCKER_HOST to its address"},
	{"error during connect", "start the engine (systemctl start docker), or set DOCKER_HOST to its address"},
	{"port is already allocated", "a port of the host is in use: choose another in apiServerPort or extraPortMappings, or stop the process that listens there (ss -ltnp shows it)"},
	{"address already in use", "a port of the host is in use: choose another in apiServerPort or extraPortMappings, or stop the process that listens there (ss -ltnp shows it)"},
	{"is already in use by container", "a container that is not this cluster's has a node's name: choose another name for the cluster, or remove it (docker rm -f)"},
	{"bind source path does not exist", "make what extraMounts names as hostPath; if it is the engine's socket, leave cloud-controller-manager out: cloudProvider: none"},
	{"unable to apply caps", "the engine may not give what a node needs; it must run as real root with all capabilities but CAP_SYS_RESOURCE"},
	{"operation not permitted", "the engine may not give what a node needs (rootless engines may not): it must run as real root"},
	{"no space left on device", "make room on the engine's disk (docker system df; docker system prune)"},
	{"could not find an available", "the engine has no address range left for a network: remove unused ones (docker network prune)"},
}

// explained adds advice to an error of the engine. A nil error stays nil.
func explained(err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, exec.ErrNotFound) {
		return fmt.Errorf("docker is not installed\n    → install an engine and its command line (Debian: apt-get install docker.io), or make a cluster without: podium cluster create --provider local")
	}
	var failed *CommandError
	if errors.As(err, &failed) {
		for _, a := range advice {
			if strings.Contains(failed.Complaint, a.complaint) {
				return fmt.Errorf("%w\n    → %s", err, a.do)
			}
		}
	}
	return err
}

// tail is an io.Writer that keeps the last tailSize bytes. It is safe for
// concurrent use.
type tail struct {
	mu   sync.Mutex
	text []byte
}

const tailSize = 4 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	if len(t.text) > tailSize {
		t.text = t.text[len(t.text)-tailSize:]
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.text)
}
