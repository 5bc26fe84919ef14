package kubelet

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"podium/pkg/daemon"
	"podium/pkg/kubelet/staticpods"
)

// Where static pods are from is in flags, or in the config file under upstream's names.
func TestManifestSettings(t *testing.T) {
	fields := file{StaticPodPath: "manifests", StaticPodURL: "https://file.example.org/", StaticPodURLHeader: map[string][]string{"x-token": {"a", "b"}}}
	for name, row := range map[string]struct {
		args []string
		file file
		want staticpods.Manifests
		err  string
	}{
		"none": {nil, file{}, staticpods.Manifests{FilePeriod: 20 * time.Second, HTTPPeriod: 20 * time.Second, Header: http.Header{}}, ""},
		"file": {[]string{"--file-check-frequency=5s"}, fields, staticpods.Manifests{
			Path: "/etc/podium/manifests", FilePeriod: 5 * time.Second, URL: "https://file.example.org/", HTTPPeriod: 20 * time.Second, Header: http.Header{"X-Token": {"a", "b"}},
		}, ""},
		"flags": {[]string{"--pod-manifest-path=/m", "--manifest-url=http://flag.example.org/", "--manifest-url-header=X-A: b", "--manifest-url-header=X-A:c:d", "--http-check-frequency=1m"}, fields, staticpods.Manifests{
			Path: "/m", FilePeriod: 20 * time.Second, URL: "http://flag.example.org/", HTTPPeriod: time.Minute, Header: http.Header{"X-Token": {"a", "b"}, "X-A": {"b", "c:d"}},
		}, ""},
		"no server":    {[]string{"--manifest-url=/pods"}, file{}, staticpods.Manifests{}, "want the URL of an HTTP server"},
		"no header":    {[]string{"--manifest-url-header=secret"}, file{}, staticpods.Manifests{}, "want NAME:VALUE"},
		"all the time": {[]string{"--http-check-frequency=10ms"}, file{}, staticpods.Manifests{}, "--http-check-frequency 10ms: want at least 1s"},
	} {
		var f manifestFlags
		fs := pflag.NewFlagSet("kubelet", pflag.ContinueOnError)
		f.addFlags(fs)
		if err := fs.Parse(row.args); err != nil {
			t.Fatal(err)
		}
		got, err := f.manifests(&row.file, "/etc/podium/kubelet.yaml")
		if row.err != "" {
			if err == nil || !strings.Contains(err.Error(), row.err) || strings.Contains(err.Error(), "secret") {
				t.Errorf("%s: %v, want %q", name, err, row.err)
			}
			continue
		}
		if diff := cmp.Diff(row.want, got); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
	}
}

// /configz shows which headers there are, but no values.
func TestHeadersAreMasked(t *testing.T) {
	var f manifestFlags
	fs := pflag.NewFlagSet("kubelet", pflag.ContinueOnError)
	f.addFlags(fs)
	if err := fs.Parse([]string{"--manifest-url-header=X-A:secret"}); err != nil {
		t.Fatal(err)
	}
	settings := daemon.Settings(fs)
	if err := (&file{StaticPodURLHeader: map[string][]string{"X-B": {"secret"}}}).addTo(settings); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(settings)
	if err != nil || strings.Contains(string(text), "secret") || !strings.Contains(string(text), `"X-B":["[masked]"]`) {
		t.Errorf("%s, %v", text, err)
	}
}
