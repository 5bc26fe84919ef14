package pods

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podium/pkg/conditions"
	"podium/pkg/kubelet/cri"
	"podium/pkg/kubelet/podspec"
)

type resourceQuantity = resource.Quantity

// deferredRetry is how often a pending resize is decided again without a reason.
const deferredRetry = 3 * time.Minute

// resizer changes the resources of a running pod. It goes three steps, each of which
// a restarted kubelet repeats: the node grants the resources that the API asks for,
// the grant is recorded, and the containers get what is granted.
type resizer struct {
	*base
	containers *containers

	loaded   bool
	record   *allocation    // nil: the pod has not been admitted
	pending  *pendingResize // nil: nothing is asked for that is not granted
	active   bool           // containers do not have yet what is granted
	problem  string         // why they cannot have it
	unbound  bool           // the pod's cgroup may have larger limits than is granted
	reported string         // the pending resize that an event has reported
}

// load reads the record of an earlier kubelet. It returns false if that failed.
func (r *resizer) load(now time.Time) bool {
	if r.loaded || !r.retries.due("allocation", now) {
		return r.loaded
	}
	record, err := r.m.readAllocation(r.uid)
	if err != nil {
		r.log.Warn("read the pod's resources failed", "error", err)
		r.retries.fail("allocation", now, time.Second, time.Minute)
		return false
	}
	r.loaded, r.record, r.unbound = true, record, record != nil
	if record != nil {
		r.active = conditions.IsTrue(r.pod.Status.Conditions, corev1.PodResizeInProgress)
		if c := conditions.Find(r.pod.Status.Conditions, corev1.PodResizePending); c != nil {
			r.reported = c.Reason + c.Message
		}
	}
	return true
}

// grantFirst records the resources with which the pod was admitted.
func (r *resizer) grantFirst() error {
	if r.record != nil {
		r.wake() // the API may ask for other resources by now
		return nil
	}
	record := &allocation{Granted: granted(r.pod)}
	if err := r.m.writeAllocation(r.uid, record); err != nil {
		return fmt.Errorf("record the pod's resources: %w", err)
	}
	r.record = record
	return nil
}

// grant asks the node for the resources that the API's pod has, and makes the worker's
// pod one with the granted resources. live means that the pod is to run.
func (r *resizer) grant(live bool, now time.Time) {
	if r.record == nil {
		return
	}
	desired := r.pod
	r.pod = r.record.with(desired)
	for _, c := range r.observed.containers {
		c.replaced = slices.Contains(r.record.Restarting, c.id)
	}
	if r.pod == desired || !live {
		if r.pending != nil {
			r.m.settled(r.uid)
		}
		if r.pending = nil; r.pod == desired {
			r.reported = ""
		}
		return
	}
	if r.pending = r.m.resize(desired); r.pending != nil {
		r.again(now.Add(deferredRetry))
		r.reportPending()
		return
	}
	next := *r.record
	next.Granted = granted(desired)
	if err := r.m.writeAllocation(r.uid, &next); err != nil {
		r.log.Warn("record the pod's resources failed", "error", err)
		r.again(now.Add(time.Second))
		return
	}
	*r.record, r.pod, r.reported = next, desired, ""
}

// reportPending records an event when the reason of the pending resize changes.
func (r *resizer) reportPending() {
	if text := r.pending.reason + r.pending.message; r.reported != text {
		r.reported = text
		r.event(corev1.EventTypeWarning, "Resize"+r.pending.reason, fmt.Sprintf("Pod resize %s: %s", r.pending.reason, r.pending.message))
	}
}

// resizing is a running container that does not have the granted resources.
type resizing struct {
	*container
	spec *corev1.Container
	from corev1.ResourceRequirements
}

// restarts reports whether the resize policy of a changed resource requires a restart.
func (c *resizing) restarts() bool {
	to := computeOf(&c.spec.Resources)
	for _, p := range c.spec.ResizePolicy {
		if p.RestartPolicy == corev1.RestartContainer && (differs(c.from.Requests, to.Requests, p.ResourceName) || differs(c.from.Limits, to.Limits, p.ResourceName)) {
			return true
		}
	}
	return false
}

