package simulation

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// state is all objects at the end.
type state struct {
	namespaces  []*corev1.Namespace
	nodes       []*corev1.Node
	deployments []*appsv1.Deployment
	sets        []*appsv1.ReplicaSet
	daemons     []*appsv1.DaemonSet
	budgets     []*policyv1.PodDisruptionBudget
	pods        []*corev1.Pod
	services    []*corev1.Service
	slices      []*discoveryv1.EndpointSlice
	endpoints   []*corev1.Endpoints
	accounts    []*corev1.ServiceAccount
	configs     []*corev1.ConfigMap
	stateful    stateful
	batch       batch
	quotas      []*corev1.ResourceQuota
	claims      []*resourcev1.ResourceClaim
}

func (w *world) state(ctx context.Context) *state {
	return &state{
		namespaces: list[*corev1.Namespace](ctx, w), nodes: list[*corev1.Node](ctx, w),
		deployments: list[*appsv1.Deployment](ctx, w), sets: list[*appsv1.ReplicaSet](ctx, w), pods: list[*corev1.Pod](ctx, w),
		daemons: list[*appsv1.DaemonSet](ctx, w), budgets: list[*policyv1.PodDisruptionBudget](ctx, w),
		services: list[*corev1.Service](ctx, w), slices: list[*discoveryv1.EndpointSlice](ctx, w), endpoints: list[*corev1.Endpoints](ctx, w),
		accounts: list[*corev1.ServiceAccount](ctx, w), configs: list[*corev1.ConfigMap](ctx, w),
		stateful: w.stateful(ctx), batch: w.batch(ctx), quotas: list[*corev1.ResourceQuota](ctx, w), claims: list[*resourcev1.ResourceClaim](ctx, w),
	}
}

