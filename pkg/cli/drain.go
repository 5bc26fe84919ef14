package cli

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/backoff"
	"podium/pkg/cli/rest"
)

// drainOptions are the flags of drain.
type drainOptions struct {
	change
	IgnoreDaemonSets   bool
	DeleteEmptyDirData bool
	Force              bool
	DisableEviction    bool
	GracePeriod        int64
	PodSelector        string
	Timeout            time.Duration
	SkipTimeout        int   // seconds; of --skip-wait-for-delete-timeout
	ChunkSize          int64 // of lists
}

func newDrain(f *Factory, run func(context.Context, *drainOptions) error) *cobra.Command {
	o := &drainOptions{change: change{Factory: f}}
	cmd := &cobra.Command{
		Use:   "drain NODE...",
		Short: "Drain nodes in preparation for maintenance",
		Long: `Drain nodes in preparation for maintenance: mark them as unschedulable, evict
their pods and wait until these are gone. Pods without a controller and pods with
local data (emptyDir volumes) are evicted only with --force and
--delete-emptydir-data.`,
		Example: `  podium drain worker-1 --ignore-daemonsets
  podium drain worker-1 --ignore-daemonsets --delete-emptydir-data --timeout 5m`,
		ValidArgsFunction: f.completeNames("nodes"),
		RunE:              onNodes(&o.change, o, run),
	}
	fs := cmd.Flags()
	o.labelFlag(cmd)
	dryRunFlag(cmd, &o.DryRun)
	fs.BoolVar(&o.IgnoreDaemonSets, "ignore-daemonsets", false, "ignore DaemonSet-managed pods")
	fs.BoolVar(&o.DeleteEmptyDirData, "delete-emptydir-data", false, "continue even if there are pods using emptyDir (local data is deleted)")
	fs.BoolVar(&o.Force, "force", false, "continue even if there are pods that do not declare a controller")
	fs.BoolVar(&o.DisableEviction, "disable-eviction", false, "delete pods instead of evicting them, which bypasses PodDisruptionBudgets")
	fs.Int64Var(&o.GracePeriod, "grace-period", -1, "period of time in seconds given to each pod to terminate gracefully; negative: the pod's own value")
	fs.StringVar(&o.PodSelector, "pod-selector", "", "label selector to filter pods on the node")
	chunkFlag(cmd, &o.ChunkSize)
	fs.IntVar(&o.SkipTimeout, "skip-wait-for-delete-timeout", 0, "do not wait for pods that were deleted more than this many seconds ago; 0: wait for all")
	fs.DurationVar(&o.Timeout, "timeout", 0, "length of time to wait before giving up; 0: no limit")
	return cmd
}

func runDrain(ctx context.Context, o *drainOptions) error {
	if o.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, o.Timeout, fmt.Errorf("drain did not complete within %s", o.Timeout))
		defer cancel()
	}
	var nodes []target
	all := func(ctx context.Context) (_ []target, err error) {
		if nodes, err = o.resolve(ctx, o.Factory, true); err != nil {
			return nil, err // none of them, if one does not exist
		}
		return nodes, nil
	}
	// Evicted pods must not move to a node that is drained next.
	err := o.eachOf(ctx, all, func(ctx context.Context, c *rest.Cluster, t target) (*rest.Object, string, error) {
		verb, err := o.cordon(ctx, c, t, true)
		return nil, verb, err
	})
	if err != nil {
		return err
	}
	cordoned := func(context.Context) ([]target, error) { return nodes, nil }
	return o.eachOf(ctx, cordoned, func(ctx context.Context, c *rest.Cluster, t target) (*rest.Object, string, error) {
		if err := o.drain(ctx, c, t.Name); err != nil {
			return nil, "", fmt.Errorf("unable to drain %s, which stays cordoned (podium uncordon %s): %w", t, t.Name, err)
		}
		return nil, "drained", nil
	})
}

