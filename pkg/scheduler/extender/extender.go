package extender

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"podium/pkg/scheduler/framework"
)

// extender is one extender. It is safe for concurrent use.
type extender struct {
	Config
	client  *http.Client
	timeout time.Duration
	log     *slog.Logger
}

// List are extenders, in the order in which they are asked. It is immutable and safe for
// concurrent use.
type List []*extender

// New returns the extenders of a valid configuration. A nil transport stands for one of its own
// for each extender.
func New(configs []Config, transport http.RoundTripper, log *slog.Logger) (List, error) {
	var out List
	for i, c := range configs {
		client, err := newClient(transport, c.TLSConfig)
		if err != nil {
			return nil, fmt.Errorf("extenders[%d].tlsConfig: %w", i, err)
		}
		timeout := c.HTTPTimeout.Duration
		if timeout == 0 {
			timeout = defaultTimeout
		}
		out = append(out, &extender{Config: c, client: client, timeout: timeout, log: log.With("extender", c.URLPrefix)})
	}
	return out, nil
}

// Close closes the connections to the extenders.
func (l List) Close() {
	for _, e := range l {
		e.client.CloseIdleConnections()
	}
}

// For returns the extenders that are interested in a pod.
func (l List) For(pod *corev1.Pod) (out List) {
	for _, e := range l {
		if len(e.ManagedResources) == 0 || slices.ContainsFunc(pod.Spec.Containers, e.manages) || slices.ContainsFunc(pod.Spec.InitContainers, e.manages) {
			out = append(out, e)
		}
	}
	return out
}

// manages reports whether a container uses one of the extender's resources.
func (e *extender) manages(c corev1.Container) bool {
	return slices.ContainsFunc(e.ManagedResources, func(r ManagedResource) bool {
		_, requested := c.Resources.Requests[corev1.ResourceName(r.Name)]
		_, limited := c.Resources.Limits[corev1.ResourceName(r.Name)]
		return requested || limited
	})
}

// Filter asks one extender after the other which of the candidates the pod may run on. The
// first error of an extender that is not ignorable ends it.
func (l List) Filter(ctx context.Context, pod *corev1.Pod, candidates []framework.Candidate) ([]framework.Candidate, framework.Rejections, error) {
	rejected := framework.Rejections{}
	for _, e := range l {
		if e.FilterVerb == "" || len(candidates) == 0 {
			continue
		}
		left, err := e.filter(ctx, pod, candidates, rejected)
		switch {
		case err == nil:
			candidates = left
		case !e.Ignorable:
			return nil, nil, fmt.Errorf("extender %s: filter: %w", e.URLPrefix, err)
		default:
			e.log.Warn("ignorable extender failed", "verb", e.FilterVerb, "error", err)
		}
	}
	return candidates, rejected, nil
}

func (e *extender) filter(ctx context.Context, pod *corev1.Pod, candidates []framework.Candidate, rejected framework.Rejections) ([]framework.Candidate, error) {
	data, err := e.post(ctx, e.FilterVerb, e.argsOf(pod, candidates))
	if err != nil {
		return nil, err
	}
	r, err := decodeFilter(data)
	if err != nil {
		return nil, err
	}
	keeps := map[string]bool{}
	for _, name := range r.names() {
		keeps[name] = true
	}
	var left []framework.Candidate
	for _, c := range candidates {
		if keeps[c.Node.Name] {
			left = append(left, c)
			delete(keeps, c.Node.Name)
		} else {
			rejected[c.Node.Name] = e.rejection(r, c.Node.Name)
		}
	}
	for name := range keeps {
		return nil, fmt.Errorf("the response names a node %q that is not in the request", shorten(name))
	}
	return left, nil
}

// rejection returns why a node is not left. A node that the extender does not mention is like
// one on which preemption does not help.
func (e *extender) rejection(r *filterResult, node string) *framework.Status {
	if why, ok := r.FailedAndUnresolvableNodes[node]; ok {
		return framework.NewStatus(framework.UnschedulableAndUnresolvable, shorten(why))
	}
	if why, ok := r.FailedNodes[node]; ok {
		return framework.NewStatus(framework.Unschedulable, shorten(why))
	}
	return framework.NewStatus(framework.UnschedulableAndUnresolvable, "node(s) were left out by extender "+e.URLPrefix)
}

func (e *extender) argsOf(pod *corev1.Pod, candidates []framework.Candidate) args {
	if e.NodeCacheCapable {
		names := make([]string, len(candidates))
		for i, c := range candidates {
			names[i] = c.Node.Name
		}
		return args{Pod: pod, NodeNames: &names}
	}
	nodes := &corev1.NodeList{Items: make([]corev1.Node, len(candidates))}
	for i, c := range candidates {
		nodes.Items[i] = *c.Node
	}
	return args{Pod: pod, Nodes: nodes}
}

// Scores of extenders are from 0 to 10, as upstream.
const maxExtenderScore = 10

// Prioritize asks all extenders at once for scores, and adds them to those of the candidates.
// It ignores extenders that fail.
func (l List) Prioritize(ctx context.Context, pod *corev1.Pod, candidates []framework.Candidate) {
	if len(candidates) < 2 {
		return
	}
	scores := make([]map[string]int64, len(l))
	var wg sync.WaitGroup
	for i, e := range l {
		if e.PrioritizeVerb == "" {
			continue
		}
		wg.Go(func() {
			data, err := e.post(ctx, e.PrioritizeVerb, e.argsOf(pod, candidates))
			if err == nil {
				scores[i], err = decodePriorities(data)
			}
			if err != nil {
				e.log.Warn("scores of extender ignored", "error", err)
			}
		})
	}
	wg.Wait()
	for i, e := range l {
		for j := range candidates {
			candidates[j].Score += scores[i][candidates[j].Node.Name] * e.Weight * (framework.MaxNodeScore / maxExtenderScore)
		}
	}
}

// Binder returns a function that binds the pod to a node, nil if no extender binds pods.
// Its error is a *RefusedError if the pod is certainly not bound. ignorable is whether the
// scheduler may bind the pod itself after an error.
func (l List) Binder() (bind func(ctx context.Context, pod *corev1.Pod, node string) error, ignorable bool) {
	at := slices.IndexFunc(l, func(e *extender) bool { return e.BindVerb != "" })
	if at < 0 {
		return nil, false
	}
	e := l[at]
	return func(ctx context.Context, pod *corev1.Pod, node string) error {
		data, err := e.post(ctx, e.BindVerb, bindingArgs{PodName: pod.Name, PodNamespace: pod.Namespace, PodUID: pod.UID, Node: node})
		if err == nil {
			err = decodeBinding(data)
		}
		if err != nil {
			return fmt.Errorf("extender %s: bind: %w", e.URLPrefix, err)
		}
		return nil
	}, e.Ignorable
}

// Refused reports whether an error of a binder means that the pod is not bound.
func Refused(err error) bool {
	refused := (*RefusedError)(nil)
	return errors.As(err, &refused)
}
