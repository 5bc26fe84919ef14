package pods

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/conditions"
	"podium/pkg/kubelet/cri"
	"podium/pkg/kubelet/cri/crifake"
	"podium/pkg/kubelet/nodepressure"
	"podium/pkg/kubelet/pids"
	"podium/pkg/kubelet/resources"
)

func TestAVolumeThatOutgrowsItsLimitEvicts(t *testing.T) {
	bubble(t, crifake.Config{}, func(r *rig) {
		p := newPod("a")
		p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: ptr(resource.MustParse("1Mi"))}}}}
		p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "v", MountPath: "/v"}}
		r.api.create(p)
		r.pass(30 * time.Second)
		if p := r.pod("a"); p.Status.Phase != corev1.PodRunning {
			t.Fatalf("too early: %+v", p.Status)
		}
		file := filepath.Join(r.dir, "pods", string(p.UID), "volumes/kubernetes.io~empty-dir/v/big")
		if err := os.WriteFile(file, make([]byte, 2<<20), 0o600); err != nil {
			t.Fatal(err)
		}
		r.pass(2 * measurePeriod)
		r.wantEvicted("a", `Usage of EmptyDir volume "v" exceeds the limit "1Mi". `)
	})
}

// wantEvicted checks the pod's status and the event.
func (r *rig) wantEvicted(name, message string) {
	r.t.Helper()
	s := r.pod(name).Status
	if s.Phase != corev1.PodFailed || s.Reason != "Evicted" || s.Message != message {
		r.t.Errorf("pod %s is %s, reason %q, message %q; want message %q", name, s.Phase, s.Reason, s.Message, message)
	}
	if events := r.api.eventsOf("Evicted"); len(events) != 1 || events[0] != message {
		r.t.Errorf("events of pod %s: %q", name, events)
	}
}

func storageLimit(text string) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceEphemeralStorage: resource.MustParse(text)}}
}

func TestEphemeralStorageLimitEvicts(t *testing.T) {
	const grown = 60 << 20
	for name, c := range map[string]struct {
		grow func(*testing.T, *rig, *corev1.Pod)
		want string
	}{
		"the writable layer of the only container": {
			grow: func(_ *testing.T, r *rig, p *corev1.Pod) { r.runtime.Write(r.container(p.Name, "app").ID, grown) },
			want: "Pod ephemeral local storage usage exceeds the total limit of containers 10Mi. ",
		},
		"its logs": {
			grow: func(t *testing.T, r *rig, p *corev1.Pod) {
				if err := os.WriteFile(filepath.Join(r.dir, "logs", "default_a_"+string(p.UID), "app", "0.log"), make([]byte, 11<<20), 0o600); err != nil {
					t.Fatal(err)
				}
			},
			want: "Pod ephemeral local storage usage exceeds the total limit of containers 10Mi. ",
		},
		"its /etc/hosts": {
			grow: func(t *testing.T, r *rig, p *corev1.Pod) {
				if err := os.WriteFile(filepath.Join(r.dir, "pods", string(p.UID), "etc-hosts"), make([]byte, 11<<20), 0o644); err != nil {
					t.Fatal(err)
				}
			},
			want: "Pod ephemeral local storage usage exceeds the total limit of containers 10Mi. ",
		},
		"an emptyDir without a limit": {
			grow: func(t *testing.T, r *rig, p *corev1.Pod) {
				if err := os.WriteFile(filepath.Join(r.dir, "pods", string(p.UID), "volumes/kubernetes.io~empty-dir/v/big"), make([]byte, 11<<20), 0o600); err != nil {
					t.Fatal(err)
				}
			},
			want: "Pod ephemeral local storage usage exceeds the total limit of containers 10Mi. ",
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, crifake.Config{Behave: func(crifake.Start) crifake.Behaviour { return crifake.Behaviour{Deaf: true} }}, func(r *rig) {
				p := newPod("a")
				p.Spec.Containers[0].Resources = storageLimit("10Mi")
				p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
				p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "v", MountPath: "/v"}}
				r.api.create(p)
				r.pass(time.Minute)
				if p := r.pod("a"); p.Status.Phase != corev1.PodRunning {
					t.Fatalf("too early: %+v", p.Status)
				}
				c.grow(t, r, p)
				r.pass(measurePeriod + 2*time.Second) // evictionGracePeriod, not the pod's 30 s
				r.wantEvicted("a", c.want)
			})
		})
	}
}

