package cri

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Conn is a connection to a container runtime. It reconnects after the runtime
// restarts; until then calls fail. It is safe for concurrent use.
type Conn struct {
	Runtime Runtime
	Images  Images
	Version *runtimeapi.VersionResponse

	conn *grpc.ClientConn
}

// Close closes the connection.
func (c *Conn) Close() error { return c.conn.Close() }

// Options are the options of a connection. The zero value has usable defaults.
type Options struct {
	RequestTimeout time.Duration // of calls that do not wait for a container or a pull; 0: two minutes
	Observe        Observer      // called after every call; may be nil
}

// An Observer receives the outcome of a call. operation is upstream's name of
// the call. An Observer must be safe for concurrent use.
type Observer func(operation string, took time.Duration, err error)

// Connect opens the runtime's socket and checks that the runtime serves CRI v1.
// It blocks until the runtime answers or ctx ends.
func Connect(ctx context.Context, endpoint string, o Options) (*Conn, error) {
	path, err := socketPath(endpoint)
	if err != nil {
		return nil, err
	}
	if o.RequestTimeout == 0 {
		o.RequestTimeout = 2 * time.Minute
	}
	cc, err := grpc.NewClient("passthrough:///"+path,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithAuthority("localhost"),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", addr)
		}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 3 * time.Second},
			MinConnectTimeout: 5 * time.Second,
		}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessageSize)),
		grpc.WithUnaryInterceptor(intercept(o)),
	)
	if err != nil {
		return nil, fmt.Errorf("open the container runtime's socket %s: %w", endpoint, err)
	}
	c := &Conn{Runtime: runtimeapi.NewRuntimeServiceClient(cc), Images: runtimeapi.NewImageServiceClient(cc), conn: cc}
	if c.Version, err = version(ctx, c.Runtime); err != nil {
		return nil, errors.Join(versionError(endpoint, err), cc.Close())
	}
	return c, nil
}

const retryPeriod = 100 * time.Millisecond

// version retries until the runtime answers or ctx ends. A runtime that has just
// started listens before it can answer ("server is not initialized yet").
func version(ctx context.Context, r Runtime) (*runtimeapi.VersionResponse, error) {
	for {
		v, err := r.Version(ctx, &runtimeapi.VersionRequest{Version: "v1"}, grpc.WaitForReady(true))
		if err == nil || Unimplemented(err) || ctx.Err() != nil {
			return v, err
		}
		select {
		case <-time.After(retryPeriod):
		case <-ctx.Done():
			return nil, err
		}
	}
}

func versionError(endpoint string, err error) error {
	if Unimplemented(err) {
		return fmt.Errorf("the container runtime at %s does not serve CRI v1 (containerd: version 1.6 or newer, and the cri plugin not in disabled_plugins): %w", endpoint, err)
	}
	return fmt.Errorf("the container runtime at %s does not answer (is it running, is --container-runtime-endpoint right?): %w", endpoint, err)
}

// socketPath accepts unix:///path and plain absolute paths.
func socketPath(endpoint string) (string, error) {
	path := strings.TrimPrefix(endpoint, "unix://")
	if !strings.HasPrefix(path, "/") {
		return "", fmt.Errorf("container runtime endpoint %q: want unix:///path/to/socket", endpoint)
	}
	return path, nil
}

// intercept sets a timeout for every call and reports the call to the observer.
func intercept(o Options) grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		if limit := callTimeout(req, o.RequestTimeout); limit > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, limit)
			defer cancel()
		}
		start := time.Now()
		err := invoke(ctx, method, req, reply, cc, opts...)
		if o.Observe != nil {
			o.Observe(operation(method), time.Since(start), err)
		}
		return err
	}
}

// callTimeout returns the timeout of a call; 0: only the caller's context bounds
// it. RunPodSandbox waits for the network, StopContainer for its grace period,
// ExecSync and CheckpointContainer for their own timeouts.
func callTimeout(req any, ordinary time.Duration) time.Duration {
	switch r := req.(type) {
	case *runtimeapi.RunPodSandboxRequest:
		return 2 * ordinary
	case *runtimeapi.StopContainerRequest:
		return ordinary + time.Duration(r.Timeout)*time.Second
	case *runtimeapi.CheckpointContainerRequest:
		return ordinary + time.Duration(r.Timeout)*time.Second
	case *runtimeapi.ExecSyncRequest:
		if r.Timeout == 0 {
			return 0
		}
		return ordinary + time.Duration(r.Timeout)*time.Second
	case *runtimeapi.PullImageRequest, *runtimeapi.VersionRequest:
		return 0
	}
	return ordinary
}

// operations maps CRI methods to upstream's values of the operation_type label.
var operations = map[string]string{
	"Version": "version", "Status": "status", "RuntimeConfig": "runtime_config",
	"RunPodSandbox": "run_podsandbox", "StopPodSandbox": "stop_podsandbox", "RemovePodSandbox": "remove_podsandbox",
	"PodSandboxStatus": "podsandbox_status", "ListPodSandbox": "list_podsandbox",
	"CreateContainer": "create_container", "StartContainer": "start_container", "StopContainer": "stop_container",
	"RemoveContainer": "remove_container", "ListContainers": "list_containers", "ContainerStatus": "container_status",
	"ExecSync": "exec_sync", "Exec": "exec", "Attach": "attach", "PortForward": "port_forward", "CheckpointContainer": "checkpoint_container",
	"UpdateContainerResources": "update_container", "ReopenContainerLog": "reopen_container_log",
	"ListContainerStats": "list_container_stats", "ContainerStats": "container_stats",
	"PodSandboxStats": "podsandbox_stats", "ListPodSandboxStats": "list_podsandbox_stats",
	"ListImages": "list_images", "ImageStatus": "image_status", "PullImage": "pull_image",
	"RemoveImage": "remove_image", "ImageFsInfo": "image_fs_info",
}

func operation(method string) string {
	name := method[strings.LastIndexByte(method, '/')+1:]
	if op, ok := operations[name]; ok {
		return op
	}
	return strings.ToLower(name)
}
