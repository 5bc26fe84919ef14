package crifake

import (
	"context"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podium/pkg/kubelet/cri"
)

// Config says how the runtime behaves. The zero value is a runtime in which
// everything works at once and containers run for ever.
type Config struct {
	// Behave says what a container does once started; nil: it runs until stopped.
	Behave func(Start) Behaviour
	// Exec answers ExecSync; nil: exit code 0, no output.
	Exec func(ctx context.Context, c Container, command []string) ExecResult
	// Fault is asked before every call; its error, if any, is the answer.
	Fault func(operation string) error
	// Latency is how long a call takes; nil: no time.
	Latency func(operation string) time.Duration
	// IP gives each sandbox its address; nil: counted up from 10.88.0.2.
	IP func() string
	// Images are those present from the start.
	Images []string
	// Pull says whether an image can be pulled; nil: yes. An error that is no
	// gRPC status is answered as NotFound.
	Pull func(image string, auth *runtimeapi.AuthConfig) error
	// NoEvents makes GetContainerEvents unimplemented, as containerd 1.6 has it.
	NoEvents bool
	// NetworkDown is the runtime's NetworkReady condition, turned round.
	NetworkDown bool
	// UserNamespaces has Status report that the default handler supports them.
	UserNamespaces bool
	// CgroupDriver is what RuntimeConfig answers; nil: unimplemented.
	CgroupDriver *runtimeapi.CgroupDriver
}

// Start tells Behave what is starting.
type Start struct {
	Namespace, Pod, UID string
	Container, Image    string
	Attempt             uint32
	Command, Args       []string
	Env                 map[string]string
}

// Behaviour is a container's script.
type Behaviour struct {
	ExitAfter time.Duration // after its start; 0: never, unless Exits
	Exits     bool          // exits by itself, after ExitAfter
	ExitCode  int32
	StartErr  error         // StartContainer fails
	TermDelay time.Duration // from SIGTERM to its end
	TermCode  int32         // the exit code on SIGTERM
	Deaf      bool          // ignores SIGTERM: killed when the grace period ends
}

// ExecResult is the outcome of a command run in a container.
type ExecResult struct {
	Stdout, Stderr []byte
	ExitCode       int32
	Err            error
}

// Container is a container as tests see it.
type Container struct {
	ID, SandboxID            string
	Namespace, Pod, UID      string
	Name, Image              string
	Attempt                  uint32
	State                    runtimeapi.ContainerState
	Created, Started, Exited time.Time
	ExitCode                 int32
	Config                   *runtimeapi.ContainerConfig
}

// Runtime is the fake; it is both CRI clients at once.
type Runtime struct {
	// Calls the kubelet never makes are the nil interface's: they panic.
	runtimeapi.RuntimeServiceClient
	cfg Config

	mu         sync.Mutex
	down       bool
	next       int
	sandboxes  map[string]*sandbox
	containers map[string]*container
	images     map[string]*runtimeapi.Image
	calls      []string
	watchers   map[*eventStream]bool
}

var (
	_ cri.Runtime = (*Runtime)(nil)
	_ cri.Images  = ImageService{}
)

// New makes an empty runtime.
func New(cfg Config) *Runtime {
	r := &Runtime{
		cfg:        cfg,
		sandboxes:  map[string]*sandbox{},
		containers: map[string]*container{},
		images:     map[string]*runtimeapi.Image{},
		watchers:   map[*eventStream]bool{},
	}
	for _, image := range cfg.Images {
		r.addImage(image)
	}
	return r
}

// ImageService is the fake's other client.
func (r *Runtime) ImageService() ImageService { return ImageService{r: r} }

// SetDown makes every call fail, as when the runtime is stopped. Containers go
// on and end meanwhile.
func (r *Runtime) SetDown(down bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.down = down
	if down {
		for s := range r.watchers {
			s.end(status.Error(codes.Unavailable, "the runtime is down"))
			delete(r.watchers, s)
		}
	}
}

// Calls are the changing calls made so far, as "StartContainer pod/container".
func (r *Runtime) Calls() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.calls...)
}

// Containers lists what exists, oldest first.
func (r *Runtime) Containers() []Container {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []Container
	for _, c := range sorted(r.containers) {
		out = append(out, c.view())
	}
	return out
}

// Sandbox is what a sandbox was made with; nil if there is none by this id.
func (r *Runtime) Sandbox(id string) *runtimeapi.PodSandboxConfig {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.sandboxes[id]; s != nil {
		return s.config
	}
	return nil
}

// Sandboxes counts what exists.
func (r *Runtime) Sandboxes() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.sandboxes)
}

