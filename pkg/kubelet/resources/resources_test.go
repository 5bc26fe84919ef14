package resources

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	systemd "github.com/coreos/go-systemd/v22/dbus"
	"github.com/godbus/dbus/v5"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// list parses "cpu=1 memory=1Gi".
func list(pairs ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		out[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return out
}

func container(requests, limits corev1.ResourceList) corev1.Container {
	return corev1.Container{Resources: corev1.ResourceRequirements{Requests: requests, Limits: limits}}
}

func pod(containers ...corev1.Container) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u-1"}, Spec: corev1.PodSpec{Containers: containers}}
}

func TestQOS(t *testing.T) {
	both := list("cpu", "1", "memory", "1Gi")
	for _, c := range []struct {
		name, reason string
		pod          *corev1.Pod
		want         corev1.PodQOSClass
	}{
		{"Nothing", "says nothing", pod(container(nil, nil)), corev1.PodQOSBestEffort},
		{"Zero", "zero is nothing", pod(container(list("cpu", "0"), nil)), corev1.PodQOSBestEffort},
		{"Storage", "only CPU and memory count", pod(container(list("ephemeral-storage", "1Gi"), nil)), corev1.PodQOSBestEffort},
		{"Equal", "requests equal limits everywhere", pod(container(both, both), container(both, both)), corev1.PodQOSGuaranteed},
		{"OneWithout", "one container has none", pod(container(both, both), container(nil, nil)), corev1.PodQOSBurstable},
		{"LimitsAbove", "limits above requests", pod(container(list("cpu", "1", "memory", "1Gi"), list("cpu", "2", "memory", "1Gi"))), corev1.PodQOSBurstable},
		{"CPUOnly", "no memory", pod(container(list("cpu", "1"), list("cpu", "1"))), corev1.PodQOSBurstable},
	} {
		if got := QOS(c.pod); got != c.want {
			t.Errorf("%s: %s, want %s: %s", c.name, got, c.want, c.reason)
		}
	}
}

func TestRequestsAndLimits(t *testing.T) {
	p := pod(container(list("cpu", "100m"), list("cpu", "1", "memory", "1Gi")), container(list("cpu", "200m"), list("cpu", "1")))
	p.Spec.InitContainers = []corev1.Container{container(list("cpu", "250m", "memory", "2Gi"), list("cpu", "3"))}
	p.Spec.Overhead = list("cpu", "10m")
	requests, limits := Requests(p), Limits(p)
	if got := requests.Cpu().String(); got != "310m" {
		t.Errorf("CPU request %s: containers are summed, the init container is smaller, overhead comes on top", got)
	}
	if got := requests.Memory().String(); got != "2Gi" {
		t.Errorf("memory request %s: the init container's is larger", got)
	}
	if _, has := limits[corev1.ResourceMemory]; has {
		t.Error("a memory limit although a container has none")
	}
	if got := limits.Cpu().String(); got != "3010m" {
		t.Errorf("CPU limit %s", got)
	}
}

func TestKernelNumbers(t *testing.T) {
	for _, c := range []struct{ milli, shares, quota, weight int64 }{
		{0, 2, 0, 1}, {1, 2, 1000, 1}, {250, 256, 25000, 10}, {1000, 1024, 100000, 39}, {300000, 262144, 30000000, 10000},
	} {
		if s, q, w := Shares(c.milli), Quota(c.milli), Weight(Shares(c.milli)); s != c.shares || q != c.quota || w != c.weight {
			t.Errorf("%dm CPU: shares %d, quota %d, weight %d; want %+v", c.milli, s, q, w, c)
		}
	}
}