// drain evicts the pods of a node and blocks until they are gone.
func (o *drainOptions) drain(ctx context.Context, c *rest.Cluster, node string) error {
	kind, err := c.Find(ctx, "pods")
	if err != nil {
		return err
	}
	e := &nodeDrain{drainOptions: o, cluster: c, pods: kind, node: node, asked: map[types.UID]time.Time{}}
	all, err := e.list(ctx)
	if err != nil {
		return err
	}
	going, err := o.sort(all)
	if err != nil {
		return err
	}
	return e.run(ctx, going)
}

// sort returns the pods to evict. The error lists the pods that the flags do
// not allow to evict, with the flags that do.
func (o *drainOptions) sort(all []*corev1.Pod) (going []*corev1.Pod, err error) {
	var daemons, alone, data []string
	for _, p := range all {
		name := p.Namespace + "/" + p.Name
		owner := metav1.GetControllerOf(p)
		ended := p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
		switch {
		case p.Annotations[corev1.MirrorPodAnnotationKey] != "":
			continue // a static pod
		case ended:
		case owner != nil && owner.Kind == "DaemonSet":
			daemons = append(daemons, name)
			continue
		default:
			if owner == nil {
				alone = append(alone, name)
			}
			if slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool { return v.EmptyDir != nil }) {
				data = append(data, name)
			}
		}
		going = append(going, p)
	}
	return going, errors.Join(
		o.allowed(o.DeleteEmptyDirData, data, "cannot delete Pods with local storage (use --delete-emptydir-data to override)", "deleting Pods with local storage"),
		o.allowed(o.Force, alone, "cannot delete Pods that declare no controller (use --force to override)", "deleting Pods that declare no controller"),
		o.allowed(o.IgnoreDaemonSets, daemons, "cannot delete DaemonSet-managed Pods (use --ignore-daemonsets to ignore)", "ignoring DaemonSet-managed Pods"))
}

// allowed returns an error with the refusal, or prints the warning if yes.
func (o *drainOptions) allowed(yes bool, pods []string, refusal, warning string) error {
	if len(pods) == 0 {
		return nil
	}
	names := strings.Join(pods, ", ")
	if !yes {
		return fmt.Errorf("%s: %s", refusal, names)
	}
	fmt.Fprintf(o.Err, "Warning: %s: %s\n", warning, names)
	return nil
}

// nodeDrain is the drain of one node.
type nodeDrain struct {
	*drainOptions
	cluster *rest.Cluster
	pods    *rest.Kind
	node    string
	asked   map[types.UID]time.Time // when to retry its eviction; zero: accepted
}

// Intervals for checking whether pods are gone, and for retrying a refused
// eviction.
const (
	pollPeriod       = 500 * time.Millisecond
	evictRetryPeriod = 5 * time.Second
)