func TestOneContainerOverItsOwnStorageLimitEvicts(t *testing.T) {
	bubble(t, crifake.Config{}, func(r *rig) {
		p := newPod("a", func(p *corev1.Pod) { p.Spec.Containers = append(p.Spec.Containers, newContainer("side")) })
		p.Spec.Containers[0].Resources, p.Spec.Containers[1].Resources = storageLimit("10Mi"), storageLimit("50Mi")
		r.api.create(p)
		r.pass(time.Minute)
		r.runtime.Write(r.container("a", "side").ID, 30<<20)
		r.pass(time.Minute)
		if p := r.pod("a"); p.Status.Phase != corev1.PodRunning {
			t.Fatalf("evicted below its limits: %+v", p.Status)
		}
		r.runtime.Write(r.container("a", "app").ID, 11<<20)
		r.pass(2 * measurePeriod)
		r.wantEvicted("a", `Container app exceeded its local ephemeral storage limit "10Mi". `)
	})
}

func TestCriticalPodsAreNotEvicted(t *testing.T) {
	bubble(t, crifake.Config{}, func(r *rig) {
		p := newPod("a", func(p *corev1.Pod) { p.Spec.Priority = ptr(int32(criticalPriority)) })
		p.Spec.Containers[0].Resources = storageLimit("10Mi")
		r.api.create(p)
		r.pass(time.Second)
		r.runtime.Write(r.container("a", "app").ID, 30<<20)
		r.pass(time.Minute)
		if p := r.pod("a"); p.Status.Phase != corev1.PodRunning {
			t.Errorf("%+v", p.Status)
		}
	})
}

// counts implements Cgroups with a fixed number of processes per pod.
type counts struct {
	resources.None
	mu sync.Mutex
	of map[types.UID]int64
}

func (c *counts) Processes(pod *corev1.Pod) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.of[pod.UID]
}

func (c *counts) set(uid types.UID, n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.of[uid] = n
}

// usage is the usage of a node with 1000 process ids, some of them taken by pods.
func (c *counts) usage() (pids.Usage, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	u := pids.Usage{Max: 1000}
	for _, n := range c.of {
		u.Running += n
	}
	return u, nil
}

func TestTooFewProcessIDsEvictTheWorstPodAndRefuseNewOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, crifake.Config{})
		groups := &counts{of: map[types.UID]int64{}}
		r.tweak = func(c *Config) {
			c.Cgroups = groups
			c.PIDs = &pids.Monitor{Read: groups.usage, Threshold: pids.Threshold{Fraction: .1}, Transition: 5 * time.Minute, Now: time.Now}
		}
		r.start()
		defer func() { r.stop() }()
		for name, priority := range map[string]int32{"small": 0, "bomb": 0, "important": 100, "critical": criticalPriority} {
			r.api.create(newPod(name, func(p *corev1.Pod) { p.Spec.Priority = &priority }))
		}
		r.pass(time.Second)
		groups.set("uid-small", 10)
		groups.set("uid-important", 400)
		groups.set("uid-critical", 400)
		groups.set("uid-bomb", 150)
		r.pass(measurePeriod + 2*time.Second)
		const want = "The node was low on resource: pids. Threshold quantity: 100, available: 40. "
		r.wantEvicted("bomb", want)
		c := conditions.Find(r.pod("bomb").Status.Conditions, corev1.DisruptionTarget)
		if c == nil || c.Status != corev1.ConditionTrue || c.Reason != corev1.PodReasonTerminationByKubelet || c.Message != want {
			t.Errorf("condition is %+v", c)
		}
		groups.set("uid-bomb", 0)

		r.api.create(newPod("late"))
		r.api.create(newPod("late-critical", func(p *corev1.Pod) { p.Spec.Priority = ptr(int32(criticalPriority)) }))
		r.pass(time.Minute)
		if s := r.pod("late").Status; s.Phase != corev1.PodFailed || s.Reason != "Evicted" || s.Message != "Pod was rejected: The node had condition: [PIDPressure]. " {
			t.Errorf("a pod that is new to a node under pressure is %+v", s)
		}
		for _, name := range strings.Fields("small important critical late-critical") {
			if s := r.pod(name).Status; s.Phase != corev1.PodRunning {
				t.Errorf("pod %s is %+v", name, s)
			}
		}
		r.pass(5 * time.Minute)
		r.api.create(newPod("later"))
		r.pass(time.Second)
		if s := r.pod("later").Status; s.Phase != corev1.PodRunning {
			t.Errorf("after the transition period a new pod is %+v", s)
		}
	})
}