// String formats the state without what may differ between seeds: generated names, UIDs, times, and
// the nodes of pods.
func (s *state) String() string {
	var out []string
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	for _, n := range s.namespaces {
		say("namespace %s: %s", n.Name, n.Status.Phase)
	}
	for _, n := range s.nodes {
		say("node %s: taints %d, unschedulable %t, %s", n.Name, len(n.Spec.Taints), n.Spec.Unschedulable, nodeConditions(n))
	}
	for _, d := range s.deployments {
		st := d.Status
		say("deployment %s/%s: revision %s of %s, wants %d, has %d, updated %d, ready %d, available %d, unavailable %d, observed %t, %s",
			d.Namespace, d.Name, d.Annotations["deployment.kubernetes.io/revision"], d.Spec.Template.Spec.Containers[0].Image, *d.Spec.Replicas,
			st.Replicas, st.UpdatedReplicas, st.ReadyReplicas, st.AvailableReplicas, st.UnavailableReplicas, st.ObservedGeneration == d.Generation, deploymentConditions(d))
	}
	for _, rs := range s.sets {
		st := rs.Status
		say("replicaset of %s/%s: revision %s of %s, wants %d, has %d, labelled %d, ready %d, available %d, observed %t, conditions %d",
			rs.Namespace, rs.Labels["app"], rs.Annotations["deployment.kubernetes.io/revision"], rs.Spec.Template.Spec.Containers[0].Image, *rs.Spec.Replicas,
			st.Replicas, st.FullyLabeledReplicas, st.ReadyReplicas, st.AvailableReplicas, st.ObservedGeneration == rs.Generation, len(st.Conditions))
	}
	out = append(out, s.stateful.lines()...)
	out = append(out, s.batch.lines()...)
	for _, c := range s.claims {
		out = append(out, claimLine(c))
	}
	for _, q := range s.quotas {
		say("quota %s/%s: %d of %d pods", q.Namespace, q.Name, q.Status.Used.Pods().Value(), q.Status.Hard.Pods().Value())
	}
	for _, ds := range s.daemons {
		st := ds.Status
		say("daemonset %s/%s of %s: %d of %d scheduled, updated %d, ready %d, available %d, misscheduled %d, observed %t", ds.Namespace, ds.Name,
			ds.Spec.Template.Spec.Containers[0].Image, st.CurrentNumberScheduled, st.DesiredNumberScheduled, st.UpdatedNumberScheduled,
			st.NumberReady, st.NumberAvailable, st.NumberMisscheduled, st.ObservedGeneration == ds.Generation)
	}
	for _, b := range s.budgets {
		st := b.Status
		say("budget %s/%s: %d of %d healthy, %d desired, %d allowed, observed %t", b.Namespace, b.Name,
			st.CurrentHealthy, st.ExpectedPods, st.DesiredHealthy, st.DisruptionsAllowed, st.ObservedGeneration == b.Generation)
	}
	for line, n := range count(s.pods, podLine) {
		say("%d pods of %s", n, line)
	}
	for _, svc := range s.services {
		ready, other := s.backends(svc)
		say("service %s/%s: address %t, ready %d, not ready %d, in Endpoints %d", svc.Namespace, svc.Name,
			svc.Spec.ClusterIP != "" && svc.Spec.ClusterIP != corev1.ClusterIPNone, len(ready), len(other), len(s.endpointsOf(svc)))
	}
	for _, a := range s.accounts {
		say("service account %s/%s", a.Namespace, a.Name)
	}
	for _, c := range s.configs {
		say("config map %s/%s: %s", c.Namespace, c.Name, strings.Join(slices.Sorted(maps.Keys(c.Data)), " "))
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

func count[T any](items []T, line func(T) string) map[string]int {
	out := map[string]int{}
	for _, item := range items {
		out[line(item)]++
	}
	return out
}

func nodeConditions(n *corev1.Node) string {
	var out []string
	for _, c := range n.Status.Conditions {
		out = append(out, fmt.Sprintf("%s=%s (%s)", c.Type, c.Status, c.Reason))
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

func deploymentConditions(d *appsv1.Deployment) string {
	var out []string
	for _, c := range d.Status.Conditions {
		out = append(out, fmt.Sprintf("%s=%s (%s)", c.Type, c.Status, c.Reason))
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

func podLine(p *corev1.Pod) string {
	var conditions []string
	for _, c := range p.Status.Conditions {
		conditions = append(conditions, fmt.Sprintf("%s=%s", c.Type, c.Status))
	}
	slices.Sort(conditions)
	containers := ""
	for _, c := range p.Status.ContainerStatuses {
		running, exit := c.State.Running != nil, ""
		if t := c.State.Terminated; t != nil {
			exit = fmt.Sprintf(" exit %d %s", t.ExitCode, t.Reason)
		}
		containers += fmt.Sprintf(" %s ready=%t running=%t%s", c.Name, c.Ready, running, exit)
	}
	return fmt.Sprintf("%s/%s %s: %s %s, owned %t, deleted %t, finalizers %d, %s,%s", p.Namespace, p.Labels["app"], p.Spec.Containers[0].Image,
		p.Status.Phase, p.Status.Reason, len(p.OwnerReferences) > 0, p.DeletionTimestamp != nil, len(p.Finalizers), strings.Join(conditions, " "), containers)
}

// backends returns a service's addresses in its EndpointSlices.
func (s *state) backends(svc *corev1.Service) (ready, other []string) {
	for _, slice := range s.slices {
		if slice.Namespace != svc.Namespace || slice.Labels[discoveryv1.LabelServiceName] != svc.Name {
			continue
		}
		for _, e := range slice.Endpoints {
			if c := e.Conditions; c.Ready != nil && *c.Ready && (c.Terminating == nil || !*c.Terminating) {
				ready = append(ready, e.Addresses...)
			} else {
				other = append(other, e.Addresses...)
			}
		}
	}
	slices.Sort(ready)
	return ready, other
}

func (s *state) endpointsOf(svc *corev1.Service) []string {
	var out []string
	for _, e := range s.endpoints {
		if e.Namespace == svc.Namespace && e.Name == svc.Name {
			for _, sub := range e.Subsets {
				for _, a := range sub.Addresses {
					out = append(out, a.IP)
				}
			}
		}
	}
	slices.Sort(out)
	return out
}

// check checks the invariants of a cluster at rest.
func (w *world) check(s *state) {
	w.checkNodes(s)
	w.checkOwners(s)
	w.checkPods(s)
	w.checkServices(s)
	w.checkMachines(s)
	w.checkTasks()
}

func (w *world) checkNodes(s *state) {
	if len(s.nodes) != len(w.nodes) {
		w.problem("%d nodes, not %d", len(s.nodes), len(w.nodes))
	}
	taken := map[string]string{}
	for _, n := range s.nodes {
		if n.Spec.PodCIDR == "" {
			w.problem("node %s has no podCIDR", n.Name)
		}
		if other := taken[n.Spec.PodCIDR]; other != "" {
			w.problem("nodes %s and %s have the podCIDR %s", other, n.Name, n.Spec.PodCIDR)
		}
		taken[n.Spec.PodCIDR] = n.Name
	}
}

// checkOwners: all owners of objects exist, and each set has the desired number of pods.
func (w *world) checkOwners(s *state) {
	living := map[types.UID]bool{}
	for _, d := range s.deployments {
		living[d.UID] = true
	}
	for _, rs := range s.sets {
		living[rs.UID] = true
	}
	for _, set := range s.stateful.sets {
		living[set.UID] = true
	}
	for _, j := range s.batch.jobs {
		living[j.UID] = true
	}
	for _, c := range s.batch.cronJobs {
		living[c.UID] = true
	}
	for _, ds := range s.daemons {
		living[ds.UID] = true
	}
	for _, svc := range s.services {
		living[svc.UID] = true
	}
	owned := map[types.UID]int{}
	check := func(kind string, obj metav1.Object) {
		for _, ref := range obj.GetOwnerReferences() {
			if !living[ref.UID] {
				w.problem("%s %s/%s: its owner %s %s is gone", kind, obj.GetNamespace(), obj.GetName(), ref.Kind, ref.Name)
			}
			owned[ref.UID]++
		}
		if obj.GetDeletionTimestamp() != nil {
			w.problem("%s %s/%s is still being deleted", kind, obj.GetNamespace(), obj.GetName())
		}
	}
	for _, rs := range s.sets {
		check("replicaset", rs)
	}
	for _, r := range s.stateful.revisions {
		check("controllerrevision", r)
	}
	for _, j := range s.batch.jobs {
		check("job", j)
	}
	for _, p := range s.pods {
		check("pod", p)
	}
	for _, e := range s.slices {
		check("endpointslice", e)
	}
	for _, rs := range s.sets {
		if n := owned[rs.UID]; n != int(*rs.Spec.Replicas) {
			w.problem("replicaset %s/%s wants %d pods and has %d", rs.Namespace, rs.Name, *rs.Spec.Replicas, n)
		}
	}
}

// checkPods: every pod runs where it may, and no two pods have the same address.
func (w *world) checkPods(s *state) {
	allocatable := map[string]*corev1.Node{}
	for _, n := range s.nodes {
		allocatable[n.Name] = n
	}
	addresses, cpu, number := map[string]string{}, map[string]int64{}, map[string]int64{}
	for _, p := range s.pods {
		if final(p) {
			continue
		}
		if other := addresses[p.Status.PodIP]; other != "" || p.Status.PodIP == "" {
			w.problem("pod %s has the address %q, as %q has", p.Name, p.Status.PodIP, other)
		}
		addresses[p.Status.PodIP] = p.Name
		cpu[p.Spec.NodeName] += p.Spec.Containers[0].Resources.Requests.Cpu().MilliValue()
		number[p.Spec.NodeName]++
	}
	for name := range number {
		n := allocatable[name]
		switch {
		case n == nil:
			w.problem("%d pods on the node %q, which does not exist", number[name], name)
		case cpu[name] > n.Status.Allocatable.Cpu().MilliValue(), number[name] > n.Status.Allocatable.Pods().Value():
			w.problem("node %s is overbooked: %d pods, %dm of CPU", name, number[name], cpu[name])
		}
	}
}

// checkServices: a service's endpoints are its ready pods, once each.
func (w *world) checkServices(s *state) {
	for _, svc := range s.services {
		if len(svc.Spec.Selector) == 0 {
			continue
		}
		var want []string
		for _, p := range s.pods {
			if p.Namespace == svc.Namespace && p.Labels["app"] == svc.Spec.Selector["app"] && !final(p) {
				want = append(want, p.Status.PodIP)
			}
		}
		slices.Sort(want)
		ready, other := s.backends(svc)
		if !slices.Equal(ready, want) || len(other) > 0 {
			w.problem("service %s/%s: slices have %v and not ready %v, pods have %v", svc.Namespace, svc.Name, ready, other, want)
		}
		if got := s.endpointsOf(svc); !slices.Equal(got, want) {
			w.problem("service %s/%s: Endpoints have %v, pods have %v", svc.Namespace, svc.Name, got, want)
		}
	}
}

// checkMachines: the machines run what the API contains, and nothing else.
func (w *world) checkMachines(s *state) {
	for _, m := range w.nodes {
		running := map[types.UID]int{}
		for _, c := range m.runtime.Containers() {
			if c.State == runtimeapi.ContainerState_CONTAINER_RUNNING {
				running[types.UID(c.UID)]++
			}
		}
		here := map[string]bool{}
		live := 0
		for _, p := range s.pods {
			if p.Spec.NodeName != m.name {
				continue
			}
			here[string(p.UID)] = true
			want := len(p.Spec.Containers)
			if final(p) {
				want = 0
			} else {
				live++
			}
			if n := running[p.UID]; n != want {
				w.problem("%s: %d containers of pod %s run, not %d", m.name, n, p.Name, want)
			}
			delete(running, p.UID)
		}
		for uid, n := range running {
			w.problem("%s: %d containers run of a pod %s that does not exist", m.name, n, uid)
		}
		if n := m.runtime.ReadySandboxes(); n != live {
			w.problem("%s: %d sandboxes for %d pods", m.name, n, live)
		}
		for _, c := range m.runtime.Containers() {
			if !here[c.UID] {
				w.problem("%s: a container of pod %s is left over", m.name, c.Pod)
			}
		}
		dirs, err := os.ReadDir(filepath.Join(m.dir, "pods"))
		if err != nil && !os.IsNotExist(err) {
			w.problem("%v", err)
		}
		for _, d := range dirs {
			if !here[d.Name()] {
				w.problem("%s: the directory of pod %s is left over", m.name, d.Name())
			}
		}
	}
}

// checkTasks: what must run once has run once.
func (w *world) checkTasks() {
	started := map[string]int{}
	for _, m := range w.nodes {
		for _, call := range m.runtime.Calls() {
			if pod, ok := strings.CutPrefix(call, "StartContainer "); ok && runsOnce(pod) {
				started[call]++
			}
		}
	}
	for call, n := range started {
		if n != 1 {
			w.problem("%s: %d times", call, n)
		}
	}
}
