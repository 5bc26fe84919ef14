package userns

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

func first(t *testing.T, a *Allocator, uid types.UID) uint32 {
	t.Helper()
	n, err := a.Of(uid)
	if err != nil {
		t.Fatal(err)
	}
	if len(n.Uids) != 1 || len(n.Gids) != 1 || n.Uids[0].HostId != n.Gids[0].HostId || n.Uids[0].Length != Length || n.Uids[0].ContainerId != 0 {
		t.Fatalf("namespace is %+v", n)
	}
	return n.Uids[0].HostId
}

func TestRangesAreUniqueAndSurviveARestart(t *testing.T) {
	dir := t.TempDir()
	a, err := New(dir, DefaultRange(2))
	if err != nil {
		t.Fatal(err)
	}
	one, two := first(t, a, "one"), first(t, a, "two")
	if one != Length || two != 2*Length || first(t, a, "one") != one {
		t.Errorf("ranges begin at %d and %d", one, two)
	}
	if _, err := a.Of("three"); err == nil {
		t.Error("more pods than ranges")
	}
	if a, err = New(dir, DefaultRange(3)); err != nil {
		t.Fatal(err)
	}
	if got := first(t, a, "three"); got != 3*Length {
		t.Errorf("after a restart the third pod's range begins at %d", got)
	}
	if first(t, a, "two") != two {
		t.Error("the restart moved a pod's range")
	}
	for range 2 {
		if err := a.Release("one"); err != nil {
			t.Error(err)
		}
	}
	if got := first(t, a, "four"); got != one {
		t.Errorf("a range that was given back is not used again: %d", got)
	}
	if got, err := os.ReadFile(filepath.Join(dir, "pods/four", File)); err != nil || string(got) != `{"uidMappings":[{"hostId":65536,"containerId":0,"length":65536}],"gidMappings":[{"hostId":65536,"containerId":0,"length":65536}]}` {
		t.Errorf("record is %s, %v", got, err)
	}
}

func TestRangesOfAnotherConfigurationAreNotCut(t *testing.T) {
	dir := t.TempDir()
	before, err := New(dir, Range{First: 100000, Length: Length})
	if err != nil {
		t.Fatal(err)
	}
	first(t, before, "old")
	a, err := New(dir, DefaultRange(3))
	if err != nil {
		t.Fatal(err)
	}
	if got := first(t, a, "new"); got != 3*Length {
		t.Errorf("range begins at %d, and that of the other pod at 100000", got)
	}
}

func TestRecordsThatCannotBeReadStopTheKubelet(t *testing.T) {
	for _, bad := range []string{
		"", "{}", `{"uidMappings":[{"hostId":0,"containerId":0,"length":65536}],"gidMappings":[{"hostId":0,"containerId":0,"length":65536}]}`,
		`{"uidMappings":[{"hostId":65536,"containerId":0,"length":65536}],"gidMappings":[{"hostId":131072,"containerId":0,"length":65536}]}`,
	} {
		dir := t.TempDir()
		os.MkdirAll(filepath.Join(dir, "pods/a"), 0o755)
		os.WriteFile(filepath.Join(dir, "pods/a", File), []byte(bad), 0o600)
		if _, err := New(dir, DefaultRange(1)); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
	a, err := New(t.TempDir(), DefaultRange(1))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Of("../a"); err == nil {
		t.Error("a uid leads out of the directory")
	}
}

func TestConcurrentPodsGetDifferentRanges(t *testing.T) {
	a, err := New(t.TempDir(), DefaultRange(50))
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	seen := map[uint32]bool{}
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() {
			n, err := a.Of(types.UID(fmt.Sprint(i)))
			mu.Lock()
			defer mu.Unlock()
			if err != nil || seen[n.Uids[0].HostId] {
				t.Errorf("pod %d: %+v, %v", i, n, err)
				return
			}
			seen[n.Uids[0].HostId] = true
		})
	}
	all.Wait()
}

func TestSubordinateIDs(t *testing.T) {
	if got, err := parseSubIDs("0: kubelet 131072 7208960\n", 110); err != nil || got != (Range{131072, 7208960}) {
		t.Errorf("%+v, %v", got, err)
	}
	for _, bad := range []string{
		"", "0: kubelet 0 7208960", "0: kubelet 100000 7208960", "0: kubelet 65536 65536", "0: kubelet 65536 7208961",
		"0: kubelet 65536 7208960\n1: kubelet 65536000 7208960", "0: kubelet 4294901760 7208960", "0: kubelet x 7208960",
	} {
		if got, err := parseSubIDs(bad, 110); err == nil {
			t.Errorf("%q is taken: %+v", bad, got)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"uidMappings":[{"hostId":65536,"containerId":0,"length":65536}],"gidMappings":[{"hostId":65536,"containerId":0,"length":65536}]}`), "0: kubelet 65536 7208960")
	f.Fuzz(func(t *testing.T, data []byte, text string) {
		if n, err := parse(data); err == nil && (n < Length || n > ^uint32(0)-Length) {
			t.Errorf("%q begins at %d", data, n)
		}
		if r, err := parseSubIDs(text, 1); err == nil && (r.First < Length || r.Length < Length || uint64(r.First)+uint64(r.Length) > 1<<32) {
			t.Errorf("%q is %+v", text, r)
		}
	})
}