// low is a node whose available memory and disk a test sets. The writable layers that the
// runtime has take of the disk.
type low struct {
	runtime      *crifake.Runtime
	mu           sync.Mutex
	memory, disk int64
}

func (l *low) set(memory, disk int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.memory, l.disk = memory, disk
}

func (l *low) read() map[nodepressure.Signal]nodepressure.Observation {
	l.mu.Lock()
	defer l.mu.Unlock()
	return map[nodepressure.Signal]nodepressure.Observation{
		nodepressure.Memory: {Available: l.memory, Capacity: 8 << 30}, nodepressure.NodeFS: {Available: l.disk - l.written(), Capacity: 100 << 30},
	}
}

func (l *low) written() (sum int64) {
	all, err := cri.ListStats(context.Background(), l.runtime, nil)
	if err != nil {
		return 0
	}
	for _, s := range all {
		sum += int64(s.GetWritableLayer().GetUsedBytes().GetValue())
	}
	return sum
}

// short runs a test on a node with thresholds of memory and disk.
func short(t *testing.T, c nodepressure.Config, f func(r *rig, l *low, freed *int)) {
	t.Helper()
	thresholds, err := nodepressure.Parse(c)
	if err != nil {
		t.Fatal(err)
	}
	l, freed := &low{memory: 4 << 30, disk: 50 << 30}, 0
	behave := func(s crifake.Start) crifake.Behaviour {
		return crifake.Behaviour{Exits: s.Container == "job", Deaf: s.Container == "deaf"}
	}
	bubbleWith(t, crifake.Config{Behave: behave}, func(r *rig) {
		l.runtime = r.runtime
		r.tweak = func(cfg *Config) {
			cfg.Pressure = &nodepressure.Monitor{Read: l.read, Thresholds: thresholds, Transition: 5 * time.Minute, Now: time.Now}
			cfg.FreeDisk = func(context.Context) { freed++ }
			cfg.MaxEvictionGrace = time.Minute
		}
	}, func(r *rig) { f(r, l, &freed) })
}

func memoryRequest(q string) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(q)}}
}

