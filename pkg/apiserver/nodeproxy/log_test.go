package nodeproxy

import (
	"net/url"
	"testing"
)

func TestLogQuery(t *testing.T) {
	for query, want := range map[string]string{
		"follow=true&tailLines=0&container=c":           "",
		"insecureSkipTLSVerifyBackend=false":            "",
		"insecureSkipTLSVerifyBackend=true":             "insecureSkipTLSVerifyBackend: Forbidden: the kubelet's certificate is always verified",
		"limitBytes=0":                                  "limitBytes: Invalid value: 0: must be greater than 0",
		"tailLines=-1":                                  "tailLines: Invalid value: -1: must be greater than or equal to 0",
		"sinceSeconds=soon":                             `sinceSeconds: Invalid value: "soon": must be an integer`,
		"sinceTime=yesterday":                           `sinceTime: Invalid value: "yesterday": must be a time as in RFC 3339`,
		"stream=Stdin":                                  `stream: Unsupported value: "Stdin": supported values: "All", "Stdout", "Stderr"`,
		"sinceSeconds=1&sinceTime=2026-01-01T00:00:00Z": "[]: Forbidden: at most one of `sinceTime` or `sinceSeconds` may be specified",
	} {
		q, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if _, errs := logQuery(q); len(errs) > 0 {
			got = errs.ToAggregate().Error()
		}
		if got != want {
			t.Errorf("%s: %q, want %q", query, got, want)
		}
	}
}
