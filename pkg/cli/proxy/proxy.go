package proxy

import (
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
)

// Config says what is served where.
type Config struct {
	API       http.RoundTripper // sends requests to the API server
	APIPrefix string            // path below which the API is
	Filter    *Filter           // of requests to the API; nil accepts all

	Files       string // directory; empty: no files are served
	FilesPrefix string // path below which the files are

	Log *log.Logger // of requests that fail
}

// NewHandler returns the handler that serves the API, and the files. Of two prefixes
// that match, the longer one is used.
func NewHandler(c Config) http.Handler {
	api := http.Handler(&httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.Out.URL.Scheme, r.Out.URL.Host = "http", "server" }, // API replaces both
		Transport:     c.API,
		FlushInterval: -1, // watches and logs are streams
		ErrorLog:      c.Log,
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			c.Log.Printf("%s %s: %v", r.Method, r.URL.Path, err)
			http.Error(w, err.Error(), http.StatusBadGateway)
		},
	})
	if c.Filter != nil {
		api = c.Filter.around(api)
	}
	prefix := slashed(c.APIPrefix)
	if !strings.HasPrefix(prefix, "/api") { // else the prefix selects a part of the API
		api = stripped(prefix, api)
	}
	mux := http.NewServeMux()
	mux.Handle(prefix, api)
	if c.Files != "" {
		files := slashed(c.FilesPrefix)
		mux.Handle(files, http.StripPrefix(files, http.FileServer(http.Dir(c.Files))))
	}
	return mux
}

// slashed returns a prefix that begins and ends with a slash.
func slashed(prefix string) string {
	trimmed := strings.Trim(prefix, "/")
	if trimmed == "" {
		return "/"
	}
	return "/" + trimmed + "/"
}

// stripped removes the prefix from the paths of requests, but for its last slash.
func stripped(prefix string, next http.Handler) http.Handler {
	prefix = strings.TrimSuffix(prefix, "/")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r2 := *r
		r2.URL = &url.URL{}
		*r2.URL = *r.URL
		r2.URL.Path = strings.TrimPrefix(r.URL.Path, prefix)
		r2.URL.RawPath = strings.TrimPrefix(r.URL.RawPath, prefix)
		next.ServeHTTP(w, &r2)
	})
}