func TestLowMemoryEvictsWhoExceedsItsRequestFirst(t *testing.T) {
	short(t, nodepressure.Config{Hard: []string{"memory.available<100Mi"}}, func(r *rig, l *low, freed *int) {
		for name, request := range map[string]string{"modest": "2Gi", "greedy": "100Mi", "worse": "100Mi", "critical": "1Mi"} {
			r.api.create(newPod(name, func(p *corev1.Pod) {
				p.Spec.Containers[0].Resources = memoryRequest(request)
				p.Spec.Priority = ptr(map[string]int32{"worse": 100, "critical": criticalPriority}[name])
			}))
		}
		r.pass(time.Second)
		for name, bytes := range map[string]uint64{"modest": 1 << 30, "greedy": 200 << 20, "worse": 2 << 30, "critical": 2 << 30} {
			r.runtime.Use(r.container(name, "app").ID, bytes)
		}
		l.set(50<<20, 50<<30)
		r.pass(measurePeriod + 2*time.Second)
		const want = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. Container app was using 200Mi, request is 100Mi, has larger consumption of memory. "
		r.wantEvicted("greedy", want)
		if c := conditions.Find(r.pod("greedy").Status.Conditions, corev1.DisruptionTarget); c == nil || c.Message != want {
			t.Errorf("condition is %+v", c)
		}
		r.pass(measurePeriod + 2*time.Second)
		if s := r.pod("worse").Status; s.Reason != "Evicted" || s.Message != strings.Replace(want, "200Mi", "2Gi", 1) {
			t.Errorf("the next pod is %+v", s)
		}
		l.set(4<<30, 50<<30)
		r.pass(time.Minute)
		for _, name := range []string{"modest", "critical"} {
			if s := r.pod(name).Status; s.Phase != corev1.PodRunning {
				t.Errorf("pod %s is %+v", name, s)
			}
		}
		r.api.create(newPod("besteffort"))
		r.api.create(newPod("burstable", func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources, p.Status.QOSClass = memoryRequest("1Mi"), corev1.PodQOSBurstable
		}))
		r.pass(time.Second)
		if s := r.pod("besteffort").Status; s.Reason != "Evicted" || s.Message != "Pod was rejected: The node had condition: [MemoryPressure]. " {
			t.Errorf("a pod without requests is %+v", s)
		}
		if s := r.pod("burstable").Status; s.Phase != corev1.PodRunning || *freed != 0 {
			t.Errorf("a pod with requests is %+v; images were removed %d times for memory", s, *freed)
		}
	})
}

func TestLowDiskRemovesImagesBeforePods(t *testing.T) {
	short(t, nodepressure.Config{Hard: []string{"nodefs.available<10%"}}, func(r *rig, l *low, freed *int) {
		r.api.create(newPod("writer"))
		r.api.create(newPod("reader"))
		r.pass(time.Second)
		r.runtime.Write(r.container("writer", "app").ID, 45<<30)
		log := filepath.Join(r.dir, "logs", "default_writer_uid-writer", "app", "0.log")
		if err := os.WriteFile(log, nil, 0o640); err != nil {
			r.t.Fatal(err)
		}
		r.pass(measurePeriod + 2*time.Second)
		// The usage has the files of the test's disk in it.
		const want = "The node was low on resource: ephemeral-storage. Threshold quantity: 10Gi, available: 5Gi. Container app was using "
		before := r.pod("writer")
		if s := before.Status; s.Phase != corev1.PodFailed || s.Reason != "Evicted" || !strings.HasPrefix(s.Message, want) {
			r.t.Errorf("the pod that fills the disk is %+v", s)
		}
		if *freed != 1 {
			r.t.Errorf("images were removed %d times", *freed)
		}
		r.pass(time.Minute)
		if s := r.pod("reader").Status; s.Phase != corev1.PodRunning {
			r.t.Errorf("the other pod is %+v", s)
		}
		if _, err := os.Stat(filepath.Dir(filepath.Dir(log))); !os.IsNotExist(err) {
			r.t.Errorf("logs of the evicted pod: %v", err)
		}
		r.api.create(newPod("late", func(p *corev1.Pod) { p.Spec.Containers[0].Resources = memoryRequest("1Mi") }))
		r.pass(time.Second)
		if s := r.pod("late").Status; s.Message != "Pod was rejected: The node had condition: [DiskPressure]. " {
			r.t.Errorf("a new pod is %+v", s)
		}
		r.restart()
		r.pass(time.Minute)
		if diff := cmp.Diff(before.Status, r.pod("writer").Status); diff != "" {
			r.t.Errorf("status of the evicted pod (-before +now):\n%s", diff)
		}
	})
}

// What an evicted pod left on the disk is removed by the next kubelet if need be.
func TestRestartedKubeletRemovesEvictedPods(t *testing.T) {
	bubble(t, crifake.Config{}, func(r *rig) {
		r.api.create(newPod("a"))
		r.pass(time.Second)
		r.stop()
		r.api.change("a", func(p *corev1.Pod) { p.Status.Phase, p.Status.Reason = corev1.PodFailed, "Evicted" })
		r.start()
		r.pass(40 * time.Second)
		if left := r.runtime.Containers(); len(left) > 0 || len(r.calls("RemovePodSandbox")) != 1 {
			r.t.Errorf("the runtime has %+v", left)
		}
		if s := r.pod("a").Status; s.Reason != "Evicted" || s.ContainerStatuses[0].State.Terminated == nil {
			r.t.Errorf("status is %+v", s)
		}
	})
}

