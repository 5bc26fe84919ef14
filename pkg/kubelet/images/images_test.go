package images

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podium/pkg/kubelet/cri/crifake"
	"podium/pkg/scheme"
)

func TestImageNames(t *testing.T) {
	for name, good := range map[string]bool{
		"busybox": true, "localhost/podium/web:v1": true, "registry.example.org:5000/a/b_c/d:1.2": true, "[::1]:5000/a": true,
		"a@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef": true,
		"": false, "UPPER": false, "a b": false, "a:": false, "a/": false, "-a": false, "a:b:c": false,
	} {
		if validName(name) != good {
			t.Errorf("%q: valid is %v", name, !good)
		}
	}
	for name, want := range map[string]string{"a": "a:latest", "a:1": "a:1", "h:5000/a": "h:5000/a:latest", "a@sha256:x": "a@sha256:x"} {
		if got := withTag(name); got != want {
			t.Errorf("%q becomes %q, want %q", name, got, want)
		}
	}
}

// reported is a Recorder that collects events.
type reported struct {
	mu     sync.Mutex
	events []string
}

func (e *reported) EventOn(_ scheme.Object, path, _, reason, message string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.events = append(e.events, path+" "+reason+" "+message)
}

func TestPullSecretsAreTriedInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tried []string
		runtime := crifake.New(crifake.Config{Pull: func(_ string, auth *runtimeapi.AuthConfig) error {
			tried = append(tried, auth.GetUsername())
			if auth.GetUsername() != "any" {
				return errors.New("denied")
			}
			return nil
		}})
		e, woken := &reported{}, make(chan types.UID, 1)
		p := New(Config{
			Images: runtime.ImageService(), Events: e, Log: slog.New(slog.DiscardHandler), Wake: func(uid types.UID) { woken <- uid },
			Records: NewRecords(t.TempDir(), slog.New(slog.DiscardHandler)),
			Secret: func(_ context.Context, _, name string) (*corev1.Secret, error) {
				if name != "s" {
					return nil, fmt.Errorf("no %s", name)
				}
				return dockerSecret(`{"auths":{"r.example.org/t":{"username":"team"},"r.example.org":{"username":"any"}}}`), nil
			},
		})
		c := &corev1.Container{Name: "c", Image: "r.example.org/t/a", ImagePullPolicy: corev1.PullAlways}
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u"}, Spec: corev1.PodSpec{
			Containers: []corev1.Container{*c}, ImagePullSecrets: []corev1.LocalObjectReference{{Name: "s"}, {Name: "missing"}},
		}}
		var wait *Waiting
		if _, err := p.Ensure(t.Context(), pod, c, "1"); !errors.As(err, &wait) || wait.Reason != "" {
			t.Fatalf("a pull is under way, got %v", err)
		}
		<-woken
		if id, err := p.Ensure(t.Context(), pod, c, "1"); err != nil || id == "" {
			t.Errorf("%q, %v", id, err)
		}
		if diff := cmp.Diff([]string{"team", "any"}, tried); diff != "" {
			t.Errorf("credentials (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{
			`spec.containers{c} Pulling Pulling image "r.example.org/t/a"`,
			" FailedToRetrieveImagePullSecret Unable to retrieve some image pull secrets (missing); attempting to pull the image may not succeed.",
			`spec.containers{c} Pulled Successfully pulled image "r.example.org/t/a" in 0s (0s including waiting). Image size: 1048576 bytes.`,
		}, e.events); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
		p.Used("u", c, "1")
		if _, err := p.Ensure(t.Context(), pod, c, "2"); !errors.As(err, &wait) {
			t.Error("with the policy Always the next start pulls again")
		}
		<-woken
		p.Wait()
	})
}

func TestCollectorRemovesTheLongestUnused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runtime := crifake.New(crifake.Config{Images: []string{"used:1", "volume:1", "pause:1", "old:1", "young:1"}})
		used := uint64(95 << 20)
		c := NewCollector(CollectorConfig{
			Images: runtime.ImageService(), Runtime: runtime, Log: slog.New(slog.DiscardHandler), Keep: "pause:1",
			Records: NewRecords(t.TempDir(), slog.New(slog.DiscardHandler)),
			Pods: func() []*corev1.Pod {
				return []*corev1.Pod{{Spec: corev1.PodSpec{
					Containers: []corev1.Container{{Image: "used:1"}},
					Volumes:    []corev1.Volume{{VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: "volume:1"}}}},
				}}}
			},
			Usage: func() (uint64, uint64, error) { return used, 100 << 20, nil }, High: 90, Low: 94, MinAge: time.Minute,
		})
		c.Collect(t.Context())
		if got := runtime.Calls(); len(got) > 0 {
			t.Errorf("%v: all are young", got)
		}
		time.Sleep(2 * time.Minute)
		c.Collect(t.Context())
		if n := len(runtime.Calls()); n != 1 {
			t.Errorf("%d removed, want one: then it is enough", n)
		}
		used = 10 << 20
		c.Collect(t.Context())
		if n := len(runtime.Calls()); n != 1 {
			t.Error("removed with room to spare")
		}
		c.Free(t.Context())
		var left []string
		list, err := runtime.ImageService().ListImages(t.Context(), &runtimeapi.ListImagesRequest{})
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range list.Images {
			left = append(left, i.RepoTags...)
		}
		slices.Sort(left)
		if want := []string{"pause:1", "used:1", "volume:1"}; !slices.Equal(left, want) {
			t.Errorf("images %v are left, want %v", left, want)
		}
	})
}
