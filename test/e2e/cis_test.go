package e2e

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/client"
)

// TestBenchmarkOfCIS: a cluster passes the applicable checks of the CIS benchmark, also after
// etcd has written its first snapshot.
func TestBenchmarkOfCIS(t *testing.T) {
	snapshotted(t)
	cmd := exec.Command("go", "run", "./hack/cis", "-dir", the.dir)
	cmd.Dir = the.root
	out, err := cmd.CombinedOutput()
	if err != nil || strings.Contains(string(out), "FAIL") || strings.Count(string(out), "\n") < 50 {
		t.Errorf("%v\n%s", err, out)
	}
}

// snapshotted writes until etcd has written a snapshot, which it does every 2,000 writes.
func snapshotted(t *testing.T) {
	t.Helper()
	maps := client.For[*corev1.ConfigMap](the.client(t)).In("default")
	if _, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "counter"}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = maps.Delete(context.Background(), "counter", metav1.DeleteOptions{}) })
	for i := range 10_000 {
		if found, err := filepath.Glob(filepath.Join(the.dir, "etcd", "member", "snap", "*.snap")); err != nil || len(found) > 0 {
			return
		}
		patch := fmt.Appendf(nil, `{"data":{"writes":"%d"}}`, i)
		if _, err := maps.Patch(t.Context(), "counter", types.MergePatchType, patch); err != nil {
			t.Fatal(err)
		}
	}
	t.Fatal("10,000 writes, and no snapshot")
}