// Containers of pods that have ended go before any pod is evicted. Their statuses stay.
func TestLowDiskRemovesEndedContainersBeforePods(t *testing.T) {
	short(t, nodepressure.Config{Hard: []string{"nodefs.available<10%"}}, func(r *rig, l *low, freed *int) {
		r.api.create(newPod("runs"))
		r.api.create(newPod("ended", func(p *corev1.Pod) {
			p.Spec.RestartPolicy, p.Spec.Containers[0].Name = corev1.RestartPolicyNever, "job"
		}))
		r.pass(time.Minute)
		before := r.pod("ended")
		if before.Status.Phase != corev1.PodSucceeded {
			r.t.Fatalf("status is %+v", before.Status)
		}
		log := filepath.Join(r.dir, "logs", "default_ended_uid-ended", "job", "0.log")
		if err := os.WriteFile(log, nil, 0o640); err != nil {
			r.t.Fatal(err)
		}
		r.runtime.Write(r.container("ended", "job").ID, 45<<30)
		r.pass(time.Minute)
		r.restart()
		r.pass(time.Minute)
		if s := r.pod("runs").Status; s.Phase != corev1.PodRunning || *freed != 1 {
			r.t.Errorf("images were removed %d times; the other pod is %+v", *freed, s)
		}
		if diff := cmp.Diff(before.Status, r.pod("ended").Status); diff != "" {
			r.t.Errorf("status of the pod that has ended (-before +now):\n%s", diff)
		}
		if _, err := os.Stat(log); !os.IsNotExist(err) {
			r.t.Errorf("its log: %v", err)
		}
	})
}

// A soft threshold evicts after its grace period, and gives the pod time to end.
func TestSoftThresholds(t *testing.T) {
	short(t, nodepressure.Config{Soft: []string{"memory.available<1Gi"}, SoftGrace: map[string]string{"memory.available": "1m"}}, func(r *rig, l *low, _ *int) {
		r.api.create(newPod("a"))
		r.pass(time.Second)
		l.set(500<<20, 50<<30)
		r.pass(50 * time.Second)
		if s := r.pod("a").Status; s.Phase != corev1.PodRunning {
			t.Fatalf("within the grace period the pod is %+v", s)
		}
		r.pass(25 * time.Second)
		r.wantEvicted("a", "The node was low on resource: memory. Threshold quantity: 1Gi, available: 500Mi. ")
		if calls := r.calls("StopContainer a/app"); len(calls) != 1 {
			t.Errorf("calls %q", calls)
		}
	})
}

// While a pod has time to end, no other is evicted in its place.
func TestSoftThresholdsEvictOnePodAtATime(t *testing.T) {
	short(t, nodepressure.Config{Soft: []string{"memory.available<1Gi"}, SoftGrace: map[string]string{"memory.available": "10s"}}, func(r *rig, l *low, _ *int) {
		r.api.create(newPod("b"))
		r.api.create(newPod("a", func(p *corev1.Pod) {
			p.Spec.TerminationGracePeriodSeconds, p.Spec.Containers[0].Name = ptr(int64(600)), "deaf"
		}))
		r.pass(time.Second)
		r.runtime.Use(r.container("a", "deaf").ID, 1<<30)
		l.set(500<<20, 50<<30)
		r.pass(75 * time.Second)
		if s := r.pod("a").Status; s.Phase != corev1.PodRunning || len(r.api.eventsOf("Evicted")) != 1 {
			r.t.Errorf("events %q; the pod is %+v", r.api.eventsOf("Evicted"), s)
		}
		l.set(4<<30, 50<<30)
		r.pass(10 * time.Second)
		if a, b := r.pod("a").Status, r.pod("b").Status; a.Reason != "Evicted" || b.Phase != corev1.PodRunning {
			r.t.Errorf("in the end the pods are %+v and %+v", a, b)
		}
	})
}
