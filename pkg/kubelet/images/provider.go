package images

import (
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Provider knows credentials of the node for registries.
type Provider interface {
	// Credentials returns the credentials for an image, which has its full name without
	// tag and digest, in the order to try them. It may block until ctx ends.
	Credentials(ctx context.Context, image string) []Auths
}

// Auths are credentials by the images that they are for: a host, whose labels may be
// patterns, with an optional port and path.
type Auths map[string]Auth

// Auth is a user name and a password.
type Auth struct {
	Username string `json:"username"`
	Password string `json:"password"`
}

// Matches reports whether the pattern of Auths is for the image.
func Matches(pattern, image string) bool {
	_, e, ok := parseServer(pattern)
	if !ok {
		return false
	}
	host, repo := splitImage(image)
	labels, port := splitHost(host)
	return e.matches(labels, port, "/"+repo)
}

// CheckPattern returns an error if a pattern of Auths can match no image.
func CheckPattern(pattern string) error {
	_, e, ok := parseServer(pattern)
	if !ok || e.labels[0] == "" {
		return fmt.Errorf("%q: want a host, with an optional port and path", pattern)
	}
	for _, label := range e.labels {
		if _, err := path.Match(label, ""); err != nil {
			return fmt.Errorf("%q: %w", pattern, err)
		}
	}
	if strings.Contains(e.port+e.path, "*") {
		return fmt.Errorf("%q: only the host may have patterns", pattern)
	}
	return nil
}

// Registry returns the host of an image's registry.
func Registry(image string) string {
	host, _ := splitImage(image)
	return host
}

// ofNode returns the credentials of the node for an image, the most specific first.
func (p *Puller) ofNode(ctx context.Context, image string) []credential {
	if p.cfg.Provider == nil {
		return nil
	}
	var out []credential
	for _, auths := range p.cfg.Provider.Credentials(ctx, repository(image)) {
		for _, pattern := range slices.Backward(slices.Sorted(maps.Keys(auths))) {
			if a := auths[pattern]; Matches(pattern, image) {
				out = append(out, credential{auth: &runtimeapi.AuthConfig{Username: a.Username, Password: a.Password}, node: true})
			}
		}
	}
	return out
}
