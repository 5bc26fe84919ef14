package kubelet

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"podium/pkg/kubelet/staticpods"
)

// masked is shown instead of values that may be credentials.
const masked = "[masked]"

// manifestFlags are the flags for static pods; they take precedence over the fields of the
// config file.
type manifestFlags struct {
	path, url            string
	header               []string
	fileCheck, httpCheck time.Duration
}

func (f *manifestFlags) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&f.path, "pod-manifest-path", "", "directory with the manifests of static pods, or the file of one; files whose names begin with a dot are ignored")
	fs.StringVar(&f.url, "manifest-url", "", "URL of the manifests of static pods: a Pod or a PodList")
	fs.StringSliceVar(&f.header, "manifest-url-header", nil, "headers of the requests for --manifest-url, as NAME:VALUE; give it several times for several")
	fs.DurationVar(&f.fileCheck, "file-check-frequency", 20*time.Second, "how often to read --pod-manifest-path")
	fs.DurationVar(&f.httpCheck, "http-check-frequency", 20*time.Second, "how often to read --manifest-url")
}

// manifests returns where static pods are from. Relative paths of the config file are below
// the directory of that file.
func (f *manifestFlags) manifests(file *file, configFile string) (staticpods.Manifests, error) {
	out := staticpods.Manifests{Path: f.path, FilePeriod: f.fileCheck, URL: f.url, HTTPPeriod: f.httpCheck, Header: http.Header{}}
	var errs []error
	if out.Path == "" && file.StaticPodPath != "" {
		out.Path = file.StaticPodPath
		if !filepath.IsAbs(out.Path) {
			out.Path = filepath.Join(filepath.Dir(configFile), out.Path)
		}
	}
	if out.URL == "" {
		out.URL = file.StaticPodURL
	}
	if u, err := url.Parse(out.URL); out.URL != "" && (err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https") {
		errs = append(errs, errors.New("--manifest-url, staticPodURL: want the URL of an HTTP server"))
	}
	for name, values := range file.StaticPodURLHeader {
		out.Header[http.CanonicalHeaderKey(name)] = values
	}
	for _, text := range f.header {
		name, value, ok := strings.Cut(text, ":")
		if !ok || strings.TrimSpace(name) == "" {
			errs = append(errs, errors.New("--manifest-url-header: want NAME:VALUE"))
			continue
		}
		out.Header.Add(strings.TrimSpace(name), strings.TrimSpace(value))
	}
	for name, d := range map[string]time.Duration{"file-check-frequency": f.fileCheck, "http-check-frequency": f.httpCheck} {
		if d < time.Second {
			errs = append(errs, fmt.Errorf("--%s %v: want at least 1s", name, d))
		}
	}
	return out, errors.Join(errs...)
}

// mask hides, in the settings that /configz shows, the values of headers.
func mask(settings map[string]any, header map[string][]string) {
	shown := map[string][]string{}
	for name := range header {
		shown[name] = []string{masked}
	}
	settings["staticPodURLHeader"] = shown
	delete(settings, "manifestUrlHeader")
}
