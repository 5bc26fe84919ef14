package apiserver

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"time"

	"podium/pkg/apiserver/registry"
	"podium/pkg/storage"
)

// components returns what ComponentStatuses are about: the scheduler and the controller
// manager of this machine, at upstream's ports, and the store.
func components(store storage.Store) []registry.Component {
	return []registry.Component{
		{Name: "scheduler", Probe: healthAt("https://127.0.0.1:10259/healthz")},
		{Name: "controller-manager", Probe: healthAt("https://127.0.0.1:10257/healthz")},
		{Name: "etcd-0", Probe: func(ctx context.Context) (string, error) {
			_, err := store.Revision(ctx)
			return "ok", err
		}},
	}
}

// maxHealth is how much of the answer of a component is read.
const maxHealth = 1 << 10

// healthAt returns a probe of a URL: an answer other than 200 is an error.
func healthAt(url string) func(context.Context) (string, error) {
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true, // probes are rare
		// As upstream: the certificate may be self-signed. Nothing secret is sent, and the
		// answer is only shown.
		TLSClientConfig:       &tls.Config{InsecureSkipVerify: true},
		TLSHandshakeTimeout:   time.Second,
		ResponseHeaderTimeout: 4 * time.Second,
	}}
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return func(ctx context.Context) (string, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return "", err
		}
		resp, err := client.Do(req)
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(io.LimitReader(resp.Body, maxHealth))
		if err == nil && resp.StatusCode != http.StatusOK {
			err = fmt.Errorf("HTTP probe failed with statuscode: %d", resp.StatusCode)
		}
		return string(body), err
	}
}
