package plan_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"podium/pkg/cli/plan"
	"podium/pkg/client"
	"podium/pkg/client/clienttest"
	"podium/pkg/scheduler"
	"podium/pkg/scheme"
	"podium/pkg/volumebinding"
)

// world is an API in memory, in a bubble.
type world struct {
	t   *testing.T
	api *clienttest.Server
	c   *client.Client
}

func newWorld(t *testing.T) *world {
	api := clienttest.New()
	return &world{t, api, api.Client(t)}
}

func create[T scheme.Object](w *world, obj T) T {
	w.t.Helper()
	out, err := client.For[T](w.c).In(obj.GetNamespace()).Create(w.t.Context(), obj)
	if err != nil {
		w.t.Fatal(err)
	}
	return out
}

func list[T scheme.Object](w *world) []T {
	w.t.Helper()
	out, err := client.For[T](w.c).List(w.t.Context(), metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return out.Items
}

func (w *world) cluster() *plan.Cluster {
	return &plan.Cluster{
		Nodes: list[*corev1.Node](w), Pods: list[*corev1.Pod](w), Budgets: list[*policyv1.PodDisruptionBudget](w),
		Namespaces: list[*corev1.Namespace](w), Services: list[*corev1.Service](w),
		DeviceClaims: list[*resourcev1.ResourceClaim](w), DeviceClasses: list[*resourcev1.DeviceClass](w), Slices: list[*resourcev1.ResourceSlice](w),
	}
}

// schedule starts the scheduler and waits until nothing moves any more.
func (w *world) schedule() (stop func()) {
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan error, 1)
	go func() { done <- scheduler.Run(ctx, scheduler.Config{Client: w.c}) }()
	settle()
	return func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Error(err)
		}
	}
}

func settle() { time.Sleep(5 * time.Minute) }

// removeWaiting deletes the pods without a node. A new pod may wake one of them,
// which then competes with the other new pods: which of them is first is open.
func (w *world) removeWaiting() {
	for _, p := range list[*corev1.Pod](w) {
		if p.Spec.NodeName != "" {
			continue
		}
		if err := client.For[*corev1.Pod](w.c).In(p.Namespace).Delete(w.t.Context(), p.Name, metav1.DeleteOptions{}); err != nil {
			w.t.Fatal(err)
		}
	}
	synctest.Wait()
}

// places returns the nodes of pods, "" for those that wait, and "gone" for
// those that were preempted.
func (w *world) places(pods []*corev1.Pod) map[string]string {
	out := map[string]string{}
	for _, p := range pods {
		now, err := client.For[*corev1.Pod](w.c).In(p.Namespace).Get(w.t.Context(), p.Name)
		if err != nil {
			out[p.Namespace+"/"+p.Name] = "gone"
			continue
		}
		out[p.Namespace+"/"+p.Name] = now.Spec.NodeName
	}
	return out
}

// TestPlanIsWhatTheSchedulerDoes plans random pods on random clusters, lets the
// scheduler place them, and compares.
func TestPlanIsWhatTheSchedulerDoes(t *testing.T) {
	placed, pending := 0, 0
	for seed := range uint64(100) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			r := rand.New(rand.NewPCG(seed, 1))
			w.populate(r)
			defer w.schedule()()
			w.removeWaiting()
			s := plan.New(w.cluster())
			var pods []*corev1.Pod
			for i := range 6 {
				p := randomPod(r, fmt.Sprint("new", i))
				p.UID = types.UID(p.Name)
				if r.IntN(3) == 0 {
					p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: ptr.To(fmt.Sprint("gpus", r.IntN(3)))}}
				}
				pods = append(pods, p)
			}
			want := map[string]string{}
			for _, p := range s.Place(pods...) {
				want[p.Pod] = p.Node
				if p.Node == "" {
					pending++
				} else {
					placed++
				}
			}
			for _, p := range pods { // all of one priority: first come, first served
				create(w, p.DeepCopy())
			}
			settle()
			if diff := cmp.Diff(want, w.places(pods)); diff != "" {
				t.Errorf("seed %d: planned (-), happened (+):\n%s", seed, diff)
			}
		})
	}
	t.Logf("%d pods placed, %d pending", placed, pending)
	if placed < 100 || pending < 100 {
		t.Error("the clusters are too much alike")
	}
}

