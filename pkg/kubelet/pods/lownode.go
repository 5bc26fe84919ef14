package pods

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	scheduling "k8s.io/component-helpers/scheduling/corev1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"

	"podium/pkg/backoff"
	"podium/pkg/kubelet/cri"
	"podium/pkg/kubelet/nodepressure"
	"podium/pkg/kubelet/podspec"
	"podium/pkg/kubelet/resources"
)

// NodePressure measures the memory and the disks of the node.
type NodePressure interface {
	// Measure returns a threshold for which a pod must be evicted; nil: none is met.
	Measure() *nodepressure.Met
	// Pressure returns the values of the node conditions MemoryPressure and DiskPressure.
	Pressure() (memory, disk bool)
}

// evictionWait is how long the manager waits, after the grace period of an evicted pod, for its
// end before it evicts another one.
const evictionWait = 30 * time.Second

// relieveNode evicts one pod after the other while the node is short of memory or disk,
// until ctx ends.
func (m *Manager) relieveNode(ctx context.Context) {
	if m.cfg.Pressure == nil {
		return
	}
	for backoff.Sleep(ctx, measurePeriod) == nil {
		met := m.cfg.Pressure.Measure()
		if met != nil && met.Signal != nodepressure.Memory {
			m.freeDisk(ctx)
			met = m.cfg.Pressure.Measure()
		}
		if met != nil {
			m.evictFor(ctx, met)
		}
	}
}

// freeDisk removes what the node can do without: exited containers of pods that have ended,
// then, as these no longer use them, images. It logs errors.
func (m *Manager) freeDisk(ctx context.Context) {
	if err := m.removeEnded(ctx); err != nil && ctx.Err() == nil {
		m.cfg.Log.Warn("remove containers of pods that have ended failed", "error", err)
	}
	if m.cfg.FreeDisk != nil {
		m.cfg.FreeDisk(ctx)
	}
}

// removeEnded removes the exited containers of all pods that have ended, with their logs. The
// API has their statuses, which stay as they are.
func (m *Manager) removeEnded(ctx context.Context) error {
	exited := &runtimeapi.ContainerFilter{State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_EXITED}}
	list, err := m.cfg.Runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: exited})
	if err != nil {
		return err
	}
	var errs []error
	for _, c := range list.Containers {
		m.mu.Lock()
		w := m.workers[types.UID(c.Labels[cri.LabelPodUID])]
		m.mu.Unlock()
		if w != nil && closed(w.ended) {
			errs = append(errs, m.removeContainer(ctx, listed(c)))
		}
	}
	return errors.Join(errs...)
}