func TestContainerNumbers(t *testing.T) {
	limits := list("cpu", "500m", "memory", "64Mi", "hugepages-2Mi", "4Mi", "hugepages-1Gi", "1Gi")
	c := container(list("cpu", "250m"), limits)
	node := list("memory", "8Gi", "hugepages-2Mi", "64Mi", "hugepages-1Gi", "1Gi")
	v2 := map[string]string{"memory.oom.group": "1", swapMax: "0"}
	r := Container(pod(c), &c, node, v2)
	if r.CpuShares != 256 || r.CpuQuota != 50000 || r.CpuPeriod != 100000 || r.MemoryLimitInBytes != 64<<20 || r.Unified["memory.oom.group"] != "1" {
		t.Errorf("%+v", r)
	}
	if h := r.HugepageLimits; len(h) != 2 || h[0].PageSize != "1GB" || h[1].PageSize != "2MB" || h[1].Limit != 4<<20 {
		t.Errorf("huge pages %+v", h)
	}
	c = container(nil, limits)
	if r := Container(pod(c), &c, node, nil); r.CpuShares != 512 || r.Unified != nil || r.MemorySwapLimitInBytes != r.MemoryLimitInBytes {
		t.Errorf("%+v: a limit stands for the request it lacks", r)
	}
	c = container(nil, list("cpu", "1"))
	if r := Container(pod(c), &c, node, v2); r.MemoryLimitInBytes != 0 || r.Unified["memory.swap.max"] != "0" || r.Unified["memory.oom.group"] != "1" {
		t.Errorf("without a memory limit, on cgroup v2, %+v", r)
	}
	if r := Container(pod(c), &c, node, nil); r.MemoryLimitInBytes != 0 || r.MemorySwapLimitInBytes != 0 || r.Unified != nil {
		t.Errorf("without a memory limit, on cgroup v1, %+v", r)
	}
	if h := Container(pod(c), &c, node, v2).HugepageLimits; len(h) != 2 || h[0].Limit != 0 || h[1].Limit != 0 {
		t.Errorf("a container that asks for no huge pages has %+v", h)
	}
}

