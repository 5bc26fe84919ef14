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

// Config configures the runtime's behaviour. In the zero value all calls succeed
// at once and containers run until they are stopped.
type Config struct {
	// Behave returns the script of a started container; nil: it runs until stopped.
	Behave func(Start) Behaviour
	// Exec answers ExecSync; nil: exit code 0 and no output.
	Exec func(ctx context.Context, c Container, command []string) ExecResult
	// Limit returns an error if a container of a pod cannot have the resources;
	// nil: it can.
	Limit func(Container, *runtimeapi.LinuxContainerResources) error
	// Fault is called on every call; the call fails with its error, if any.
	Fault func(operation string) error
	// Latency returns how long a call takes; nil: 0.
	Latency func(operation string) time.Duration
	// IP returns the address of a new sandbox; nil: addresses in 10.88.0.0/16.
	IP func() string
	// Images are the images that are present from the start.
	Images []string
	// Pull returns an error if an image cannot be pulled; nil: every image can.
	// An error that is not a gRPC status becomes NotFound.
	Pull func(image string, auth *runtimeapi.AuthConfig) error
	// Checkpoint returns the content of a checkpoint, or an error; nil: the runtime does not
	// implement checkpoints.
	Checkpoint func(ctx context.Context, c Container) ([]byte, error)
	// NoEvents makes GetContainerEvents unimplemented, as in containerd 1.6.
	NoEvents bool
	// NetworkDown makes the runtime's NetworkReady condition false.
	NetworkDown bool
	// UserNamespaces makes Status report that the default handler supports them.
	UserNamespaces bool
	// RecursiveReadOnly makes Status report that the default handler supports such mounts.
	RecursiveReadOnly bool
	// StrictGroups makes Status report that the runtime supports supplementalGroupsPolicy.
	StrictGroups bool
	// StopSignals makes the runtime stop containers with the signal of their
	// configuration, and report it.
	StopSignals bool
	// Containerd is the version of containerd that the runtime says it is; "": it says that
	// it is a fake.
	Containerd string
	// CgroupDriver is the answer of RuntimeConfig; nil: unimplemented.
	CgroupDriver *runtimeapi.CgroupDriver
}

// Start describes a container that starts, for Config.Behave.
type Start struct {
	Namespace, Pod, UID string
	Container, Image    string
	Attempt             uint32
	Command, Args       []string
	Env                 map[string]string
}

// Behaviour is the script of a container.
type Behaviour struct {
	ExitAfter time.Duration // after the start; 0: never, unless Exits is set
	Exits     bool          // the container exits by itself, after ExitAfter
	ExitCode  int32
	StartErr  error         // the error of StartContainer
	TermDelay time.Duration // from SIGTERM to the exit
	TermCode  int32         // the exit code on SIGTERM
	Deaf      bool          // ignores SIGTERM and is killed when the grace period ends
}

// ExecResult is the outcome of a command run in a container.
type ExecResult struct {
	Stdout, Stderr []byte
	ExitCode       int32
	Err            error
}

// Container is a snapshot of a container, for tests.
type Container struct {
	ID, SandboxID            string
	Namespace, Pod, UID      string
	Name, Image              string
	Attempt                  uint32
	State                    runtimeapi.ContainerState
	Created, Started, Exited time.Time
	ExitCode                 int32
	Config                   *runtimeapi.ContainerConfig
	Linux                    *runtimeapi.LinuxContainerResources // as last updated
}

// Runtime is the fake's runtime client; ImageService returns its image client.
// It is safe for concurrent use.
type Runtime struct {
	// The nil interface: calls that the kubelet never makes panic.
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

// New returns a runtime without sandboxes and containers.
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

// ImageService returns the image client of the runtime.
func (r *Runtime) ImageService() ImageService { return ImageService{r: r} }

// SetDown makes every call fail with Unavailable, as if the runtime was stopped.
// Containers continue to run and to exit meanwhile.
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

// Calls returns the state-changing calls so far, as "StartContainer pod/container".
func (r *Runtime) Calls() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.calls...)
}

