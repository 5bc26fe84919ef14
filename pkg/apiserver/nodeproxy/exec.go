package nodeproxy

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"podium/pkg/client/streams"
)

// podExec and podAttach serve pods/exec and pods/attach.
func (p *Proxy) podExec(req *request) error   { return p.remoteCommand(req, "exec") }
func (p *Proxy) podAttach(req *request) error { return p.remoteCommand(req, "attach") }

// remoteCommand serves exec and attach through the pod's kubelet.
func (p *Proxy) remoteCommand(req *request, what string) error {
	q := req.r.URL.Query()
	pod, err := get[*corev1.Pod](req, "pods", req.namespace, req.name)
	if err != nil {
		return err
	}
	container, err := pickContainer(pod, q.Get("container"))
	if err != nil {
		return err
	}
	k, err := p.host(req, pod)
	if err != nil {
		return err
	}
	opts := streams.Options{Stdin: flag(q, "stdin"), Stdout: flag(q, "stdout"), Stderr: flag(q, "stderr"), TTY: flag(q, "tty")}
	out := url.Values{}
	for name, on := range map[string]bool{corev1.ExecStdinParam: opts.Stdin, corev1.ExecStdoutParam: opts.Stdout,
		corev1.ExecStderrParam: opts.Stderr, corev1.ExecTTYParam: opts.TTY} {
		if on {
			out.Set(name, "1")
		}
	}
	if what == "exec" {
		out[corev1.ExecCommandParam] = q["command"]
	}
	target := p.target(k, k.url(out, what, pod.Namespace, pod.Name, container))
	return dialing(target.RemoteCommand(req.w, req.r, opts))
}

// podPortForward forwards connections to ports of the pod through its kubelet.
func (p *Proxy) podPortForward(req *request) error {
	pod, err := get[*corev1.Pod](req, "pods", req.namespace, req.name)
	if err != nil {
		return err
	}
	k, err := p.host(req, pod)
	if err != nil {
		return err
	}
	out := url.Values{}
	if ports := req.r.URL.Query()["ports"]; len(ports) > 0 {
		out["port"] = strings.Split(strings.Join(ports, ","), ",")
	}
	target := p.target(k, k.url(out, "portForward", pod.Namespace, pod.Name))
	return dialing(target.PortForward(req.w, req.r))
}

// host returns the kubelet of the pod's node, for a request that must be an
// upgrade to a streaming protocol.
func (p *Proxy) host(req *request, pod *corev1.Pod) (*kubelet, error) {
	if pod.Spec.NodeName == "" {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("pod %s does not have a host assigned", req.name))
	}
	if !streams.IsUpgrade(req.r) {
		return nil, apierrors.NewBadRequest("Upgrade request required")
	}
	return p.kubelet(req, pod.Spec.NodeName)
}

// dialing returns the API error for a failure to open a stream, with upstream's
// text.
func dialing(err error) error {
	var bad *streams.RequestError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &bad):
		return apierrors.NewBadRequest(err.Error())
	}
	return unreachable(fmt.Errorf("error dialing backend: %w", err))
}

// pickContainer returns the container that a request names, or the pod's only
// one if name is empty.
func pickContainer(pod *corev1.Pod, name string) (string, error) {
	all := containers(pod)
	if name != "" {
		if !slices.Contains(all, name) {
			return "", apierrors.NewBadRequest(fmt.Sprintf("container %s is not valid for pod %s", name, pod.Name))
		}
		return name, nil
	}
	switch len(pod.Spec.Containers) {
	case 0:
		return "", apierrors.NewBadRequest(fmt.Sprintf("a container name must be specified for pod %s", pod.Name))
	case 1:
		return pod.Spec.Containers[0].Name, nil
	}
	return "", apierrors.NewBadRequest(fmt.Sprintf("a container name must be specified for pod %s, choose one of: %s", pod.Name, all))
}

// containers returns the names of all containers of a pod, in upstream's order.
func containers(pod *corev1.Pod) []string {
	var names []string
	for i := range pod.Spec.InitContainers {
		names = append(names, pod.Spec.InitContainers[i].Name)
	}
	for i := range pod.Spec.Containers {
		names = append(names, pod.Spec.Containers[i].Name)
	}
	for i := range pod.Spec.EphemeralContainers {
		names = append(names, pod.Spec.EphemeralContainers[i].Name)
	}
	return names
}

// flag returns a boolean query parameter: true if it is present, unless its
// value is 0 or false.
func flag(q url.Values, name string) bool {
	v, ok := q[name]
	if !ok {
		return false
	}
	return len(v) == 0 || v[0] != "0" && !strings.EqualFold(v[0], "false")
}