// TestPlannedPreemption plans one important pod on a full cluster, and compares
// its node and its victims with what the scheduler does.
func TestPlannedPreemption(t *testing.T) {
	preempted := 0
	for seed := range uint64(100) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			r := rand.New(rand.NewPCG(seed, 2))
			running := w.fill(r)
			defer w.schedule()()
			s := plan.New(w.cluster())
			p := sized("important", 1+r.IntN(4), 10)
			p.UID = "important"
			got := s.Place(p)[0]
			want := map[string]string{"ns/important": got.Node}
			for _, v := range running {
				want["ns/"+v.Name] = v.Spec.NodeName
			}
			for _, v := range got.Preempts {
				want[v] = "gone"
				preempted++
			}
			create(w, p.DeepCopy())
			settle()
			if diff := cmp.Diff(want, w.places(append(running, p))); diff != "" {
				t.Errorf("seed %d: planned (-), happened (+):\n%s", seed, diff)
			}
		})
	}
	if preempted < 50 {
		t.Errorf("%d pods preempted", preempted)
	}
}

// randomPod returns a pod of the default scheduler, which often has rules about
// the nodes and the pods beside it.
func randomPod(r *rand.Rand, name string) *corev1.Pod {
	p := sized(name, r.IntN(3), 0)
	p.Labels = map[string]string{"app": apps[r.IntN(len(apps))]}
	others := &metav1.LabelSelector{MatchLabels: map[string]string{"app": apps[r.IntN(len(apps))]}}
	term := corev1.PodAffinityTerm{LabelSelector: others, TopologyKey: []string{"zone", "kubernetes.io/hostname"}[r.IntN(2)]}
	spec := &p.Spec
	spec.Containers[0].Image = apps[r.IntN(len(apps))]
	switch r.IntN(10) {
	case 0:
		spec.NodeSelector = map[string]string{"zone": zones[r.IntN(len(zones))]}
	case 1:
		spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{term}}}
	case 2:
		spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{term}}}
	case 3:
		spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{Weight: 50, PodAffinityTerm: term}}}}
	case 4:
		how := []corev1.UnsatisfiableConstraintAction{corev1.DoNotSchedule, corev1.ScheduleAnyway}[r.IntN(2)]
		spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: "zone", WhenUnsatisfiable: how, LabelSelector: others}}
	case 5:
		spec.Containers[0].Ports = []corev1.ContainerPort{{HostPort: int32(80 + r.IntN(2)), Protocol: corev1.ProtocolTCP}}
	case 6:
		spec.Tolerations = []corev1.Toleration{{Key: "zone", Operator: corev1.TolerationOpExists}}
	case 7:
		spec.NodeSelector = map[string]string{"zone": "nowhere"}
	}
	return p
}

var (
	apps  = []string{"a", "b", "c"}
	zones = []string{"north", "south"}
)

// populate creates random nodes, pods that run on them, and pods that wait.
func (w *world) populate(r *rand.Rand) {
	nodes := 2 + r.IntN(5)
	for i := range nodes {
		n := machine(fmt.Sprint("n", i))
		n.Labels = map[string]string{"zone": zones[r.IntN(2)], "kubernetes.io/hostname": n.Name}
		n.Status.Allocatable[corev1.ResourceCPU] = *resource.NewQuantity(int64(2+r.IntN(6)), resource.DecimalSI)
		n.Status.Images = []corev1.ContainerImage{{Names: []string{apps[r.IntN(3)] + ":latest"}, SizeBytes: int64(r.IntN(1000)) << 20}}
		n.Spec.Unschedulable = r.IntN(8) == 0
		if r.IntN(5) == 0 {
			n.Spec.Taints = []corev1.Taint{{Key: "zone", Effect: []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule}[r.IntN(2)]}}
		}
		create(w, n)
	}
	create(w, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns"}})
	create(w, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "s", Namespace: "ns"}, Spec: corev1.ServiceSpec{Selector: map[string]string{"app": "a"}}})
	create(w, gpuClass())
	for i := range nodes {
		if n := r.IntN(3); n > 0 {
			create(w, gpusOf(fmt.Sprint("n", i), n))
		}
	}
	for i := range 3 {
		create(w, &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("gpus", i), Namespace: "ns"}, Spec: wantsGPUs(1 + r.Int64N(2))})
	}
	for i := range r.IntN(12) {
		p := randomPod(r, fmt.Sprint("old", i))
		if r.IntN(6) > 0 {
			p.Spec.NodeName = fmt.Sprint("n", r.IntN(nodes))
		}
		create(w, p)
	}
}

