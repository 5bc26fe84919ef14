package cli_test

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"sync"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"podium/pkg/cli"
	"podium/pkg/client/kubeconfig"
)

// TestPlanAndWhyWriteNothing runs the commands on the objects of their stories,
// and looks at the requests: each is a read or a dry run.
func TestPlanAndWhyWriteNothing(t *testing.T) {
	address, stop := serve(t)
	defer stop()
	var mu sync.Mutex
	var writes []string
	requests := 0
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: address})
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		requests++
		if r.Method != http.MethodGet && r.URL.Query().Get("dryRun") != "All" {
			writes = append(writes, r.Method+" "+r.URL.String())
		}
		mu.Unlock()
		proxy.ServeHTTP(w, r)
	}))
	defer front.Close()
	dir := t.TempDir()
	archive, err := txtar.ParseFile("testdata/plan.txtar")
	if err != nil {
		t.Fatal(err)
	}
	if err := txtar.Write(archive, dir); err != nil {
		t.Fatal(err)
	}
	run := func(server string, args ...string) (string, int) {
		config := filepath.Join(dir, "kubeconfig")
		if err := kubeconfig.New("test", kubeconfig.Cluster{Server: server}, kubeconfig.User{Token: "secret"}).Write(config, 0o600); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		code := cli.Main(t.Context(), cli.IO{Out: &out, Err: &out}, append([]string{"--kubeconfig", config}, args...))
		return out.String(), code
	}
	direct := "http://" + address
	for _, args := range [][]string{{"create", "sa", "default"}, {"create", "priorityclass", "high", "--value=1000"}, {"apply", "-f", filepath.Join(dir, "cluster.yaml")}} {
		if out, code := run(direct, args...); code != 0 {
			t.Fatalf("podium %v: exit code %d\n%s", args, code, out)
		}
	}
	for _, args := range [][]string{
		{"plan", "-f", filepath.Join(dir, "app.yaml")}, {"plan", "-f", filepath.Join(dir, "new.yaml")}, {"plan", "drain", "n1"},
		{"why", "pod/small"}, {"why", "node/n1"}, {"why", "namespace/default"},
	} {
		if out, code := run(front.URL, args...); code == 1 {
			t.Errorf("podium %v: exit code %d\n%s", args, code, out)
		}
	}
	if len(writes) > 0 || requests < 20 {
		t.Errorf("%d requests, with writes %q", requests, writes)
	}
}