// evictFor evicts the pod that is to go first, and waits for its end.
func (m *Manager) evictFor(ctx context.Context, met *nodepressure.Met) {
	all, err := m.consumers(ctx, met.Signal)
	if err != nil && ctx.Err() == nil {
		m.cfg.Log.Warn("measure pods failed", "signal", met.Signal, "error", err)
	}
	if len(all) == 0 {
		m.cfg.Log.Warn("the node is low on a resource and no pod can be evicted", "signal", met.Signal, "available", met.Available, "threshold", met.Limit)
		return
	}
	c := slices.MinFunc(all, byConsumption)
	e, wait := c.toEvict(met), evictionWait
	if met.Soft {
		e.grace = &m.cfg.MaxEvictionGrace
		wait += min(m.cfg.MaxEvictionGrace, gracePeriod(c.pod))
	}
	c.w.post(func() { c.w.evict(e) })
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-c.w.ended:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// consumer is a pod and what it uses of a resource: bytes of memory or disk.
type consumer struct {
	w          *worker
	pod        *corev1.Pod
	containers map[string]int64 // by name
	used       int64
	requested  int64
	resource   corev1.ResourceName
}

// byConsumption orders pods as upstream does: those that use more than they request
// first, then those of lower priority, then those that exceed their requests by more.
func byConsumption(a, b consumer) int {
	exceeds := func(c consumer) int {
		if c.used > c.requested {
			return 0
		}
		return 1
	}
	priority := func(c consumer) int32 {
		if c.pod.Spec.Priority == nil {
			return 0
		}
		return *c.pod.Spec.Priority
	}
	return cmp.Or(cmp.Compare(exceeds(a), exceeds(b)), cmp.Compare(priority(a), priority(b)),
		cmp.Compare(b.used-b.requested, a.used-a.requested), cmp.Compare(a.pod.UID, b.pod.UID))
}

// consumers measures the pods that can be evicted. For inodes, too, it measures bytes on
// disk. With an error it returns the pods that could be measured.
func (m *Manager) consumers(ctx context.Context, signal nodepressure.Signal) ([]consumer, error) {
	var memory map[types.UID]map[string]int64
	if signal == nodepressure.Memory {
		var err error
		if memory, err = m.memory(ctx); err != nil {
			return nil, err
		}
	}
	m.mu.Lock()
	workers := slices.Collect(maps.Values(m.workers))
	m.mu.Unlock()
	var out []consumer
	var failed error
	for _, w := range workers {
		w.mu.Lock()
		pod := w.desired
		w.mu.Unlock()
		if critical(pod) || finalPhase(pod.Status.Phase) || w.startCtx.Err() != nil {
			continue // it cannot be evicted, or ends already
		}
		c := consumer{w: w, pod: pod, containers: memory[pod.UID], resource: corev1.ResourceMemory}
		if signal != nodepressure.Memory {
			used, err := m.storage(ctx, pod, true)
			if err != nil {
				failed = err
			}
			c.containers, c.used, c.resource = used.containers, used.total(), corev1.ResourceEphemeralStorage
		} else {
			for _, n := range c.containers {
				c.used += n
			}
		}
		request := resources.Requests(pod)[c.resource]
		c.requested = request.Value()
		out = append(out, c)
	}
	return out, failed
}

// memory returns the working sets of all running containers by pod and name.
func (m *Manager) memory(ctx context.Context) (map[types.UID]map[string]int64, error) {
	all, err := cri.ListStats(ctx, m.cfg.Runtime, nil)
	if err != nil {
		return nil, fmt.Errorf("list container stats: %s", cri.Message(err))
	}
	out := map[types.UID]map[string]int64{}
	for _, s := range all {
		labels := s.GetAttributes().GetLabels()
		uid := types.UID(labels[cri.LabelPodUID])
		if out[uid] == nil {
			out[uid] = map[string]int64{}
		}
		out[uid][labels[cri.LabelContainerName]] += int64(s.GetMemory().GetWorkingSetBytes().GetValue())
	}
	return out, nil
}

// toEvict returns the eviction of the pod, with upstream's message.
func (c *consumer) toEvict(met *nodepressure.Met) eviction {
	format, name := resource.BinarySI, string(c.resource)
	if met.Signal == nodepressure.NodeInodes || met.Signal == nodepressure.ImageInodes {
		format, name = resource.DecimalSI, "inodes"
	}
	message := fmt.Sprintf("The node was low on resource: %s. Threshold quantity: %v, available: %v. ",
		name, resource.NewQuantity(met.Limit, format), resource.NewQuantity(met.Available, format))
	for spec := range podspec.Main(c.pod) {
		used, request := c.containers[spec.Name], spec.Resources.Requests[c.resource]
		if name != "inodes" && used > request.Value() {
			message += fmt.Sprintf("Container %s was using %v, request is %s, has larger consumption of %s. ",
				spec.Name, resource.NewQuantity(used, format), request.String(), name)
		}
	}
	return eviction{signal: string(met.Signal), message: message, condition: disrupted(message)}
}

func disrupted(message string) *corev1.PodCondition {
	return &corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: corev1.PodReasonTerminationByKubelet, Message: message}
}

// refusePressure rejects a new pod while the node is short of a resource. As upstream, it
// admits critical pods and, while only memory is short, pods that request some of it or
// that tolerate the taint of the condition.
func (m *Manager) refusePressure(pod *corev1.Pod) *refusal {
	if critical(pod) {
		return nil
	}
	var under []corev1.NodeConditionType
	if m.cfg.Pressure != nil {
		memory, disk := m.cfg.Pressure.Pressure()
		if memory {
			under = append(under, corev1.NodeMemoryPressure)
		}
		if disk {
			under = append(under, corev1.NodeDiskPressure)
		}
	}
	if m.cfg.PIDs != nil && m.cfg.PIDs.Pressure() {
		under = append(under, corev1.NodePIDPressure)
	}
	if len(under) == 0 || len(under) == 1 && under[0] == corev1.NodeMemoryPressure && survives(pod) {
		return nil
	}
	return &refusal{reasonEvicted, fmt.Sprintf("The node had condition: %v. ", under)}
}

// survives reports whether a pod may run on a node that is short of memory.
func survives(pod *corev1.Pod) bool {
	if resources.QOS(pod) != corev1.PodQOSBestEffort {
		return true
	}
	taint := &corev1.Taint{Key: corev1.TaintNodeMemoryPressure, Effect: corev1.TaintEffectNoSchedule}
	return scheduling.TolerationsTolerateTaint(klog.Logger{}, pod.Spec.Tolerations, taint, false)
}