// list returns the node's pods that match --pod-selector.
func (e *nodeDrain) list(ctx context.Context) ([]*corev1.Pod, error) {
	q := url.Values{"fieldSelector": {"spec.nodeName=" + e.node}, "limit": {strconv.FormatInt(e.ChunkSize, 10)}}
	if e.PodSelector != "" {
		q.Set("labelSelector", e.PodSelector)
	}
	list, err := e.cluster.List(ctx, e.pods, "", q)
	if err != nil {
		return nil, err
	}
	var out []*corev1.Pod
	for i := range list.Items {
		p := &corev1.Pod{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(list.Items[i].Object, p); err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, nil
}

// run evicts pods, and retries refused evictions, until all are gone or ctx
// ends.
func (e *nodeDrain) run(ctx context.Context, going []*corev1.Pod) error {
	verb := "evicted"
	if e.DisableEviction {
		verb = "deleted"
	}
	for {
		for _, p := range going {
			if err := e.ask(ctx, p); err != nil {
				return e.timeoutError(ctx, going, err)
			}
		}
		if e.DryRun != "none" {
			return nil
		}
		now, err := e.list(ctx)
		if err != nil {
			return e.timeoutError(ctx, going, err)
		}
		going = slices.DeleteFunc(going, func(p *corev1.Pod) bool {
			i := slices.IndexFunc(now, func(other *corev1.Pod) bool { return other.UID == p.UID })
			switch {
			case i < 0:
				fmt.Fprintf(e.Out, "pod/%s %s\n", p.Name, verb)
			case e.skipped(now[i]):
				fmt.Fprintf(e.Err, "Warning: pod/%s was deleted more than %d seconds ago: drain does not wait for it\n", p.Name, e.SkipTimeout)
			default:
				return false
			}
			return true
		})
		if len(going) == 0 {
			return nil
		}
		if err := backoff.Sleep(ctx, pollPeriod); err != nil {
			return e.timeoutError(ctx, going, err)
		}
	}
}

// skipped reports whether to stop waiting for a pod that was deleted long ago, because
// its node may be unable to end it.
func (e *nodeDrain) skipped(p *corev1.Pod) bool {
	return e.SkipTimeout > 0 && p.DeletionTimestamp != nil && time.Since(p.DeletionTimestamp.Time) > time.Duration(e.SkipTimeout)*time.Second
}

// timeoutError adds the pods that are left to the error of a timeout. It returns other
// errors unchanged.
func (e *nodeDrain) timeoutError(ctx context.Context, going []*corev1.Pod, err error) error {
	if ctx.Err() == nil || errors.Is(context.Cause(ctx), context.Canceled) {
		return err
	}
	var names []string
	for _, p := range going {
		names = append(names, p.Namespace+"/"+p.Name)
	}
	return fmt.Errorf("%w; still there: %s", context.Cause(ctx), strings.Join(names, ", "))
}

// ask evicts a pod unless its eviction was accepted, or refused recently.
func (e *nodeDrain) ask(ctx context.Context, p *corev1.Pod) error {
	again, before := e.asked[p.UID]
	if before && (again.IsZero() || time.Now().Before(again)) || p.DeletionTimestamp != nil {
		return nil
	}
	if !before {
		fmt.Fprintf(e.Out, "evicting pod %s/%s%s\n", p.Namespace, p.Name, dryRunNote(e.DryRun))
	}
	e.asked[p.UID] = time.Time{}
	if e.DryRun == "client" {
		return nil
	}
	err := e.evict(ctx, p)
	if apierrors.IsTooManyRequests(err) {
		fmt.Fprintf(e.Err, "error when evicting pods/%q -n %q (will retry after %s): %v\n", p.Name, p.Namespace, evictRetryPeriod, err)
		e.asked[p.UID] = time.Now().Add(evictRetryPeriod)
		return nil
	}
	if apierrors.IsConflict(err) { // it has changed or was replaced: the next list shows which
		e.asked[p.UID] = time.Now()
		return nil
	}
	if apierrors.IsNotFound(err) {
		return nil // it is gone already
	}
	return err
}

// evict sends one eviction or, with --disable-eviction, a delete request.
func (e *nodeDrain) evict(ctx context.Context, p *corev1.Pod) error {
	opts := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &p.UID}}
	if e.GracePeriod >= 0 {
		opts.GracePeriodSeconds = &e.GracePeriod
	}
	if e.DryRun == "server" {
		opts.DryRun = []string{metav1.DryRunAll}
	}
	if e.DisableEviction {
		_, err := e.cluster.Delete(ctx, e.pods, p.Namespace, p.Name, opts)
		return err
	}
	eviction, err := toObject(&policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name}, DeleteOptions: &opts}, policyv1.SchemeGroupVersion.WithKind("Eviction"))
	if err != nil {
		return err
	}
	_, err = e.cluster.Post(ctx, e.pods.Path(p.Namespace, p.Name, "eviction"), eviction)
	return err
}
