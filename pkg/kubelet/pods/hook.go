package pods

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podium/pkg/backoff"
	"podium/pkg/kubelet/probes"
	"podium/pkg/version"
)

const hookAgent = "kube-lifecycle/" + version.Major + "." + version.Minor

// hook runs a lifecycle handler. It blocks until the handler ends or ctx ends.
func (m *Manager) hook(ctx context.Context, pod *corev1.Pod, c *corev1.Container, id string, h *corev1.LifecycleHandler) error {
	switch {
	case h.Exec != nil:
		res, err := m.cfg.Runtime.ExecSync(ctx, &runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: h.Exec.Command})
		if err != nil {
			return err
		}
		if res.ExitCode != 0 {
			return fmt.Errorf("command '%s' exited with %d: %s", strings.Join(h.Exec.Command, " "), res.ExitCode, res.Stderr)
		}
		return nil
	case h.HTTPGet != nil:
		return m.httpHook(ctx, pod, c, h.HTTPGet)
	case h.Sleep != nil:
		return backoff.Sleep(ctx, time.Duration(h.Sleep.Seconds)*time.Second)
	}
	return errors.New("invalid handler: a lifecycle hook is exec, httpGet or sleep") // tcpSocket, which upstream does not run either
}

// httpHook sends the request; any response is a success. If the server does not
// speak HTTPS, it sends the request by HTTP (upstream issue 111447).
func (m *Manager) httpHook(ctx context.Context, pod *corev1.Pod, c *corev1.Container, action *corev1.HTTPGetAction) error {
	client := probes.HTTPClient(m.cfg.Probes.Check.Dial, 0)
	defer client.CloseIdleConnections()
	client.CheckRedirect = nil
	send := func(action *corev1.HTTPGetAction) error {
		req, err := probes.Request(ctx, pod, c, action, hookAgent)
		if err != nil {
			return err
		}
		res, err := client.Do(req)
		if err != nil {
			return err
		}
		_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, 10<<10))
		return res.Body.Close()
	}
	err := send(action)
	if err != nil && errors.Is(err, http.ErrSchemeMismatch) {
		plain := *action
		plain.Scheme = corev1.URISchemeHTTP
		return send(&plain)
	}
	return err
}
