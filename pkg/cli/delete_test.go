package cli_test

import (
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// An object that was listed may be gone before it is deleted, for instance
// because the garbage collector was faster.
func TestDeleteOfWhatIsGoneMeanwhile(t *testing.T) {
	f := newFront(t)
	f.intercept(func(w http.ResponseWriter, r *http.Request) bool {
		return r.Method == http.MethodDelete && strings.HasSuffix(r.URL.Path, "/a") && refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound)
	})
	for name, row := range map[string]struct {
		args []string
		code int
	}{
		"All":      {[]string{"configmap", "--all"}, 0},
		"Selector": {[]string{"configmap", "-l", "x=y"}, 0},
		"Field":    {[]string{"configmap", "--field-selector", "metadata.name=a"}, 0},
		"Asked":    {[]string{"configmap", "--all", "--ignore-not-found=false"}, 1},
		"Named":    {[]string{"configmap", "a"}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, _ = f.run("create", "configmap", "a", "--from-literal=x=y")
			f.must("label", "configmap", "a", "x=y", "--overwrite")
			if out, errs, code := f.run(append([]string{"delete"}, row.args...)...); code != row.code {
				t.Errorf("exit code %d, want %d\n%s%s", code, row.code, out, errs)
			}
		})
	}
}

// A user who may delete an object may be unable to watch it. Such an object must not
// keep podium from waiting for the others.
func TestDeleteWithoutRightsToWatch(t *testing.T) {
	for name, row := range map[string]struct {
		code   int
		reason metav1.StatusReason
	}{
		"Forbidden":    {http.StatusForbidden, metav1.StatusReasonForbidden},
		"NotSupported": {http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed},
		"KindIsGone":   {http.StatusNotFound, metav1.StatusReasonNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFront(t)
			f.intercept(func(w http.ResponseWriter, r *http.Request) bool {
				return r.Method == http.MethodGet && r.URL.Query().Get("fieldSelector") == "metadata.name=a" && refuse(w, row.code, row.reason)
			})
			f.must("create", "configmap", "a")
			f.must("delete", "configmap", "a")
			f.must("create", "configmap", "a")
			f.must("create", "configmap", "held")
			f.must("patch", "configmap", "held", "--type=merge", "-p", `{"metadata":{"finalizers":["example.com/held"]}}`)
			if _, errs, code := f.run("delete", "configmap", "a", "held", "--timeout=1s"); code != 1 || !strings.Contains(errs, "timed out waiting for configmap/held") {
				t.Errorf("exit code %d: %s; want it to have waited for the second", code, errs)
			}
		})
	}
}
