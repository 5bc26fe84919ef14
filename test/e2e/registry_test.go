package e2e

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestPrivateRegistry pulls from the distribution project's registry with a password, using
// Secrets as kubectl writes them and others, and checks that an image pulled by one namespace's
// pods is not available to others.
func TestPrivateRegistry(t *testing.T) {
	r := startRegistry(t)
	r.pushTo(t, filepath.Join(the.root, "_images", "busybox.tar"), providedRepository, "v1")
	for _, tag := range []string{"v1", "v2", "v3"} {
		r.push(t, filepath.Join(the.root, "_images", "busybox.tar"), tag)
	}
	s := newSpace(t)
	for _, part := range []struct {
		name string
		run  func(*space, *registry)
	}{
		{"refused", pullsAreRefused},
		{"bare host", bareHostPulls},
		{"other tenant", cachedImagesArePrivate},
		{"service account", accountSecretPulls},
		{"credential provider", providerPulls},
		{"restart", restartKeepsRecords},
		{"silence", passwordIsNowhere},
	} {
		if !t.Run(part.name, func(t *testing.T) { part.run(s.within(t), r) }) {
			return // each builds on what was pulled before
		}
	}
}

// pullsAreRefused: without a secret, with a missing one, with the wrong password.
func pullsAreRefused(s *space, r *registry) {
	s.apply(r.pod("anonymous", "v1", "IfNotPresent"))
	s.apply(r.pod("lost", "v1", "IfNotPresent", "absent"))
	s.secret("wrong", r.host, "wrong")
	s.apply(r.pod("mistaken", "v1", "Always", "wrong"))
	for _, name := range []string{"anonymous", "lost", "mistaken"} {
		s.said(name, "Failed", "401 Unauthorized")
		s.pod(name, "backs off", waits("ImagePullBackOff"))
	}
	s.said("lost", "FailedToRetrieveImagePullSecret", "Unable to retrieve some image pull secrets (absent); attempting to pull the image may not succeed.")
}

// bareHostPulls uses the form that kubectl create secret docker-registry writes.
func bareHostPulls(s *space, r *registry) {
	for _, kubectl := range []string{"kubectl", "kubectl-debian"} {
		the.run(s.T, "", the.bin("peers/"+kubectl), "-n", s.name, "create", "secret", "docker-registry", kubectl,
			"--docker-server="+r.host, "--docker-username=puller", "--docker-password="+r.password)
		s.apply(r.pod("by-"+kubectl, "v1", "Always", kubectl))
		s.said("by-"+kubectl, "Pulled", "Successfully pulled image")
		s.ready("by-" + kubectl)
	}
}

// cachedImagesArePrivate: that the image is on the node does not suffice.
func cachedImagesArePrivate(s *space, r *registry) {
	other := newSpace(s.T)
	other.apply(r.pod("cached", "v1", "IfNotPresent"))
	other.apply(r.pod("never", "v1", "Never"))
	other.apply(strings.ReplaceAll(r.pod("by-id", "v1", "Never"), r.image("v1"), s.pod("by-kubectl", "runs", isReady).Status.ContainerStatuses[0].ImageID))
	other.said("cached", "Failed", "401 Unauthorized")
	other.pod("cached", "backs off", waits("ImagePullBackOff"))
	other.pod("never", "has no image", waits("ErrImageNeverPull"))
	other.pod("by-id", "has no image", waits("ErrImageNeverPull"))

	other.secret("good", "http://"+r.host, r.password)
	other.apply(r.pod("trusted", "v1", "Never", "good"))
	other.ready("trusted")
	other.said("trusted", "Pulled", "already present on machine and can be accessed by the pod")
}

// accountSecretPulls: admission adds the account's secrets to its pods. The secret's key has a
// scheme and a path.
func accountSecretPulls(s *space, r *registry) {
	other := newSpace(s.T)
	other.secret("good", "https://"+r.host+"/v2/", r.password)
	other.apply("apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: puller}\nimagePullSecrets: [{name: good}]\n")
	other.apply(strings.Replace(r.pod("p", "v2", "IfNotPresent"), "spec:\n", "spec:\n  serviceAccountName: puller\n", 1))
	other.ready("p")
	other.said("p", "Pulled", "Successfully pulled image")
}

