package apiserver_test

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"podium/pkg/apiserver"
)

// Requests for unknown paths and verbs do not add series: label values come
// from what is served, not from the request.
func TestMadeUpRequestsMakeNoSeries(t *testing.T) {
	registry := prometheus.NewRegistry()
	w := start(t, withAccess(t), func(c *apiserver.Config) { c.Registry = registry })
	must[any](w, 201, "POST", cms, jsonType, configMap("x"))
	flood := func(tag string) {
		for _, user := range []string{"", "joe", "system:anonymous"} {
			for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", tag} {
				for _, path := range []string{
					"/" + tag, "/api/v1/" + tag, "/api/" + tag + "/pods", "/apis/" + tag + "/v1/pods", "/apis/apps/" + tag + "/deployments",
					"/api/v1/namespaces/" + tag + "/pods/" + tag + "/" + tag, "/api/v1/namespaces/" + tag + "/" + tag + "/x",
					"/api/v1/watch/" + tag, "/api/v1/watch/namespaces/a/pods/x/" + tag, "/apis/" + tag + "/v1/x/y/log", "/api/v1/nodes/x/" + tag,
					"/api/v1/" + tag + "?watch=1", "/api/v1/pods?dryRun=All&dryRun=" + tag, cms + "/x/" + tag, cms + "/" + tag,
				} {
					r := httptest.NewRequest("GET", path, strings.NewReader("{}"))
					r.Method = method
					r.Header.Set("User-Agent", tag)
					r.Header.Set("Content-Type", "application/"+tag)
					if user != "" {
						r.Header.Set("X-User", user)
					}
					w.handler.ServeHTTP(httptest.NewRecorder(), r)
				}
			}
		}
	}
	flood("first")
	before := countSeries(t, registry)
	for i := range 5 {
		flood(fmt.Sprint("made-up-", i))
	}
	if after := countSeries(t, registry); after != before {
		t.Errorf("%d series became %d by made-up requests", before, after)
	}
}

// countSeries returns the number of series in a registry, including histogram
// buckets.
func countSeries(t *testing.T, g prometheus.Gatherer) int {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, f := range families {
		for _, m := range f.GetMetric() {
			n += 1 + len(m.GetHistogram().GetBucket())
		}
	}
	return n
}
