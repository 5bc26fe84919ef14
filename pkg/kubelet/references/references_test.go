package references

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/client"
	"podium/pkg/client/clienttest"
	"podium/pkg/scheme"
)

// rig is References over an API server in memory.
type rig struct {
	*References
	t          *testing.T
	api        *clienttest.Server
	configMaps client.Resource[*corev1.ConfigMap]

	mu      sync.Mutex
	gets    int
	watches int
	told    []types.UID
}

func bubble(t *testing.T, s Strategy, test func(r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &rig{t: t, api: clienttest.New()}
		c, err := client.New(scheme.New(), client.Config{Servers: []string{"http://api"}, Transport: r})
		if err != nil {
			t.Fatal(err)
		}
		r.configMaps = client.For[*corev1.ConfigMap](r.api.Client(t)).In("default")
		r.References = New(Config{Client: c, Strategy: s, Lifetime: time.Minute, Changed: r.changed, Log: slog.New(slog.DiscardHandler)})
		test(r)
	})
}

// RoundTrip counts the requests of References.
func (r *rig) RoundTrip(req *http.Request) (*http.Response, error) {
	r.mu.Lock()
	if strings.Contains(req.URL.RawQuery, "watch=true") {
		r.watches++
	} else {
		r.gets++
	}
	r.mu.Unlock()
	return r.api.RoundTrip(req)
}

func (r *rig) changed(pods []types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.told = append(r.told, pods...)
}

// since returns what has happened since the last call; each pod once.
func (r *rig) since() (gets, watches int, told []types.UID) {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	gets, watches, told = r.gets, r.watches, slices.Compact(slices.Sorted(slices.Values(r.told)))
	r.gets, r.watches, r.told = 0, 0, nil
	return gets, watches, told
}

// write creates or updates the ConfigMap "settings".
func (r *rig) write(value string) {
	r.t.Helper()
	cm, err := r.configMaps.Get(r.t.Context(), "settings")
	if apierrors.IsNotFound(err) {
		cm, err = r.configMaps.Create(r.t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "settings", Namespace: "default"}})
	}
	if err != nil {
		r.t.Fatal(err)
	}
	cm.Data = map[string]string{"key": value}
	if _, err := r.configMaps.Update(r.t.Context(), cm); err != nil {
		r.t.Fatal(err)
	}
	synctest.Wait()
}

// reads wants the ConfigMap to have a value; "": not to exist.
func (r *rig) reads(want string) {
	r.t.Helper()
	cm, err := r.ConfigMap(r.t.Context(), "default", "settings")
	if want == "" && apierrors.IsNotFound(err) {
		return
	}
	if err != nil || cm.Data["key"] != want {
		r.t.Errorf("the ConfigMap is %v, %v; want %q", cm, err, want)
	}
}

func pod(uid types.UID, sources ...corev1.VolumeSource) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: string(uid), UID: uid}}
	for _, s := range sources {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{VolumeSource: s})
	}
	return p
}

func settings() corev1.LocalObjectReference { return corev1.LocalObjectReference{Name: "settings"} }

var (
	plain     = corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: settings()}}
	projected = corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
		{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: settings()}},
	}}}
)

// A watch is shared by the pods that refer to an object, tells all of them of what they
// have not read, and lasts as long as one of them.
func TestWatch(t *testing.T) {
	bubble(t, "", func(r *rig) {
		ctx, cancel := context.WithCancel(r.t.Context())
		defer r.Wait()
		defer cancel()
		r.write("1")
		r.Follow(ctx, pod("a", plain))
		r.reads("1")
		if _, watches, _ := r.since(); watches != 1 { // the watch may bring the object before the pod reads it
			r.t.Errorf("%d watches", watches)
		}
		r.Follow(ctx, pod("b", projected))
		r.reads("1")
		if _, watches, told := r.since(); watches > 0 || len(told) > 0 {
			r.t.Errorf("%d watches, told %v", watches, told)
		}
		r.write("2")
		if gets, _, told := r.since(); gets > 0 || !slices.Equal(told, []types.UID{"a", "b"}) {
			r.t.Errorf("%d reads of the API, told %v of a change", gets, told)
		}
		r.reads("2")
		if err := r.configMaps.Delete(r.t.Context(), "settings", metav1.DeleteOptions{}); err != nil {
			r.t.Fatal(err)
		}
		if gets, _, told := r.since(); gets > 0 || len(told) != 2 {
			r.t.Errorf("%d reads of the API, told %v of a deletion", gets, told)
		}
		r.reads("")
		r.Forget("a")
		r.write("3")
		if _, watches, told := r.since(); watches > 0 || !slices.Equal(told, []types.UID{"b"}) {
			r.t.Errorf("%d watches, told %v", watches, told)
		}
		r.Forget("b")
		r.write("4")
		if _, _, told := r.since(); len(told) > 0 {
			r.t.Errorf("told %v of what none refers to", told)
		}
		r.reads("4")
	})
}

// A server that has restarted is asked for what has changed meanwhile.
func TestWatchIsResumed(t *testing.T) {
	bubble(t, Watch, func(r *rig) {
		ctx, cancel := context.WithCancel(r.t.Context())
		defer r.Wait()
		defer cancel()
		r.Follow(ctx, pod("a", plain))
		r.reads("")
		r.api.Break()
		r.write("1")
		time.Sleep(time.Minute)
		if _, _, told := r.since(); !slices.Equal(told, []types.UID{"a"}) {
			r.t.Errorf("told %v", told)
		}
		r.reads("1")
	})
}

func TestWithoutWatches(t *testing.T) {
	for s, want := range map[Strategy]int{Cache: 2, Get: 4} {
		t.Run(string(s), func(t *testing.T) {
			bubble(t, s, func(r *rig) {
				r.write("1")
				r.Follow(r.t.Context(), pod("a", plain))
				r.since()
				r.reads("1")
				r.reads("1")
				r.write("2")
				time.Sleep(time.Minute)
				r.reads("2")
				r.reads("2")
				if gets, watches, told := r.since(); gets != want || watches > 0 || len(told) > 0 {
					r.t.Errorf("%d reads of the API, %d watches, told %v", gets, watches, told)
				}
			})
		})
	}
}

func TestParseStrategy(t *testing.T) {
	for name, want := range map[string]Strategy{"": Watch, "Watch": Watch, "Cache": Cache, "Get": Get} {
		if s, err := ParseStrategy(name); s != want || err != nil {
			t.Errorf("%q: %v, %v", name, s, err)
		}
	}
	if _, err := ParseStrategy("watch"); err == nil {
		t.Error("another name is accepted")
	}
}