func differs(a, b corev1.ResourceList, name corev1.ResourceName) bool {
	x, hasX := a[name]
	y, hasY := b[name]
	return hasX != hasY || x.Cmp(y) != 0
}

// shrinks reports whether the container gets a lower CPU or memory limit.
func (c *resizing) shrinks() bool {
	lower := func(name corev1.ResourceName) bool {
		from, had := c.from.Limits[name]
		to := c.spec.Resources.Limits[name]
		return had && to.Cmp(from) < 0
	}
	return lower(corev1.ResourceCPU) || lower(corev1.ResourceMemory)
}

// due returns the containers to resize: those with lower limits first, so that the
// limits of the pod suffice at any time.
func (r *resizer) due() []resizing {
	var out []resizing
	for spec := range podspec.Main(r.pod) {
		c := r.observed.latest(spec.Name)
		if c == nil || !c.running() {
			continue
		}
		from, known := r.record.applied(c)
		if known && !sameCompute(from, computeOf(&spec.Resources)) {
			out = append(out, resizing{c, spec, from})
		}
	}
	slices.SortStableFunc(out, func(a, b resizing) int { return rank(b.shrinks()) - rank(a.shrinks()) })
	return out
}

func rank(b bool) int {
	if b {
		return 1
	}
	return 0
}

// actuate gives the containers what is granted. The pod's cgroup grows before its
// containers and shrinks after them.
func (r *resizer) actuate(ctx context.Context, now time.Time) {
	if r.record == nil {
		return
	}
	due := r.due()
	if len(due) > 0 && !r.active {
		r.active = true
		r.event(corev1.EventTypeNormal, "ResizeStarted", "Pod resize started: "+r.describe())
	}
	if len(due)+rank(r.unbound) > 0 {
		if !r.retries.due("resize", now) {
			return
		}
		if err := r.apply(ctx, due); err != nil {
			r.fail(err, now)
			return
		}
	}
	if r.retries.ok("resize"); len(r.due()) > 0 {
		return // a container is being restarted
	}
	r.problem = ""
	if r.active {
		r.active = false
		r.event(corev1.EventTypeNormal, "ResizeCompleted", "Pod resize completed: "+r.describe())
	}
}

func (r *resizer) fail(err error, now time.Time) {
	r.retries.fail("resize", now, time.Second, time.Minute)
	if r.startCtx.Err() != nil {
		return
	}
	if message := cri.Message(err); r.problem != message {
		r.problem = message
		r.log.Warn("resize pod failed", "error", err)
		r.event(corev1.EventTypeWarning, "ResizeError", "Pod resize error: "+message)
	}
}

// describe returns the granted resources as JSON, for events.
func (r *resizer) describe() string {
	type one struct {
		Name      string                      `json:"name"`
		Resources corev1.ResourceRequirements `json:"resources"`
	}
	var list []one
	for _, name := range slices.Sorted(maps.Keys(r.record.Granted)) {
		list = append(list, one{name, r.record.Granted[name]})
	}
	data, _ := json.Marshal(map[string]any{"containers": list, "generation": r.pod.Generation}) // quantities always encode
	return string(data)
}

