package cli_test

import (
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What the user may not read must not hide the rest.
func TestGetPrintsWhatItCanRead(t *testing.T) {
	f := newFront(t)
	f.must("create", "configmap", "first", "--from-literal=x=y")
	f.must("create", "secret", "generic", "second")
	f.must("create", "service", "clusterip", "third", "--tcp=80")
	f.intercept(func(w http.ResponseWriter, r *http.Request) bool {
		return strings.Contains(r.URL.Path, "/secrets") && refuse(w, http.StatusForbidden, metav1.StatusReasonForbidden)
	})
	for name, args := range map[string][]string{
		"Types":       {"configmaps,secrets,services"},
		"TypesAsJSON": {"configmaps,secrets,services", "-o", "json"},
		"Names":       {"configmap/first", "secret/second", "service/third"},
		"NamesAsYAML": {"configmap/first", "secret/second", "service/third", "-o", "yaml"},
		"NamesAsName": {"configmap/first", "secret/second", "service/third", "-o", "name"},
	} {
		t.Run(name, func(t *testing.T) {
			out, errs, code := f.run(append([]string{"get"}, args...)...)
			if code != 1 || !strings.Contains(errs, "it is Forbidden") {
				t.Errorf("exit code %d: %s", code, errs)
			}
			if !strings.Contains(out, "first") || !strings.Contains(out, "third") {
				t.Errorf("it does not print the others:\n%s", out)
			}
		})
	}
	if out, _, code := f.run("get", "secrets"); code != 1 || out != "" {
		t.Errorf("nothing but the forbidden type: exit code %d\n%s", code, out)
	}
	if _, errs, code := f.run("get", "secrets", "--watch"); code != 1 || !strings.Contains(errs, "Forbidden") {
		t.Errorf("a watch of it: exit code %d: %s", code, errs)
	}
}