// restartKeepsRecords kills the kubelet during a pull.
func restartKeepsRecords(s *space, r *registry) {
	s.apply(r.pod("cut-off", "v3", "Always", "kubectl"))
	s.said("cut-off", "Pulling", "")
	the.kill(s.T, "kubelet")
	if err := the.create(s.Context()); err != nil {
		s.Fatal(err)
	}
	s.ready("cut-off")
	other := newSpace(s.T)
	for _, tag := range []string{"v1", "v2", "v3"} {
		other.apply(r.pod("never-"+tag, tag, "Never"))
		other.pod("never-"+tag, "has no image", waits("ErrImageNeverPull"))
	}
	s.apply(r.pod("again", "v1", "Never", "kubectl"))
	s.ready("again")
}

// The registry's address and password, and the repository whose images need no pull
// secret: a credential provider of the node knows the password.
const (
	registryHost       = "localhost:5055"
	registryPassword   = "hunter2-of-the-registry"
	providedRepository = "provided/box"
)

// writeProviders writes a credential provider for the registry, and the kubelet's
// configuration for it.
func writeProviders(dir string) (config, programs string, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", "", err
	}
	script := fmt.Sprintf(`#!/bin/sh
cat >> %s/asked; echo >> %[1]s/asked
echo '{"apiVersion":"credentialprovider.kubelet.k8s.io/v1","kind":"CredentialProviderResponse","cacheKeyType":"Image","auth":{"%s":{"username":"puller","password":"%s"}}}'
`, dir, registryHost, registryPassword)
	text := fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1
kind: CredentialProviderConfig
providers:
  - name: provider
    matchImages: ["%s/%s"]
    defaultCacheDuration: 1h
    apiVersion: credentialprovider.kubelet.k8s.io/v1
`, registryHost, providedRepository)
	config = filepath.Join(dir, "config.yaml")
	return config, dir, errors.Join(os.WriteFile(filepath.Join(dir, "provider"), []byte(script), 0o755), os.WriteFile(config, []byte(text), 0o644))
}

// providerPulls: pods of every namespace use the node's credentials, and the program is
// asked once for each image.
func providerPulls(s *space, r *registry) {
	other := newSpace(s.T)
	for _, space := range []*space{s, other} {
		space.apply(strings.ReplaceAll(r.pod("provided", "v1", "Always"), "private/box", providedRepository))
		space.ready("provided")
	}
	asked, err := os.ReadFile(filepath.Join(filepath.Dir(the.dir), "providers", "asked"))
	want := fmt.Sprintf(`{"apiVersion":"credentialprovider.kubelet.k8s.io/v1","kind":"CredentialProviderRequest","image":"%s/%s"}`+"\n", registryHost, providedRepository)
	if err != nil || string(asked) != want {
		s.Errorf("the program was asked %q, %v", asked, err)
	}
}

// passwordIsNowhere searches for the password in the log and the records of the kubelet, and in
// the events.
func passwordIsNowhere(s *space, r *registry) {
	files, err := filepath.Glob(filepath.Join(the.dir, "kubelet", "image_manager", "*", "*"))
	if err != nil || len(files) == 0 {
		s.Errorf("records of pulls: %v, %v", files, err)
	}
	for _, file := range append(files, filepath.Join(the.dir, "logs", "kubelet.log")) {
		data, err := os.ReadFile(file)
		if err != nil || bytes.Contains(data, []byte(r.password)) {
			s.Errorf("%s: %v, or it has the password", file, err)
		}
	}
	list, err := in[*corev1.Event](s).List(s.Context(), metav1.ListOptions{})
	if err != nil {
		s.Fatal(err)
	}
	for _, e := range list.Items {
		if strings.Contains(e.Message, r.password) {
			s.Errorf("an event has the password: %s", e.Message)
		}
	}
}

// secret creates a pull secret with an entry for a server.
func (s *space) secret(name, server, password string) {
	s.Helper()
	config, err := json.Marshal(map[string]any{"auths": map[string]any{server: map[string]string{"username": "puller", "password": password}}})
	if err != nil {
		s.Fatal(err)
	}
	_, err = in[*corev1.Secret](s).Create(s.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Type: corev1.SecretTypeDockerConfigJson, Data: map[string][]byte{corev1.DockerConfigJsonKey: config},
	})
	if err != nil {
		s.Fatal(err)
	}
}

// registry is an image registry on the node's loopback address, whose only user is puller.
type registry struct{ host, password string }

// startRegistry runs a registry until the test ends.
func startRegistry(t *testing.T) *registry {
	t.Helper()
	r := &registry{host: registryHost, password: registryPassword}
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, the.bin("peers/registry"), "-address", "127.0.0.1:5055", "-dir", t.TempDir(), "-user", "puller")
	cmd.Env = append(os.Environ(), "REGISTRY_PASSWORD="+r.password, "OTEL_TRACES_EXPORTER=none")
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatalf("%v: hack/peers builds it", err)
	}
	t.Cleanup(func() {
		cancel()
		cmd.Wait()
		if t.Failed() {
			t.Logf("the registry says\n%s", out.Bytes())
		}
	})
	eventually(t, 30*time.Second, "the registry answers", func() error {
		_, _, err := r.do("GET", "/v2/", "", nil)
		return err
	})
	return r
}

func (r *registry) image(tag string) string { return r.host + "/private/box:" + tag }

func (r *registry) pod(name, tag, policy string, secrets ...string) string {
	text := fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  terminationGracePeriodSeconds: 0
  imagePullSecrets: []
  containers:
    - {name: box, image: %q, imagePullPolicy: %s, command: [sleep, "3600"]}
`, name, r.image(tag), policy)
	if len(secrets) == 0 {
		return strings.Replace(text, "  imagePullSecrets: []\n", "", 1)
	}
	return strings.Replace(text, "[]", "[{name: "+strings.Join(secrets, "}, {name: ")+"}]", 1)
}