// apply resizes the containers and the pod's cgroup.
func (r *resizer) apply(ctx context.Context, due []resizing) error {
	cgroups := r.m.cfg.Cgroups
	if err := r.checkUsage(ctx, due); err != nil {
		return err
	}
	if len(due) > 0 {
		if err := cgroups.Widen(ctx, r.pod, r.before(due)); err != nil {
			return err
		}
		r.unbound = true
	}
	var errs []error
	for i := range due {
		if due[i].restarts() {
			errs = append(errs, r.restart(&due[i]))
		} else if err := r.update(ctx, &due[i]); err != nil {
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if len(r.due()) > 0 {
		return nil // the cgroup follows when the containers have been restarted
	}
	if _, err := cgroups.Ensure(ctx, r.pod); err != nil {
		return err
	}
	r.unbound = false
	return nil
}

// before returns the pod with the resources that its containers have.
func (r *resizer) before(due []resizing) *corev1.Pod {
	a := allocation{Granted: maps.Clone(r.record.Granted)}
	for _, c := range due {
		a.Granted[c.name] = c.from
	}
	return a.with(r.pod)
}

// checkUsage refuses a memory limit that a container already exceeds: with cgroup v2
// the kernel would kill it.
func (r *resizer) checkUsage(ctx context.Context, due []resizing) error {
	for _, c := range due {
		from, to := c.from.Limits.Memory(), c.spec.Resources.Limits.Memory()
		if from.IsZero() && to.IsZero() || !from.IsZero() && to.Cmp(*from) >= 0 || c.restarts() {
			continue
		}
		res, err := r.m.cfg.Runtime.ContainerStats(ctx, &runtimeapi.ContainerStatsRequest{ContainerId: c.id})
		if err != nil {
			return fmt.Errorf("get memory usage of container %q: %w", c.name, err)
		}
		memory := res.GetStats().GetMemory()
		usage := memory.GetUsageBytes()
		if usage == nil {
			usage = memory.GetWorkingSetBytes()
		}
		if used := usage.GetValue(); used > uint64(to.Value()) {
			return fmt.Errorf("attempting to set container %q memory limit (%d) below current usage (%d)", c.name, to.Value(), used)
		}
	}
	return nil
}

// update gives a running container the granted resources.
func (r *resizer) update(ctx context.Context, c *resizing) error {
	_, err := r.m.cfg.Runtime.UpdateContainerResources(ctx, &runtimeapi.UpdateContainerResourcesRequest{ContainerId: c.id, Linux: r.m.containerResources(r.pod, c.spec)})
	if err != nil {
		return fmt.Errorf("update resources of container %q: %w", c.name, err)
	}
	if r.record.Applied == nil {
		r.record.Applied = map[string]corev1.ResourceRequirements{}
	}
	r.record.Applied[c.id] = computeOf(&c.spec.Resources)
	r.record.forget(r.observed)
	return r.m.writeAllocation(r.uid, r.record)
}

// restart stops a container, which then starts with the granted resources.
func (r *resizer) restart(c *resizing) error {
	if err := r.replace(c.container); err != nil {
		return err
	}
	r.containers.kill(kill{container: c.container, reason: killResize, message: fmt.Sprintf("Container %s resize requires restart", c.name)})
	return nil
}

// replace records that a container is stopped in order to be created again: it starts at
// once, whatever its restart policy.
func (r *resizer) replace(c *container) error {
	if slices.Contains(r.record.Restarting, c.id) {
		return nil
	}
	r.record.Restarting = append(r.record.Restarting, c.id)
	r.record.forget(r.observed)
	return r.m.writeAllocation(r.uid, r.record)
}

// conditions returns the conditions of a resize that has not been completed.
func (r *resizer) conditions() []corev1.PodCondition {
	var out []corev1.PodCondition
	if r.pending != nil {
		out = append(out, corev1.PodCondition{Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: r.pending.reason, Message: r.pending.message})
	}
	if r.active {
		c := corev1.PodCondition{Type: corev1.PodResizeInProgress, Status: corev1.ConditionTrue}
		if r.problem != "" {
			c.Reason, c.Message = corev1.PodReasonError, r.problem
		}
		out = append(out, c)
	}
	return out
}

// resourcesOf returns what is granted to a container and what it has.
func (r *resizer) resourcesOf(spec *corev1.Container, c *container) (corev1.ResourceList, *corev1.ResourceRequirements) {
	if in := podspec.Container(r.pod, spec.Name); in != nil {
		spec = in
	}
	now := spec.Resources.DeepCopy()
	now.Claims = nil
	if r.record != nil && c.running() {
		if has, known := r.record.applied(c); known {
			now.Requests, now.Limits = replaced(now.Requests, has.Requests), replaced(now.Limits, has.Limits)
		}
	}
	return spec.Resources.Requests.DeepCopy(), now
}
