package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	corev1 "k8s.io/api/core/v1"

	"podium/pkg/backoff"
	"podium/pkg/cli/rest"
	"podium/pkg/client"
)

// lookPeriod is the time between two looks at a pod that is about to start or to end.
const lookPeriod = 500 * time.Millisecond

// attachTries is how often follow attaches after errors: a container that has ended
// meanwhile is shown as running until its status is reported.
const attachTries = 10

// follow waits until a new container has started, for StartTimeout at most, and attaches
// to it. If it has ended by then, follow prints its log.
func (o *execOptions) follow(ctx context.Context, pod *corev1.Pod, container string) error {
	waits, tries, deadline := "", 0, time.Now().Add(o.StartTimeout)
	return o.watchState(ctx, pod, container, func(c *rest.Cluster, k *rest.Kind, now *corev1.Pod, state corev1.ContainerState) (bool, error) {
		switch {
		case state.Running != nil:
			if tries++; tries == 1 {
				o.note("If you don't see a command prompt, try pressing enter.")
			}
			err := o.stream(ctx, now, "attach", url.Values{"container": {container}})
			var exit *exitError
			if err == nil || errors.As(err, &exit) || tries == attachTries || ctx.Err() != nil {
				return true, err
			}
		case state.Terminated != nil:
			log, _, err := c.Do(ctx, client.Request{Path: k.Path(pod.Namespace, pod.Name, "log"), Query: url.Values{"container": {container}}})
			if err == nil {
				_, err = o.Out.Write(log)
			}
			return true, err
		case tries == 0 && o.StartTimeout > 0 && time.Now().After(deadline):
			return true, fmt.Errorf("timed out waiting for container %s to start: %s", container, cmp.Or(waits, "the kubelet has not reported it"))
		case state.Waiting != nil && state.Waiting.Reason != waits:
			waits = state.Waiting.Reason
			o.note("Waiting for container " + container + ": " + waits)
		}
		return false, nil
	})
}

// exitCode waits until a container has ended and returns its exit code.
func (o *execOptions) exitCode(ctx context.Context, pod *corev1.Pod, container string) (code int, err error) {
	err = o.watchState(ctx, pod, container, func(_ *rest.Cluster, _ *rest.Kind, _ *corev1.Pod, state corev1.ContainerState) (bool, error) {
		if state.Terminated == nil {
			return false, nil
		}
		code = int(state.Terminated.ExitCode)
		return true, nil
	})
	return code, err
}

// watchState calls look with the state of a container until it returns true or an error.
func (o *execOptions) watchState(ctx context.Context, pod *corev1.Pod, container string, look func(*rest.Cluster, *rest.Kind, *corev1.Pod, corev1.ContainerState) (bool, error)) error {
	c, err := o.Cluster()
	if err != nil {
		return err
	}
	k, err := c.Find(ctx, "pods")
	if err != nil {
		return err
	}
	for {
		obj, err := c.Get(ctx, k, pod.Namespace, pod.Name)
		if err != nil {
			return err
		}
		now, err := toPod(obj)
		if err != nil {
			return err
		}
		if done, err := look(c, k, &now, stateOf(&now, container)); done || err != nil {
			return err
		}
		if err := backoff.Sleep(ctx, lookPeriod); err != nil {
			return err
		}
	}
}

// stateOf returns the state of a container of any type.
func stateOf(pod *corev1.Pod, name string) corev1.ContainerState {
	for _, list := range [][]corev1.ContainerStatus{pod.Status.ContainerStatuses, pod.Status.EphemeralContainerStatuses} {
		for i := range list {
			if list[i].Name == name {
				return list[i].State
			}
		}
	}
	return corev1.ContainerState{}
}