func TestOOMScoreAdj(t *testing.T) {
	const capacity = 8 << 30
	burst := func(memory string) corev1.Container { return container(list("memory", memory), nil) }
	full := list("cpu", "1", "memory", "1Gi")
	for _, c := range []struct {
		name string
		c    corev1.Container
		want int64
	}{
		{"best effort dies first", container(nil, nil), 1000},
		{"guaranteed last", container(full, full), -997},
		{"a quarter of the node", burst("2Gi"), 750},
		{"nearly nothing stays below best effort", burst("1Mi"), 999},
		{"all of it stays above guaranteed", burst("8Gi"), 3},
	} {
		if got := OOMScoreAdj(pod(c.c), &c.c, capacity); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

// The containers of a pod with limits of its own share them: a container without a limit
// has the pod's, and the requests that no container makes are spread over all.
func TestPodLevelResources(t *testing.T) {
	small := container(list("cpu", "100m", "memory", "1Gi", "hugepages-2Mi", "4Mi"), list("memory", "2Gi", "hugepages-2Mi", "4Mi"))
	p := pod(container(nil, nil), small)
	p.Spec.Resources = &corev1.ResourceRequirements{
		Requests: list("cpu", "1", "memory", "5Gi", "hugepages-2Mi", "8Mi"), Limits: list("cpu", "2", "memory", "8Gi", "hugepages-2Mi", "8Mi"),
	}
	if diff := cmp.Diff(Group{Shares: 1024, Quota: 200000, Memory: 8 << 30, HugePages: map[string]int64{"2MB": 8 << 20}}, Pod(p, 0)); diff != "" {
		t.Errorf("the pod's cgroup (-want +got):\n%s", diff)
	}
	capacity := list("memory", "16Gi", "hugepages-2Mi", "16Mi")
	r := Container(p, &p.Spec.Containers[0], capacity, nil)
	if r.HugepageLimits[0].Limit != 8<<20 || r.CpuQuota != 200000 || r.CpuShares != 2048 || r.MemoryLimitInBytes != 8<<30 || r.OomScoreAdj != 1000-1000*2/16 {
		t.Errorf("a container without limits has %v", r)
	}
	r = Container(p, &p.Spec.Containers[1], capacity, nil)
	if r.HugepageLimits[0].Limit != 4<<20 || r.CpuQuota != 200000 || r.CpuShares != 102 || r.MemoryLimitInBytes != 2<<30 || r.OomScoreAdj != 1000-1000*3/16 {
		t.Errorf("a container with a limit has %v", r)
	}
	if got := QOS(p); got != corev1.PodQOSBurstable {
		t.Errorf("its class is %s", got)
	}
}

func read(t *testing.T, path ...string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestCgroupV1Files(t *testing.T) {
	mount := t.TempDir()
	for _, c := range []string{"cpu", "memory", "hugetlb"} { // this host has no pids controller
		if err := os.Mkdir(filepath.Join(mount, c), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	ctx, f := t.Context(), NewFS(Options{Mount: mount, Root: "podium", Log: slog.New(slog.DiscardHandler)})
	p := pod(container(list("cpu", "250m", "hugepages-2Mi", "4Mi"), list("cpu", "500m", "memory", "64Mi", "hugepages-2Mi", "4Mi")))
	if err := f.Prepare(ctx, list("cpu", "2", "memory", "1Gi")); err != nil {
		t.Fatal(err)
	}
	parent, err := f.Ensure(ctx, p)
	if err != nil || parent != "/podium/kubepods/burstable/podu-1" {
		t.Fatalf("parent %q, %v", parent, err)
	}
	if err := f.Weigh(ctx, []*corev1.Pod{p, p}); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{
		"cpu/podium/kubepods/cpu.shares": "2048", "memory/podium/kubepods/memory.limit_in_bytes": "1073741824",
		"cpu/podium/kubepods/besteffort/cpu.shares": "2", "cpu/podium/kubepods/burstable/cpu.shares": "512",
		"cpu" + parent + "/cpu.shares": "256", "cpu" + parent + "/cpu.cfs_quota_us": "50000", "memory" + parent + "/memory.limit_in_bytes": "67108864",
		"hugetlb" + parent + "/hugetlb.2MB.limit_in_bytes": "4194304",
	} {
		if got := read(t, mount, file); got != want {
			t.Errorf("%s is %s, want %s", file, got, want)
		}
	}
	// On a plain file system the kernel's files prevent the removal of the directory.
	for _, c := range []string{"cpu", "memory", "hugetlb"} {
		matches, _ := filepath.Glob(filepath.Join(mount, c+parent, "*"))
		for _, m := range matches {
			os.Remove(m)
		}
	}
	if uids, err := f.Abandoned(); err != nil || len(uids) != 1 || uids[0] != "u-1" {
		t.Errorf("abandoned: %v, %v", uids, err)
	}
	if err := f.Remove(ctx, "u-1"); err != nil {
		t.Error(err)
	}
	if uids, _ := f.Abandoned(); len(uids) != 0 {
		t.Errorf("left: %v", uids)
	}
}

func TestCgroupV2Files(t *testing.T) {
	mount := t.TempDir()
	for name, text := range map[string]string{"cgroup.controllers": "cpu memory pids", "cgroup.subtree_control": "cpu memory pids"} {
		if err := os.WriteFile(filepath.Join(mount, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	f := NewFS(Options{Mount: mount, PodPIDs: 99, Log: slog.New(slog.DiscardHandler)})
	if u := f.Unified(); u["memory.oom.group"] != "1" || len(u) != 1 {
		t.Fatalf("containers get %v on a kernel without swap", u)
	}
	full := list("cpu", "1", "memory", "1Gi", "hugepages-1Gi", "2Gi")
	parent, err := f.Ensure(t.Context(), pod(container(full, full)))
	if err != nil || parent != "/kubepods/podu-1" {
		t.Fatalf("parent %q, %v", parent, err)
	}
	for file, want := range map[string]string{"cpu.weight": "39", "cpu.max": "100000 100000", "memory.max": "1073741824", "pids.max": "99", "hugetlb.1GB.max": "2147483648"} {
		if got := read(t, mount, parent, file); got != want {
			t.Errorf("%s is %s, want %s", file, got, want)
		}
	}
	if err := os.WriteFile(filepath.Join(mount, "kubepods", swapMax), []byte("max"), 0o644); err != nil {
		t.Fatal(err)
	}
	if u := f.Unified(); u[swapMax] != "0" {
		t.Errorf("containers get %v, which lets them swap", u)
	}
}

func TestReadOnlyCgroupsAreLivedWith(t *testing.T) {
	f := NewFS(Options{Mount: "/proc/self/attr", Log: slog.New(slog.DiscardHandler)}) // no file can be created there
	if _, err := f.Ensure(t.Context(), pod(container(nil, nil))); err != nil {
		t.Errorf("%v: a host without cgroups still runs pods", err)
	}
}

// bus is a systemd in memory.
type bus struct {
	units map[string]map[string]any
	calls []string
}

func (b *bus) set(name string, properties []systemd.Property) {
	if b.units[name] == nil {
		b.units[name] = map[string]any{}
	}
	for _, p := range properties {
		b.units[name][p.Name] = p.Value.Value()
	}
}

func (b *bus) StartTransientUnitContext(_ context.Context, name, _ string, properties []systemd.Property, done chan<- string) (int, error) {
	if b.units[name] != nil {
		return 0, dbus.Error{Name: unitExists}
	}
	b.calls = append(b.calls, "start "+name)
	b.set(name, properties)
	done <- "done"
	return 1, nil
}

func (b *bus) SetUnitPropertiesContext(_ context.Context, name string, _ bool, properties ...systemd.Property) error {
	b.calls = append(b.calls, "set "+name)
	b.set(name, properties)
	return nil
}

func (b *bus) StopUnitContext(_ context.Context, name, _ string, done chan<- string) (int, error) {
	if b.units[name] == nil {
		return 0, dbus.Error{Name: noSuchUnit}
	}
	delete(b.units, name)
	b.calls = append(b.calls, "stop "+name)
	done <- "done"
	return 1, nil
}

func (b *bus) ResetFailedUnitContext(context.Context, string) error { return errors.New("not loaded") }

func TestSystemdSlices(t *testing.T) {
	b := &bus{units: map[string]map[string]any{}}
	f := NewFS(Options{Mount: t.TempDir(), Root: "my-cluster", Systemd: b, Log: slog.New(slog.DiscardHandler)})
	p := pod(container(list("cpu", "250m"), list("cpu", "500m", "memory", "64Mi")))
	parent, err := f.Ensure(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	const want = "my_cluster-kubepods-burstable-podu_1.slice"
	if parent != want {
		t.Errorf("parent %s, want %s", parent, want)
	}
	got := b.units[want]
	delete(got, "Description")
	if diff := cmp.Diff(map[string]any{
		"DefaultDependencies": false, "CPUAccounting": true, "MemoryAccounting": true, "TasksAccounting": true,
		"Wants": []string{"my_cluster-kubepods-burstable.slice"}, "CPUShares": uint64(256), "CPUQuotaPerSecUSec": uint64(500000), "MemoryLimit": uint64(64 << 20),
	}, got); diff != "" {
		t.Errorf("properties (-want +got):\n%s", diff)
	}
	if _, err := f.Ensure(t.Context(), p); err != nil || b.calls[1] != "set "+want {
		t.Errorf("the second time: %v, %v", b.calls, err)
	}
	if err := f.Remove(t.Context(), "u-1"); err != nil || len(b.units) != 0 {
		t.Errorf("left: %v, %v", b.units, err)
	}
	if dir := podPlace(burstable, "u-1").below("my-cluster").sliceDir(); dir != "/my_cluster.slice/my_cluster-kubepods.slice/my_cluster-kubepods-burstable.slice/"+want {
		t.Errorf("directory %s", dir)
	}
}

func FuzzUID(f *testing.F) {
	f.Add("podabc")
	f.Add("kubepods-burstable-podabc_def.slice")
	f.Add("kubepods.slice")
	f.Fuzz(func(t *testing.T, name string) {
		if uid, ok := uidOf(name); ok && uid == types.UID(name) && name != "" {
			t.Errorf("%q is its own uid", name)
		}
	})
}

func TestPIDsOfKubepodsAndPodsAreBounded(t *testing.T) {
	full := list("cpu", "1", "memory", "1Gi")
	for _, c := range []struct {
		name  string
		files map[string]string // of the host's hierarchy
		pids  string            // the directory of the hierarchy with the pids controller
	}{
		{"v1", map[string]string{"pids/pids.max": "max", "cpu/cpu.shares": "1024", "memory/tasks": ""}, "pids"},
		{"v2", map[string]string{"cgroup.controllers": "cpu memory pids", "cgroup.subtree_control": "cpu memory pids"}, ""},
	} {
		mount := t.TempDir()
		for name, text := range c.files {
			path := filepath.Join(mount, name)
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		var log bytes.Buffer
		f := NewFS(Options{Mount: mount, PIDs: 31129, PodPIDs: 4096, Log: slog.New(slog.NewTextHandler(&log, nil))})
		p := pod(container(full, full))
		if err := f.Prepare(t.Context(), list("memory", "1Gi")); err != nil {
			t.Fatal(err)
		}
		parent, err := f.Ensure(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		if all, one := read(t, mount, c.pids, "kubepods/pids.max"), read(t, mount, c.pids, parent, "pids.max"); all != "31129" || one != "4096" {
			t.Errorf("%s: kubepods may have %s processes, a pod %s", c.name, all, one)
		}
		if n := f.Processes(p); n != 0 {
			t.Errorf("%s: %d processes in a cgroup that does not say", c.name, n)
		}
		if err := os.WriteFile(filepath.Join(mount, c.pids, parent, "pids.current"), []byte("17\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if n := f.Processes(p); n != 17 {
			t.Errorf("%s: %d processes, want 17", c.name, n)
		}
		if log.Len() > 0 {
			t.Errorf("%s: %s", c.name, log.String())
		}
	}
}

func TestAHostWithoutThePIDsControllerIsWarnedAbout(t *testing.T) {
	for name, files := range map[string]map[string]string{
		"v1":      {"cpu/cpu.shares": "1024", "memory/tasks": ""},
		"v2":      {"cgroup.controllers": "cpu memory", "cgroup.subtree_control": "cpu memory"},
		"systemd": {"cgroup.controllers": "cpu memory", "cgroup.subtree_control": "cpu memory"},
	} {
		mount := t.TempDir()
		for file, text := range files {
			path := filepath.Join(mount, file)
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		var log bytes.Buffer
		o := Options{Mount: mount, PIDs: 1000, PodPIDs: 100, Log: slog.New(slog.NewTextHandler(&log, nil))}
		if name == "systemd" {
			o.Systemd = &bus{units: map[string]map[string]any{}}
		}
		f := NewFS(o)
		for range 2 {
			if err := f.Prepare(t.Context(), nil); err != nil {
				t.Errorf("%s: %v: such a host still runs pods", name, err)
			}
		}
		if n := strings.Count(log.String(), "the host has no pids cgroup controller"); n != 1 {
			t.Errorf("%s: warned %d times:\n%s", name, n, log.String())
		}
	}
}

func TestUnenforcedAllocatableLeavesKubepodsUnlimited(t *testing.T) {
	b := &bus{units: map[string]map[string]any{}}
	f := NewFS(Options{Mount: t.TempDir(), Systemd: b, PIDs: 1000, PodPIDs: 100, Unbound: true, Log: slog.New(slog.DiscardHandler)})
	if err := f.Prepare(t.Context(), list("cpu", "2", "memory", "1Gi")); err != nil {
		t.Fatal(err)
	}
	if u := b.units["kubepods.slice"]; u["TasksMax"] != nil || u["MemoryLimit"] != nil {
		t.Errorf("kubepods has %v", u)
	}
	f.Unbound = false
	if err := f.Prepare(t.Context(), list("cpu", "2", "memory", "1Gi")); err != nil {
		t.Fatal(err)
	}
	if u := b.units["kubepods.slice"]; u["TasksMax"] != uint64(1000) || u["MemoryLimit"] != uint64(1<<30) {
		t.Errorf("kubepods has %v", u)
	}
	if _, err := f.Ensure(t.Context(), pod(container(nil, nil))); err != nil {
		t.Fatal(err)
	}
	if u := b.units["kubepods-besteffort-podu_1.slice"]; u["TasksMax"] != uint64(100) {
		t.Errorf("the pod has %v", u)
	}
}

func TestSidecarIsKilledNoSoonerThanTheContainersItServes(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	memory := func(text string) corev1.ResourceRequirements {
		return corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(text)}}
	}
	pod := &corev1.Pod{Spec: corev1.PodSpec{
		InitContainers: []corev1.Container{{Name: "s", RestartPolicy: &always, Resources: memory("1Mi")}},
		Containers:     []corev1.Container{{Name: "a", Resources: memory("400Mi")}, {Name: "b", Resources: memory("200Mi")}},
	}}
	sidecar, b := OOMScoreAdj(pod, &pod.Spec.InitContainers[0], 1<<30), OOMScoreAdj(pod, &pod.Spec.Containers[1], 1<<30)
	if sidecar != b {
		t.Errorf("the sidecar has %d, the smallest app container %d", sidecar, b)
	}
}