// sized returns a pod that requests whole CPUs.
func sized(name string, cpus int, priority int32) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Labels: map[string]string{"app": name[:1]}}}
	p.Spec.SchedulerName, p.Spec.Priority = corev1.DefaultSchedulerName, &priority
	p.Spec.Containers = []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
		corev1.ResourceCPU: *resource.NewQuantity(int64(cpus), resource.DecimalSI),
	}}}}
	return p
}

// fill creates nodes of four CPUs, and pods of lower priority that use them.
func (w *world) fill(r *rand.Rand) (running []*corev1.Pod) {
	for i := range 2 + r.IntN(3) {
		create(w, machine(fmt.Sprint("n", i)))
		for j, left := 0, 4; left > 0; j++ {
			cpus := 1 + r.IntN(left)
			left -= cpus
			p := sized(fmt.Sprintf("%c%d-%d", 'a'+rune(r.IntN(3)), i, j), cpus, int32(r.IntN(4)))
			p.Spec.NodeName = fmt.Sprint("n", i)
			start := metav1.NewTime(time.Now().Add(-time.Duration(r.IntN(1000)) * time.Second).Truncate(time.Second))
			p.Status.StartTime, p.Status.Phase = &start, corev1.PodRunning
			running = append(running, create(w, p))
		}
	}
	create(w, &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "ns"},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}}},
		Status:     policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: int32(r.IntN(2))},
	})
	return running
}

func machine(name string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("16Gi"), corev1.ResourcePods: resource.MustParse("110"),
	}}}
}

// TestPlanRespectsVolumes: what CSI drivers say about nodes and volumes counts in a plan,
// for ephemeral volumes too.
func TestPlanRespectsVolumes(t *testing.T) {
	const driver = "disks.example.com"
	p := sized("p", 1, 0)
	p.UID = "p"
	p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}}}
	volume := func(name, zone string) *corev1.PersistentVolume {
		return &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelTopologyZone: zone}},
			Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: corev1.PersistentVolumeSource{
				CSI: &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: name},
			}},
		}
	}
	world := func(limit int32, zone string) *plan.Cluster {
		c := &plan.Cluster{
			Claims: []*corev1.PersistentVolumeClaim{{
				ObjectMeta: metav1.ObjectMeta{
					Namespace: "ns", Name: "p-v", UID: "claim", Annotations: map[string]string{volumebinding.BindCompleted: "yes"},
					OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(p, corev1.SchemeGroupVersion.WithKind("Pod"))},
				},
				Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "pv"},
			}},
			Volumes: []*corev1.PersistentVolume{volume("pv", zone), volume("other", zone)},
			CSINodes: []*storagev1.CSINode{{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Spec: storagev1.CSINodeSpec{
				Drivers: []storagev1.CSINodeDriver{{Name: driver, NodeID: "n1", Allocatable: &storagev1.VolumeNodeResources{Count: &limit}}},
			}}},
		}
		for _, name := range []string{"n1", "n2"} {
			n := machine(name)
			n.Labels = map[string]string{corev1.LabelTopologyZone: "zone-" + name}
			c.Nodes = append(c.Nodes, n)
		}
		return c
	}
	for name, row := range map[string]struct {
		limit      int32
		zone, want string
	}{
		"Zone":  {1, "zone-n1", "n1"},
		"Other": {1, "zone-n2", "n2"},
		"Limit": {0, "zone-n1", ""},
		"Full":  {1, "zone-n1", ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := world(row.limit, row.zone)
			if name == "Full" {
				c.Attachments = []*storagev1.VolumeAttachment{{ObjectMeta: metav1.ObjectMeta{Name: "other-n1"}, Spec: storagev1.VolumeAttachmentSpec{
					Attacher: driver, NodeName: "n1", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: new("other")},
				}}}
			}
			if got := plan.New(c).Place(p)[0]; got.Node != row.want {
				t.Errorf("the pod lands on %q, want %q: %s", got.Node, row.want, got.Reason)
			}
		})
	}
}