// ReadySandboxes counts those that are not stopped.
func (r *Runtime) ReadySandboxes() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, s := range r.sandboxes {
		if s.ready {
			n++
		}
	}
	return n
}

// Kill ends a running container from outside, as the kernel's OOM killer or an
// operator would.
func (r *Runtime) Kill(id string, exitCode int32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.containers[id]; c != nil {
		r.exitLocked(c, exitCode)
	}
}

// Write sets the size of a container's writable layer.
func (r *Runtime) Write(id string, bytes uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.containers[id]; c != nil {
		c.written = bytes
	}
}

// KillSandbox ends a sandbox and all in it, as a reboot would.
func (r *Runtime) KillSandbox(uid string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.sandboxes {
		if s.config.Metadata.Uid == uid {
			r.stopSandboxLocked(s)
		}
	}
}

// begin is what every call does first: it notes the call, takes its time, and
// fails if it must. What is nil for calls that change nothing.
func (r *Runtime) begin(ctx context.Context, op, what string) error {
	return r.beginAfter(ctx, r.latency(op), op, what)
}

func (r *Runtime) latency(op string) time.Duration {
	if r.cfg.Latency == nil {
		return 0
	}
	return r.cfg.Latency(op)
}

func (r *Runtime) beginAfter(ctx context.Context, d time.Duration, op, what string) error {
	if d > 0 {
		select {
		case <-time.After(d):
		case <-ctx.Done():
		}
	}
	if err := ctx.Err(); err != nil {
		return status.FromContextError(err).Err()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if what != "" {
		r.calls = append(r.calls, op+" "+what)
	}
	if r.down {
		return status.Error(codes.Unavailable, "the runtime is down")
	}
	if r.cfg.Fault != nil {
		return r.cfg.Fault(op)
	}
	return nil
}

func (r *Runtime) id(kind string) string {
	r.next++
	return fmt.Sprintf("%s%060d", kind, r.next)
}

// Version is CRI's.
func (r *Runtime) Version(ctx context.Context, _ *runtimeapi.VersionRequest, _ ...grpc.CallOption) (*runtimeapi.VersionResponse, error) {
	if err := r.begin(ctx, "Version", ""); err != nil {
		return nil, err
	}
	return &runtimeapi.VersionResponse{Version: "0.1.0", RuntimeName: "fake", RuntimeVersion: "1.0.0", RuntimeApiVersion: "v1"}, nil
}

// Status is CRI's.
func (r *Runtime) Status(ctx context.Context, _ *runtimeapi.StatusRequest, _ ...grpc.CallOption) (*runtimeapi.StatusResponse, error) {
	if err := r.begin(ctx, "Status", ""); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	network := &runtimeapi.RuntimeCondition{Type: runtimeapi.NetworkReady, Status: !r.cfg.NetworkDown}
	if r.cfg.NetworkDown {
		network.Reason, network.Message = "NetworkPluginNotReady", "cni plugin not initialized"
	}
	res := &runtimeapi.StatusResponse{Status: &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{
		{Type: runtimeapi.RuntimeReady, Status: true}, network,
	}}}
	if r.cfg.UserNamespaces {
		res.RuntimeHandlers = []*runtimeapi.RuntimeHandler{{Features: &runtimeapi.RuntimeHandlerFeatures{UserNamespaces: true}}}
	}
	return res, nil
}

// SetNetworkReady turns the network condition.
func (r *Runtime) SetNetworkReady(ready bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cfg.NetworkDown = !ready
}

// RuntimeConfig is CRI's.
func (r *Runtime) RuntimeConfig(ctx context.Context, _ *runtimeapi.RuntimeConfigRequest, _ ...grpc.CallOption) (*runtimeapi.RuntimeConfigResponse, error) {
	if err := r.begin(ctx, "RuntimeConfig", ""); err != nil {
		return nil, err
	}
	if r.cfg.CgroupDriver == nil {
		return nil, status.Error(codes.Unimplemented, "unknown method RuntimeConfig")
	}
	return &runtimeapi.RuntimeConfigResponse{Linux: &runtimeapi.LinuxRuntimeConfiguration{CgroupDriver: *r.cfg.CgroupDriver}}, nil
}

// UpdateRuntimeConfig is CRI's.
func (r *Runtime) UpdateRuntimeConfig(ctx context.Context, _ *runtimeapi.UpdateRuntimeConfigRequest, _ ...grpc.CallOption) (*runtimeapi.UpdateRuntimeConfigResponse, error) {
	return &runtimeapi.UpdateRuntimeConfigResponse{}, r.begin(ctx, "UpdateRuntimeConfig", "")
}