// Containers returns all containers, oldest first.
func (r *Runtime) Containers() []Container {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []Container
	for _, c := range sorted(r.containers) {
		out = append(out, c.view())
	}
	return out
}

// Sandbox returns the configuration of a sandbox; nil if there is none with id.
func (r *Runtime) Sandbox(id string) *runtimeapi.PodSandboxConfig {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.sandboxes[id]; s != nil {
		return s.config
	}
	return nil
}

// Sandboxes returns the number of sandboxes.
func (r *Runtime) Sandboxes() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.sandboxes)
}

// ReadySandboxes returns the number of sandboxes that are not stopped.
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

// Kill ends a running container with exitCode, as the kernel's OOM killer or an
// operator would. It ignores an unknown id.
func (r *Runtime) Kill(id string, exitCode int32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.containers[id]; c != nil {
		r.exitLocked(c, exitCode)
	}
}

// Write sets the size of a container's writable layer. It ignores an unknown id.
func (r *Runtime) Write(id string, bytes uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.containers[id]; c != nil {
		c.written = bytes
	}
}

// Use sets the memory that a container uses. It ignores an unknown id.
func (r *Runtime) Use(id string, bytes uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.containers[id]; c != nil {
		c.memory = bytes
	}
}

// KillSandbox stops the sandboxes of the pod uid and their containers, as a
// reboot would.
func (r *Runtime) KillSandbox(uid string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.sandboxes {
		if s.config.Metadata.Uid == uid {
			r.stopSandboxLocked(s)
		}
	}
}

// begin starts every call: it waits for the latency, records the call, and
// returns the fault, if any. what is empty for calls that change nothing.
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

// Version implements the CRI call.
func (r *Runtime) Version(ctx context.Context, _ *runtimeapi.VersionRequest, _ ...grpc.CallOption) (*runtimeapi.VersionResponse, error) {
	if err := r.begin(ctx, "Version", ""); err != nil {
		return nil, err
	}
	name, version := "fake", "1.0.0"
	if r.cfg.Containerd != "" {
		name, version = "containerd", r.cfg.Containerd
	}
	return &runtimeapi.VersionResponse{Version: "0.1.0", RuntimeName: name, RuntimeVersion: version, RuntimeApiVersion: "v1"}, nil
}

// Status implements the CRI call.
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
	if r.cfg.UserNamespaces || r.cfg.RecursiveReadOnly {
		res.RuntimeHandlers = []*runtimeapi.RuntimeHandler{{Features: &runtimeapi.RuntimeHandlerFeatures{
			UserNamespaces: r.cfg.UserNamespaces, RecursiveReadOnlyMounts: r.cfg.RecursiveReadOnly,
		}}}
	}
	if r.cfg.StrictGroups {
		res.Features = &runtimeapi.RuntimeFeatures{SupplementalGroupsPolicy: true}
	}
	return res, nil
}

// SetNetworkReady sets the NetworkReady condition.
func (r *Runtime) SetNetworkReady(ready bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cfg.NetworkDown = !ready
}

// RuntimeConfig implements the CRI call.
func (r *Runtime) RuntimeConfig(ctx context.Context, _ *runtimeapi.RuntimeConfigRequest, _ ...grpc.CallOption) (*runtimeapi.RuntimeConfigResponse, error) {
	if err := r.begin(ctx, "RuntimeConfig", ""); err != nil {
		return nil, err
	}
	if r.cfg.CgroupDriver == nil {
		return nil, status.Error(codes.Unimplemented, "unknown method RuntimeConfig")
	}
	return &runtimeapi.RuntimeConfigResponse{Linux: &runtimeapi.LinuxRuntimeConfiguration{CgroupDriver: *r.cfg.CgroupDriver}}, nil
}

// UpdateRuntimeConfig implements the CRI call. It does nothing.
func (r *Runtime) UpdateRuntimeConfig(ctx context.Context, _ *runtimeapi.UpdateRuntimeConfigRequest, _ ...grpc.CallOption) (*runtimeapi.UpdateRuntimeConfigResponse, error) {
	return &runtimeapi.UpdateRuntimeConfigResponse{}, r.begin(ctx, "UpdateRuntimeConfig", "")
}
