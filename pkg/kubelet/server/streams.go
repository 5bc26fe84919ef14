package server

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"podium/pkg/client/streams"
	"podium/pkg/kubelet/cri"
	"podium/pkg/kubelet/podspec"
)

// exec runs a command in a container and proxies its streams to the client.
func (s *server) exec(w http.ResponseWriter, r *http.Request) error {
	opts, err := streamOptions(r)
	if err != nil {
		return err
	}
	id, _, err := s.running(r)
	if err != nil {
		return err
	}
	resp, err := s.Runtime.Exec(r.Context(), &runtimeapi.ExecRequest{
		ContainerId: id, Cmd: r.URL.Query()[corev1.ExecCommandParam], Tty: opts.TTY, Stdin: opts.Stdin, Stdout: opts.Stdout, Stderr: opts.Stderr})
	if err != nil {
		return runtimeFailure(err)
	}
	target, err := s.target(resp.GetUrl())
	if err != nil {
		return err
	}
	return target.RemoteCommand(w, r, opts)
}

// attach proxies the streams of a container's main process to the client. The
// container's spec determines whether they are a terminal.
func (s *server) attach(w http.ResponseWriter, r *http.Request) error {
	opts, err := streamOptions(r)
	if err != nil {
		return err
	}
	id, tty, err := s.running(r)
	if err != nil {
		return err
	}
	opts.TTY = tty
	opts.Stderr = opts.Stderr && !tty
	resp, err := s.Runtime.Attach(r.Context(), &runtimeapi.AttachRequest{
		ContainerId: id, Tty: tty, Stdin: opts.Stdin, Stdout: opts.Stdout, Stderr: opts.Stderr})
	if err != nil {
		return runtimeFailure(err)
	}
	target, err := s.target(resp.GetUrl())
	if err != nil {
		return err
	}
	return target.RemoteCommand(w, r, opts)
}

// portForward proxies connections of the client to ports of a pod.
func (s *server) portForward(w http.ResponseWriter, r *http.Request) error {
	if err := mustUpgrade(r); err != nil {
		return err
	}
	var ports []int32
	for _, text := range r.URL.Query()["port"] {
		port, err := strconv.ParseUint(text, 10, 16)
		if err != nil || port == 0 {
			return failf(http.StatusBadRequest, "port %q is not between 1 and 65535", text)
		}
		ports = append(ports, int32(port))
	}
	pod, ok := s.find(r)
	if !ok {
		return failf(http.StatusNotFound, "pod does not exist")
	}
	sandboxes, err := s.Runtime.ListPodSandbox(r.Context(), &runtimeapi.ListPodSandboxRequest{Filter: &runtimeapi.PodSandboxFilter{
		LabelSelector: map[string]string{cri.LabelPodUID: string(pod.UID)},
		State:         &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_READY},
	}})
	if err != nil {
		return runtimeFailure(err)
	}
	if len(sandboxes.GetItems()) == 0 {
		return failf(http.StatusInternalServerError, "failed to find sandbox for pod %q", pod.Name+"_"+pod.Namespace)
	}
	resp, err := s.Runtime.PortForward(r.Context(), &runtimeapi.PortForwardRequest{PodSandboxId: sandboxes.Items[0].Id, Port: ports})
	if err != nil {
		return runtimeFailure(err)
	}
	target, err := s.target(resp.GetUrl())
	if err != nil {
		return err
	}
	return target.PortForward(w, r)
}

// streamOptions parses which streams the client requests.
func streamOptions(r *http.Request) (streams.Options, error) {
	q := r.URL.Query()
	on := func(name string) bool { return q.Get(name) == "1" || q.Get(name) == "true" }
	o := streams.Options{Stdin: on(corev1.ExecStdinParam), Stdout: on(corev1.ExecStdoutParam), Stderr: on(corev1.ExecStderrParam), TTY: on(corev1.ExecTTYParam)}
	if o.TTY {
		o.Stderr = false // a terminal has one output
	}
	if !o.Stdin && !o.Stdout && !o.Stderr {
		return o, failf(http.StatusBadRequest, "you must specify at least 1 of stdin, stdout, stderr")
	}
	return o, mustUpgrade(r)
}

func mustUpgrade(r *http.Request) error {
	if !streams.IsUpgrade(r) {
		return failf(http.StatusBadRequest, "Upgrade request required")
	}
	return nil
}

// running returns the container in the request's path if it is running.
func (s *server) running(r *http.Request) (id string, tty bool, err error) {
	name := r.PathValue("container")
	pod, ok := s.find(r)
	if !ok {
		return "", false, failf(http.StatusNotFound, "pod does not exist")
	}
	st := statusOf(pod, name)
	spec := podspec.Container(pod, name)
	if spec == nil || st == nil || st.State.Running == nil {
		return "", false, failf(http.StatusInternalServerError, "container not found (%q)", name)
	}
	return bareID(st.ContainerID), spec.TTY, nil
}

// target returns the streaming server at the URL that the runtime returned.
func (s *server) target(address string) (streams.Target, error) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return streams.Target{}, fmt.Errorf("the runtime's streaming address %q is not usable", address)
	}
	return streams.Target{URL: u, Transport: s.Streaming}, nil
}

// runtimeFailure converts an error of the runtime to one with an HTTP status code.
func runtimeFailure(err error) error {
	code := http.StatusInternalServerError
	switch status.Code(err) {
	case codes.NotFound:
		code = http.StatusNotFound
	case codes.ResourceExhausted:
		code = http.StatusTooManyRequests
	case codes.InvalidArgument:
		code = http.StatusBadRequest
	}
	return failf(code, "%s", cri.Message(err))
}
