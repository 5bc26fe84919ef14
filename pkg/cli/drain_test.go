package cli_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// All nodes are cordoned before the first pod is evicted: it must not move to the next
// node to drain.
func TestDrainCordonsAllNodesFirst(t *testing.T) {
	f := newFront(t)
	file := filepath.Join(t.TempDir(), "nodes.yaml")
	var nodes strings.Builder
	for _, name := range []string{"a", "b"} {
		fmt.Fprintf(&nodes, "---\n{apiVersion: v1, kind: Node, metadata: {name: %s}}\n", name)
		fmt.Fprintf(&nodes, "---\n{apiVersion: v1, kind: Pod, metadata: {name: on-%s}, spec: {nodeName: %s, terminationGracePeriodSeconds: 0, containers: [{name: c, image: i}]}}\n", name, name)
	}
	if err := os.WriteFile(file, []byte(nodes.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	f.must("create", "sa", "default")
	f.must("apply", "-f", file)
	var writes []string
	f.intercept(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodGet {
			writes = append(writes, r.Method+" "+r.URL.Path)
		}
		return false
	})
	if _, _, code := f.run("drain", "a", "none", "--force"); code != 1 || len(writes) > 0 {
		t.Errorf("with a node that does not exist: exit code %d, wrote %v", code, writes)
	}
	f.must("drain", "a", "b", "--force")
	want := []string{
		"PATCH /api/v1/nodes/a", "PATCH /api/v1/nodes/b",
		"POST /api/v1/namespaces/default/pods/on-a/eviction", "POST /api/v1/namespaces/default/pods/on-b/eviction",
	}
	if diff := cmp.Diff(want, writes); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
}
