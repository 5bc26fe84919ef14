package images

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"path"
	"sort"
	"strings"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Where Docker Hub's credentials and images are, under the names in use.
const (
	hub    = "docker.io"
	hubAPI = "index.docker.io"
)

// keyring holds the credentials of pull secrets by what they are for.
type keyring []key

type key struct {
	host, path string // path: "" or a prefix of the repository
	auth       *runtimeapi.AuthConfig
}

// dockerConfig is the file docker login writes; the older form is its auths alone.
type dockerConfig struct {
	Auths map[string]dockerAuth `json:"auths"`
}

type dockerAuth struct {
	Username      string `json:"username"`
	Password      string `json:"password"`
	Auth          string `json:"auth"`
	IdentityToken string `json:"identitytoken"`
	RegistryToken string `json:"registrytoken"`
}

// newKeyring reads pull secrets. Secrets of other types are passed over.
func newKeyring(secrets []*corev1.Secret) (keyring, error) {
	var ring keyring
	for _, s := range secrets {
		var cfg dockerConfig
		var err error
		switch s.Type {
		case corev1.SecretTypeDockerConfigJson:
			err = json.Unmarshal(s.Data[corev1.DockerConfigJsonKey], &cfg)
		case corev1.SecretTypeDockercfg:
			err = json.Unmarshal(s.Data[corev1.DockerConfigKey], &cfg.Auths)
		default:
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("pull secret %s/%s: %w", s.Namespace, s.Name, err)
		}
		for server, a := range cfg.Auths {
			auth, err := a.config(server)
			if err != nil {
				return nil, fmt.Errorf("pull secret %s/%s: %s: %w", s.Namespace, s.Name, server, err)
			}
			host, p := splitServer(server)
			ring = append(ring, key{host: host, path: p, auth: auth})
		}
	}
	// The more precise a key, the earlier it is tried.
	sort.SliceStable(ring, func(i, j int) bool {
		if len(ring[i].path) != len(ring[j].path) {
			return len(ring[i].path) > len(ring[j].path)
		}
		return ring[i].host > ring[j].host
	})
	return ring, nil
}

func (a dockerAuth) config(server string) (*runtimeapi.AuthConfig, error) {
	out := &runtimeapi.AuthConfig{
		Username: a.Username, Password: a.Password, ServerAddress: server,
		IdentityToken: a.IdentityToken, RegistryToken: a.RegistryToken,
	}
	if a.Auth == "" {
		return out, nil
	}
	text, err := base64.StdEncoding.DecodeString(a.Auth)
	if err != nil {
		if text, err = base64.RawStdEncoding.DecodeString(a.Auth); err != nil {
			return nil, fmt.Errorf("auth is not base64: %w", err)
		}
	}
	user, password, ok := strings.Cut(string(text), ":")
	if !ok {
		return nil, fmt.Errorf("auth is not user:password in base64")
	}
	out.Username, out.Password = user, strings.TrimRight(password, "\x00")
	return out, nil
}

// splitServer takes https://host/v1/ and host/prefix apart.
func splitServer(server string) (host, prefix string) {
	server = strings.TrimPrefix(strings.TrimPrefix(server, "https://"), "http://")
	host, prefix, _ = strings.Cut(server, "/")
	prefix = strings.Trim(prefix, "/")
	if prefix == "v1" || prefix == "v2" {
		prefix = ""
	}
	if host == hubAPI {
		host = hub
	}
	return host, prefix
}

// find lists the credentials to try for an image, in order.
func (r keyring) find(image string) []*runtimeapi.AuthConfig {
	host, repo := splitImage(image)
	var out []*runtimeapi.AuthConfig
	for _, k := range r {
		if matchHost(k.host, host) && (k.path == "" || repo == k.path || strings.HasPrefix(repo, k.path+"/")) {
			out = append(out, k.auth)
		}
	}
	return out
}

// matchHost allows a * within each label, as *.example.org.
func matchHost(pattern, host string) bool {
	p, h := strings.Split(pattern, "."), strings.Split(host, ".")
	if len(p) != len(h) {
		return false
	}
	for i := range p {
		if ok, err := path.Match(p[i], h[i]); err != nil || !ok {
			return false
		}
	}
	return true
}

// splitImage gives the registry's host and the repository of an image's name.
func splitImage(image string) (host, repo string) {
	image, _, _ = strings.Cut(image, "@")
	first, rest, ok := strings.Cut(image, "/")
	if ok && (strings.ContainsAny(first, ".:") || first == "localhost") {
		host, repo = first, rest
	} else {
		host, repo = hub, image
		if !ok {
			repo = "library/" + image
		}
	}
	if i := strings.LastIndex(repo, ":"); i > strings.LastIndex(repo, "/") {
		repo = repo[:i]
	}
	return host, repo
}

// withTag adds :latest to a name that has neither tag nor digest.
func withTag(image string) string {
	if strings.Contains(image, "@") || strings.LastIndex(image, ":") > strings.LastIndex(image, "/") {
		return image
	}
	return image + ":latest"
}
