package security

import (
	"fmt"
	"strings"
	"testing"

	"podium/pkg/client"
)

// Requests for objects that do not exist create no metric series.
func TestMetricSeriesFlood(t *testing.T) {
	stranger, eve := unknown(t), impersonating(t, "eve")
	flood := func(tag string) {
		for _, path := range []string{"/" + tag, "/api/v1/" + tag, "/apis/" + tag + "/v1/x", "/api/v1/namespaces/a/pods/b/" + tag, "/apis/apps/" + tag + "/deployments/x"} {
			for _, method := range []string{"GET", "POST", strings.ToUpper(tag)} {
				ask(t, stranger, method, path)
				_, _, _ = eve.Do(t.Context(), client.Request{Method: method, Path: path}) // an error is expected
				_, _, _ = admin.Do(t.Context(), client.Request{Method: method, Path: path})
			}
		}
	}
	// series of requests only: other daemons are active
	series := func(tag string) (made int) {
		text, _, err := admin.Do(t.Context(), client.Request{Path: "/metrics"})
		check(t, err)
		for line := range strings.Lines(string(text)) {
			if strings.Contains(strings.ToLower(line), tag) {
				made++
			}
		}
		return made
	}
	for i := range 20 {
		flood(fmt.Sprint("madeup", i))
	}
	if n := series("madeup"); n != 0 {
		t.Errorf("%d series have the names of what does not exist", n)
	}
	if n := series(`="other"`); n == 0 {
		t.Error("no series counts what does not exist")
	}
}
