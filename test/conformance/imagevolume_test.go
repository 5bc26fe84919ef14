package conformance

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// imageVolume mounts an image that only a registry has, with the pull policy Always.
func imageVolume(t *testing.T, ctx context.Context, namespace string) {
	reference, pulls := imageRegistry(t, map[string]string{"dir/file": "content of the image"})
	pod := sleeper(namespace, "reads")
	pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: reference, PullPolicy: corev1.PullAlways}}}}
	pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}, {Name: "data", MountPath: "/below", SubPath: "dir"}}
	pod = run(t, ctx, pod)
	for _, path := range []string{"/data/dir/file", "/below/file"} {
		if got := exec(t, ctx, pod, "c", "cat", path); strings.TrimSpace(got) != "content of the image" {
			t.Errorf("%s contains %q", path, got)
		}
	}
	if got := exec(t, ctx, pod, "c", "sh", "-c", "touch /data/new 2>&1 || true"); !strings.Contains(got, "Read-only file system") {
		t.Errorf("a write into the image gives %q", got)
	}
	if pulls() == 0 {
		t.Error("nothing was pulled")
	}
}

// imageRegistry serves an image with the files by the protocol of registries. It returns the
// image's reference, which this machine's runtime can pull, and a function that counts how
// often a client has asked for it.
func imageRegistry(t *testing.T, files map[string]string) (reference string, pulls func() int) {
	t.Helper()
	layer := archive(t, files)
	config := encode(t, map[string]any{"architecture": "amd64", "os": "linux", "rootfs": map[string]any{"type": "layers", "diff_ids": []string{digest(layer)}}})
	part := func(media string, data []byte) map[string]any {
		return map[string]any{"mediaType": media, "digest": digest(data), "size": len(data)}
	}
	const media = "application/vnd.oci.image.manifest.v1+json"
	manifest := encode(t, map[string]any{
		"schemaVersion": 2, "mediaType": media, "config": part("application/vnd.oci.image.config.v1+json", config),
		"layers": []any{part("application/vnd.oci.image.layer.v1.tar", layer)},
	})
	content := map[string][]byte{"manifests/v1": manifest, "manifests/" + digest(manifest): manifest, "blobs/" + digest(config): config, "blobs/" + digest(layer): layer}
	asked := make(chan struct{}, 1000)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		what, isImage := strings.CutPrefix(r.URL.Path, "/v2/data/")
		data, ok := content[what]
		switch {
		case r.URL.Path == "/v2/":
			return
		case !isImage || !ok:
			http.NotFound(w, r)
			return
		}
		if strings.HasPrefix(what, "manifests/") {
			asked <- struct{}{}
			w.Header().Set("Content-Type", media)
			w.Header().Set("Docker-Content-Digest", digest(data))
		}
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
	}))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://") + "/data:v1", func() int { return len(asked) }
}

// archive returns a tar file.
func archive(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for name, text := range files {
		check(t, w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text))}))
		_, err := w.Write([]byte(text))
		check(t, err)
	}
	check(t, w.Close())
	return out.Bytes()
}

func encode(t *testing.T, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	check(t, err)
	return text
}

func digest(data []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(data)) }
