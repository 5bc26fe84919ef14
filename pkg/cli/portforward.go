package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"podium/pkg/backoff"
	"podium/pkg/cli/rest"
	"podium/pkg/client/remotecommand"
)

// portForwardOptions are the flags of port-forward.
type portForwardOptions struct {
	*Factory
	Target    string
	Ports     []string
	Addresses []string
	Patience  time.Duration
}

func newPortForward(f *Factory, run func(context.Context, *portForwardOptions) error) *cobra.Command {
	o := &portForwardOptions{Factory: f}
	cmd := &cobra.Command{
		Use:   "port-forward POD|TYPE/NAME [LOCAL:]REMOTE...",
		Short: "Forward one or more local ports to a pod",
		Example: `  podium port-forward web-1 8080:80
  podium port-forward service/web :http`,
		Args:              cobra.MinimumNArgs(2),
		ValidArgsFunction: f.completeNames("pods", "pod", "service", "deployment"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Target, o.Ports = args[0], args[1:]
			return run(cmd.Context(), o)
		},
	}
	cmd.Flags().StringSliceVar(&o.Addresses, "address", []string{"localhost"}, "addresses to listen on")
	patienceFlag(cmd, &o.Patience, time.Minute)
	return cmd
}

func runPortForward(ctx context.Context, o *portForwardOptions) error {
	c, err := o.Cluster()
	if err != nil {
		return err
	}
	pod, err := o.runningPod(ctx, c)
	if err != nil {
		return err
	}
	svc, err := o.service(ctx, c)
	if err != nil {
		return err
	}
	var ports []remotecommand.Port
	for _, spec := range o.Ports {
		local, remote, err := forwardedPort(spec, pod, svc)
		if err != nil {
			return err
		}
		for _, address := range o.Addresses {
			ports = append(ports, remotecommand.Port{Address: address, Local: local, Remote: remote})
		}
	}
	ready := make(chan []remotecommand.Port, 1)
	done := make(chan error, 1)
	go func() {
		done <- remotecommand.Forward(ctx, c.Client(), pod.Namespace, pod.Name, ports, ready, slog.New(&plainLog{w: o.Err, out: o.Out}))
	}()
	select {
	case err := <-done:
		return err
	case open := <-ready:
		for _, p := range open {
			fmt.Fprintf(o.Out, "Forwarding from %s -> %d\n", net.JoinHostPort(p.Address, strconv.Itoa(int(p.Local))), p.Remote)
		}
	}
	return <-done
}

// runningPod waits, for at most o.Patience, for a running pod of the target.
func (o *portForwardOptions) runningPod(ctx context.Context, c *rest.Cluster) (*corev1.Pod, error) {
	deadline := time.Now().Add(o.Patience)
	for {
		pods, err := awaitPods(ctx, o.Factory, c, o.Target, time.Until(deadline))
		if err != nil {
			return nil, err
		}
		if pods[0].Status.Phase == corev1.PodRunning {
			return &pods[0], nil
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("unable to forward port because pod is not running. Current status=%s", pods[0].Status.Phase)
		}
		if err := backoff.Sleep(ctx, lookPeriod); err != nil {
			return nil, err
		}
	}
}

// service returns the target if it is a Service, else nil.
func (o *portForwardOptions) service(ctx context.Context, c *rest.Cluster) (*corev1.Service, error) {
	word, name, typed := strings.Cut(o.Target, "/")
	if !typed {
		return nil, nil
	}
	k, err := c.Find(ctx, word)
	if err != nil || k.Group != "" || k.Kind != "Service" {
		return nil, err
	}
	namespace, _, err := o.Namespace()
	if err != nil {
		return nil, err
	}
	obj, err := c.Get(ctx, k, namespace, name)
	if err != nil {
		return nil, err
	}
	svc := &corev1.Service{}
	return svc, runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, svc)
}

// forwardedPort parses [LOCAL:]REMOTE. REMOTE may be a name; if svc is not nil
// it is the Service's port.
func forwardedPort(spec string, pod *corev1.Pod, svc *corev1.Service) (local, remote uint16, err error) {
	localText, remoteText, both := strings.Cut(spec, ":")
	if !both {
		remoteText = spec
	}
	remote, asked, err := remotePort(remoteText, pod, svc)
	if err != nil {
		return 0, 0, err
	}
	switch {
	case !both:
		return asked, remote, nil
	case localText == "":
		return 0, remote, nil
	}
	n, err := strconv.ParseUint(localText, 10, 16)
	if err != nil {
		return 0, 0, fmt.Errorf("error parsing local port %q: want LOCAL:REMOTE", localText)
	}
	return uint16(n), remote, nil
}

// remotePort returns the port of the pod, and the port number that the user
// asked for.
func remotePort(text string, pod *corev1.Pod, svc *corev1.Service) (remote, asked uint16, err error) {
	if svc != nil {
		for _, p := range svc.Spec.Ports {
			if p.Name != text && strconv.Itoa(int(p.Port)) != text {
				continue
			}
			if svc.Spec.ClusterIP == corev1.ClusterIPNone || p.TargetPort == (intstr.IntOrString{}) {
				return uint16(p.Port), uint16(p.Port), nil
			}
			n, err := containerPort(p.TargetPort, pod)
			return n, uint16(p.Port), err
		}
		return 0, 0, fmt.Errorf("service %s does not have a service port %s", svc.Name, text)
	}
	n, err := containerPort(intstr.Parse(text), pod)
	return n, n, err
}

// containerPort returns the number of a pod's port, which may be given by name.
func containerPort(p intstr.IntOrString, pod *corev1.Pod) (uint16, error) {
	if p.Type == intstr.Int {
		if p.IntVal < 1 || p.IntVal > 65535 {
			return 0, errors.New("remote port must be from 1 to 65535")
		}
		return uint16(p.IntVal), nil
	}
	for _, c := range pod.Spec.Containers {
		for _, cp := range c.Ports {
			if cp.Name == p.StrVal {
				return uint16(cp.ContainerPort), nil
			}
		}
	}
	return 0, fmt.Errorf("pod %q does not have a named port %q", pod.Name, p.StrVal)
}
