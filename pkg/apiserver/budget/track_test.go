package budget

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func configMap(t *testing.T, keys int) ([]byte, map[string]any) {
	t.Helper()
	cm, data := &corev1.ConfigMap{Data: map[string]string{}}, map[string]any{}
	for i := range keys {
		key := fmt.Sprint("k", i)
		cm.Data[key], data[key] = "v", "v"
	}
	bare, err := cm.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return bare, object("data", data)
}

func TestTrackWork(t *testing.T) {
	for _, tc := range []struct {
		keys int
		ok   bool
	}{{10, true}, {15_000, true}, {25_000, false}, {100_000, false}} {
		bare, tree := configMap(t, tc.keys)
		if err := TrackWork(bare); (err == nil) != tc.ok {
			t.Errorf("%d keys: %v", tc.keys, err)
		}
		if err := TrackTreeWork(tree); (err == nil) != tc.ok {
			t.Errorf("%d keys, applied: %v", tc.keys, err)
		}
	}
}

func TestManagedSize(t *testing.T) {
	tree := object("data", object("key", "v"), "spec", object("list", list(3)), "status", object("a", object("b", "c")))
	if want := len(`"f:data":{"f:key":{},},"f:spec":{"f:list":{},},`); ManagedSize(tree) != want {
		t.Errorf("%d, want %d", ManagedSize(tree), want)
	}
}

func FuzzTrackWork(f *testing.F) {
	f.Add([]byte("\x12\x02\x12\x00\x12\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if siblings(data, 0) < 0 {
			t.Error("negative work")
		}
	})
}