// TestDrain: what a drain would do with each pod of a node, and where the
// evicted pods land.
func TestDrain(t *testing.T) {
	owned := func(p *corev1.Pod, kind, node string) *corev1.Pod {
		yes := true
		p.UID, p.Spec.NodeName, p.Status.Phase = types.UID(p.Name), node, corev1.PodRunning
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		if kind != "" {
			p.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Name: "o", UID: "o", Controller: &yes}}
		}
		return p
	}
	budget := func(app string, allowed int32) *policyv1.PodDisruptionBudget {
		return &policyv1.PodDisruptionBudget{
			ObjectMeta: metav1.ObjectMeta{Name: app, Namespace: "ns"},
			Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}},
			Status:     policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: allowed, CurrentHealthy: 2, DesiredHealthy: 2 - allowed, ExpectedPods: 2},
		}
	}
	static := owned(sized("kube", 1, 0), "Node", "n1")
	static.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
	data := owned(sized("data", 1, 0), "ReplicaSet", "n1")
	data.Spec.Volumes = []corev1.Volume{{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	c := &plan.Cluster{
		Nodes: []*corev1.Node{machine("n1"), machine("n2")},
		Pods: []*corev1.Pod{
			static, data,
			owned(sized("agent", 1, 0), "DaemonSet", "n1"),  // stays
			owned(sized("lone", 1, 0), "", "n1"),            // is lost
			owned(sized("held", 1, 0), "ReplicaSet", "n1"),  // budget of 0
			owned(sized("web-1", 2, 0), "ReplicaSet", "n1"), // budget of 1
			owned(sized("web-2", 2, 0), "ReplicaSet", "n1"), // the second of the same budget
			owned(sized("other", 1, 0), "ReplicaSet", "n2"),
		},
		Budgets: []*policyv1.PodDisruptionBudget{budget("h", 0), budget("w", 1)},
	}
	got, err := plan.Drain(c, "n1")
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, e := range got {
		line := fmt.Sprintf("%s stays=%q blocked=%q waits=%q lost=%t data=%t", e.Pod, e.Stays, e.Blocked, e.Waits, e.Lost, e.LocalData)
		if e.Lands != nil {
			line += " lands=" + e.Lands.Node
		}
		lines = append(lines, line)
	}
	want := []string{
		`ns/agent stays="its DaemonSet would run it again" blocked="" waits="" lost=false data=false`,
		`ns/data stays="" blocked="" waits="" lost=false data=true lands=n2`,
		`ns/held stays="" blocked="PodDisruptionBudget h allows no eviction: 2 of 2 pods are healthy, 2 must be" waits="" lost=false data=false`,
		`ns/kube stays="it is a static pod" blocked="" waits="" lost=false data=false`,
		`ns/lone stays="" blocked="" waits="" lost=true data=false`,
		`ns/web-1 stays="" blocked="" waits="" lost=false data=false lands=n2`,
		`ns/web-2 stays="" blocked="" waits="PodDisruptionBudget w, until the pods evicted before it are replaced" lost=false data=false lands=`,
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Error(diff)
	}
	i := slices.IndexFunc(got, func(e plan.Eviction) bool { return e.Pod == "ns/web-2" })
	if why := got[i].Lands.Why(); why == "" {
		t.Error("web-2 has no reason to stay pending")
	}
	if _, err := plan.Drain(c, "n3"); err == nil {
		t.Error("a node that does not exist can be drained")
	}
}
