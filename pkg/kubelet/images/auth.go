package images

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The names of Docker Hub: in image names, and in the keys that docker login writes.
const (
	hub    = "docker.io"
	hubAPI = "index.docker.io"
)

// keyring holds the credentials of pull secrets by registry and path, as
// upstream's credentialprovider does.
type keyring struct {
	entries map[string]*entry // by key without scheme
}

type entry struct {
	labels     []string // of the host; each may be a pattern of path.Match
	port, path string
	found      []credential // in the order of the secrets
}

// credential is a credential for a registry and the secret that it comes from.
type credential struct {
	auth   *runtimeapi.AuthConfig
	secret SecretRecord
	node   bool // it comes from the node, and all its pods may use it
}

// dockerConfig is the file that docker login writes. The older form of the file
// consists of the content of auths only.
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

func newKeyring() *keyring { return &keyring{entries: map[string]*entry{}} }

// add adds the credentials of a pull secret. It ignores secrets of other types
// and entries whose key is not an address. Its errors do not quote the content of
// the secret.
func (r *keyring) add(s *corev1.Secret) error {
	auths, err := parseSecret(s)
	if err != nil {
		return err
	}
	found := map[string]*runtimeapi.AuthConfig{}
	for server, a := range auths {
		if found[server], err = a.config(); err != nil {
			return err
		}
	}
	for _, server := range slices.Sorted(maps.Keys(found)) {
		key, parsed, ok := parseServer(server)
		if !ok {
			continue
		}
		if r.entries[key] == nil {
			r.entries[key] = parsed
		}
		auth := found[server]
		r.entries[key].found = append(r.entries[key].found, credential{auth: auth, secret: SecretRecord{
			UID: string(s.UID), Namespace: s.Namespace, Name: s.Name, CredentialHash: hashOf(auth),
		}})
	}
	return nil
}

// parseSecret returns the entries of a pull secret by server; none for a secret of
// another type or without data.
func parseSecret(s *corev1.Secret) (map[string]dockerAuth, error) {
	var cfg dockerConfig
	var key string
	var into any
	switch s.Type {
	case corev1.SecretTypeDockerConfigJson:
		key, into = corev1.DockerConfigJsonKey, &cfg
	case corev1.SecretTypeDockercfg:
		key, into = corev1.DockerConfigKey, &cfg.Auths
	}
	if len(s.Data[key]) == 0 {
		return nil, nil
	}
	if json.Unmarshal(s.Data[key], into) != nil { // its error may quote the content
		return nil, fmt.Errorf("parse %s: not a Docker configuration", key)
	}
	return cfg.Auths, nil
}

var errAuthField = errors.New("parse auth field: not base64 of username:password")

// config returns the credential for the runtime. It has no server address: the
// keyring has already matched the registry, and containerd drops a credential
// whose address is not a URL with exactly the registry's host.
func (a dockerAuth) config() (*runtimeapi.AuthConfig, error) {
	out := &runtimeapi.AuthConfig{Username: a.Username, Password: a.Password, IdentityToken: a.IdentityToken, RegistryToken: a.RegistryToken}
	if a.Auth != "" {
		text, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(a.Auth, "="))
		if err != nil {
			return nil, errAuthField
		}
		user, password, ok := strings.Cut(string(text), ":")
		if !ok {
			return nil, errAuthField
		}
		out.Username, out.Password = user, strings.TrimRight(password, "\x00")
	}
	if out.IdentityToken != "" && out.Password == "" {
		out.Username = "" // docker login writes a placeholder, and containerd prefers a user name to a token
	}
	return out, nil
}

func hashOf(a *runtimeapi.AuthConfig) string {
	text, _ := json.Marshal([]string{a.Username, a.Password, a.IdentityToken, a.RegistryToken}) // strings do not fail
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// parseServer parses a key of auths: a host with an optional port, path and
// scheme. It ignores a leading registry API version in the path.
func parseServer(server string) (key string, e *entry, ok bool) {
	if !strings.HasPrefix(server, "https://") && !strings.HasPrefix(server, "http://") {
		server = "https://" + server
	}
	u, err := url.Parse(server)
	if err != nil || u.Host == "" {
		return "", nil, false
	}
	p := u.Path
	if strings.HasPrefix(p, "/v1/") || strings.HasPrefix(p, "/v2/") {
		p = p[len("/v1"):]
	}
	if p == "/" {
		p = ""
	}
	labels, port := splitHost(u.Host)
	return u.Host + p, &entry{labels: labels, port: port, path: p}, true
}

func splitHost(host string) (labels []string, port string) {
	if h, p, err := net.SplitHostPort(host); err == nil {
		host, port = h, p
	}
	return strings.Split(host, "."), port
}

// find returns the credentials for an image in the order to try them: the most
// specific key first and, for one key, in the order of the pod's secrets. The key
// that docker login writes for Docker Hub is used for its images if no other is.
func (r *keyring) find(image string) []credential {
	host, repo := splitImage(image)
	labels, port := splitHost(host)
	var out []credential
	for _, key := range slices.Backward(slices.Sorted(maps.Keys(r.entries))) {
		if e := r.entries[key]; e.matches(labels, port, "/"+repo) {
			out = append(out, e.found...)
		}
	}
	if e := r.entries[hubAPI]; len(out) == 0 && host == hub && e != nil {
		return e.found
	}
	return out
}

// matches reports whether the host, label by label, and the port match the entry
// and the entry's path is a prefix of repo.
func (e *entry) matches(labels []string, port, repo string) bool {
	if port != e.port || len(labels) != len(e.labels) || !strings.HasPrefix(repo, e.path) {
		return false
	}
	for i := range labels {
		if ok, err := path.Match(e.labels[i], labels[i]); err != nil || !ok {
			return false
		}
	}
	return true
}

// splitImage returns the registry's host and the repository of an image's name.
// It expands the short names of Docker Hub.
func splitImage(image string) (host, repo string) {
	name, _, _ := strings.Cut(image, "@")
	if i := strings.LastIndex(name, ":"); i > strings.LastIndex(name, "/") {
		name = name[:i]
	}
	host, repo, ok := strings.Cut(name, "/")
	if !ok || !strings.ContainsAny(host, ".:") && host != "localhost" && host == strings.ToLower(host) {
		host, repo = hub, name
	}
	if host == hubAPI {
		host = hub
	}
	if host == hub && !strings.Contains(repo, "/") {
		repo = "library/" + repo
	}
	return host, repo
}

// repository returns an image's full name without tag and digest.
func repository(image string) string {
	host, repo := splitImage(image)
	return host + "/" + repo
}

// canonical returns an image's full name with its tag and digest.
func canonical(image string) string {
	image = withTag(image)
	return repository(image) + suffix(image)
}

// suffix returns the tag and digest of an image's name, with ":" and "@".
func suffix(image string) string {
	name, _, _ := strings.Cut(image, "@")
	if i := strings.LastIndex(name, ":"); i > strings.LastIndex(name, "/") {
		return image[i:]
	}
	return image[len(name):]
}

// withTag adds :latest to a name that has neither tag nor digest.
func withTag(image string) string {
	if suffix(image) != "" {
		return image
	}
	return image + ":latest"
}
