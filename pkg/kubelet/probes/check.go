package probes

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podium/pkg/kubelet/cri"
	"podium/pkg/version"
)

// UserAgent is the User-Agent of probes, with the version of the implemented API.
const UserAgent = "kube-probe/" + version.Major + "." + version.Minor

// maxOutput limits the output of a probe in bytes.
const maxOutput = 10 * 1024

// Dial opens connections to containers. Tests and simulations replace it.
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

// Checker runs single checks. It is safe for concurrent use.
type Checker struct {
	Runtime cri.Runtime
	Dial    Dial
}

// Check runs the probe once. It blocks for at most the probe's timeout.
func (k Checker) Check(ctx context.Context, pod *corev1.Pod, c *corev1.Container, id string, spec *corev1.Probe) Result {
	timeout := seconds(spec.TimeoutSeconds, 1)
	switch {
	case spec.Exec != nil:
		return k.exec(ctx, id, spec.Exec.Command, timeout)
	case spec.HTTPGet != nil:
		return k.http(ctx, pod, c, spec.HTTPGet, timeout)
	case spec.TCPSocket != nil:
		return k.tcp(ctx, pod, c, spec.TCPSocket, timeout)
	case spec.GRPC != nil:
		return k.grpc(ctx, pod, spec.GRPC, timeout)
	}
	return Result{Unknown, fmt.Sprintf("missing probe handler for %s/%s:%s", pod.Namespace, pod.Name, c.Name)}
}

func (k Checker) exec(ctx context.Context, id string, command []string, timeout time.Duration) Result {
	res, err := k.Runtime.ExecSync(ctx, &runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: command, Timeout: int64(timeout / time.Second)})
	switch {
	case err == nil && res.ExitCode == 0:
		return Result{Success, output(res)}
	case err == nil:
		return Result{Failure, output(res)}
	case status.Code(err) == codes.DeadlineExceeded && ctx.Err() == nil:
		return Result{Failure, fmt.Sprintf("command timed out: %q timed out after %v", command, timeout)}
	}
	return Result{Unknown, err.Error()}
}

func output(res *runtimeapi.ExecSyncResponse) string {
	out := append(append([]byte(nil), res.Stdout...), res.Stderr...)
	return string(out[:min(len(out), maxOutput)])
}

func (k Checker) tcp(ctx context.Context, pod *corev1.Pod, c *corev1.Container, action *corev1.TCPSocketAction, timeout time.Duration) Result {
	port, err := Port(action.Port, c)
	if err != nil {
		return Result{Unknown, err.Error()}
	}
	host, err := hostOf(action.Host, pod)
	if err != nil {
		return Result{Unknown, err.Error()}
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	conn, err := k.Dial(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(port)))
	if err != nil {
		return Result{Failure, err.Error()}
	}
	conn.Close()
	return Result{Success, ""}
}

func (k Checker) grpc(ctx context.Context, pod *corev1.Pod, action *corev1.GRPCAction, timeout time.Duration) Result {
	service := ""
	if action.Service != nil {
		service = *action.Service
	}
	host, err := hostOf("", pod)
	if err != nil {
		return Result{Unknown, err.Error()}
	}
	addr := net.JoinHostPort(host, strconv.Itoa(int(action.Port)))
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	conn, err := grpc.NewClient("passthrough:///"+addr,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithUserAgent(UserAgent),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) { return k.Dial(ctx, "tcp", addr) }))
	if err != nil {
		return Result{Unknown, err.Error()}
	}
	defer conn.Close()
	res, err := healthpb.NewHealthClient(conn).Check(metadata.NewOutgoingContext(ctx, metadata.MD{}), &healthpb.HealthCheckRequest{Service: service}, grpc.WaitForReady(true))
	if err != nil {
		return Result{Failure, grpcError(ctx, addr, timeout, err)}
	}
	if res.Status != healthpb.HealthCheckResponse_SERVING {
		return Result{Failure, fmt.Sprintf("service unhealthy (responded with %q)", res.Status.String())}
	}
	return Result{Success, "service healthy"}
}

func grpcError(ctx context.Context, addr string, timeout time.Duration, err error) string {
	switch status.Code(err) {
	case codes.Unimplemented:
		return fmt.Sprintf("error: this server does not implement the grpc health protocol (grpc.health.v1.Health): %s", status.Convert(err).Message())
	case codes.DeadlineExceeded:
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return fmt.Sprintf("timeout: failed to connect service %q within %v: %v", addr, timeout, ctx.Err())
		}
		return fmt.Sprintf("timeout: health rpc did not complete within %v", timeout)
	}
	return fmt.Sprintf("error: health rpc failed: %v", err)
}

// errNoAddress prevents a probe from reaching the node itself: an empty host means
// the local machine.
var errNoAddress = errors.New("the pod has no address")

// hostOf returns the host that the handler names, or else the pod's IP.
func hostOf(named string, pod *corev1.Pod) (string, error) {
	switch {
	case named != "":
		return named, nil
	case pod.Status.PodIP == "":
		return "", errNoAddress
	}
	return pod.Status.PodIP, nil
}

// Port returns the number of a port that is given by number or by the name of a
// container port.
func Port(p intstr.IntOrString, c *corev1.Container) (int, error) {
	if p.Type == intstr.Int {
		return valid(p.IntValue())
	}
	for _, named := range c.Ports {
		if named.Name == p.StrVal {
			return valid(int(named.ContainerPort))
		}
	}
	if n, err := strconv.Atoi(p.StrVal); err == nil {
		return valid(n)
	}
	return 0, fmt.Errorf("couldn't find port: %q in container %q", p.StrVal, c.Name)
}

func valid(n int) (int, error) {
	if n <= 0 || n > 65535 {
		return 0, fmt.Errorf("invalid port number: %v", n)
	}
	return n, nil
}