func (r *registry) push(t *testing.T, archive, tag string) {
	t.Helper()
	r.pushTo(t, archive, "private/box", tag)
}

// pushTo uploads an archive of hack/images, by the distribution specification.
func (r *registry) pushTo(t *testing.T, archive, repository, tag string) {
	t.Helper()
	files := untar(t, archive)
	var index []struct {
		Config string
		Layers []string
	}
	if err := json.Unmarshal(files["manifest.json"], &index); err != nil {
		t.Fatal(err)
	}
	// A different date makes a different image: the kubelet must not take the preloaded image,
	// which has the same layers, for one that it has pulled.
	config := bytes.ReplaceAll(files[index[0].Config], []byte("2000-01-01T"), []byte("2000-01-02T"))
	const oci = "application/vnd.oci.image."
	blob := func(mediaType string, data []byte) map[string]any {
		digest := fmt.Sprintf("sha256:%x", sha256.Sum256(data))
		_, header, err := r.do("POST", "/v2/"+repository+"/blobs/uploads/", "", nil)
		if err == nil {
			location := header.Get("Location")
			join := "?"
			if strings.Contains(location, "?") {
				join = "&"
			}
			_, _, err = r.do("PUT", location+join+"digest="+digest, "application/octet-stream", data)
		}
		if err != nil {
			t.Fatal(err)
		}
		return map[string]any{"mediaType": mediaType, "digest": digest, "size": len(data)}
	}
	manifest, err := json.Marshal(map[string]any{
		"schemaVersion": 2, "mediaType": oci + "manifest.v1+json",
		"config": blob(oci+"config.v1+json", config),
		"layers": []any{blob(oci+"layer.v1.tar", files[index[0].Layers[0]])},
	})
	if err == nil {
		_, _, err = r.do("PUT", "/v2/"+repository+"/manifests/"+tag, oci+"manifest.v1+json", manifest)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func untar(t *testing.T, archive string) map[string][]byte {
	t.Helper()
	f, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	files := map[string][]byte{}
	for r := tar.NewReader(f); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err == nil {
			files[h.Name], err = io.ReadAll(r)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// do sends a request as the registry's user. A path may be a whole URL.
func (r *registry) do(method, path, contentType string, body []byte) ([]byte, http.Header, error) {
	url := path
	if strings.HasPrefix(path, "/") {
		url = "http://" + r.host + path
	}
	req, err := http.NewRequest(method, url, bytes.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	req.SetBasicAuth("puller", r.password)
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode >= 300 {
		err = fmt.Errorf("%s %s: %s: %s", method, url, resp.Status, text)
	}
	return text, resp.Header, err
}
