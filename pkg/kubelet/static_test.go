package kubelet

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client"
	"podium/pkg/client/clienttest"
	"podium/pkg/kubelet/cri/crifake"
)

// staticRig is a node with a directory of manifests, and an API that may be down.
type staticRig struct {
	t       *testing.T
	api     *clienttest.Server
	down    atomic.Bool
	runtime *crifake.Runtime
	cfg     Config
	dir     string
	pods    client.Resource[*corev1.Pod]
	stop    func()
}

func staticBubble(t *testing.T, runtime crifake.Config, prepare, f func(r *staticRig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &staticRig{t: t, api: clienttest.New(), runtime: crifake.New(runtime), dir: t.TempDir()}
		r.api.Before = func(*http.Request) (*http.Response, error) {
			if r.down.Load() {
				return nil, errors.New("connection refused")
			}
			return nil, nil
		}
		r.cfg = hollow(t, r.api, "n1", r.runtime, t.TempDir())
		r.cfg.Static.Path = r.dir
		r.pods = client.For[*corev1.Pod](r.api.Client(t)).In("default")
		prepare(r)
		r.start()
		defer func() { r.stop() }()
		f(r)
	})
}

func (r *staticRig) start() { r.stop = run(r.t, r.cfg) }

func (r *staticRig) restart(between func()) {
	r.stop()
	between()
	r.start()
	after(5 * time.Second)
}

// put writes a manifest; remove removes it.
func (r *staticRig) put(name, text string) {
	r.t.Helper()
	if err := os.WriteFile(filepath.Join(r.dir, name), []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

func (r *staticRig) remove(name string) {
	r.t.Helper()
	if err := os.Remove(filepath.Join(r.dir, name)); err != nil {
		r.t.Fatal(err)
	}
}

func (r *staticRig) mirror(name string) *corev1.Pod {
	r.t.Helper()
	p, err := r.pods.Get(r.t.Context(), name)
	if err != nil {
		r.t.Fatal(err)
	}
	return p
}

func (r *staticRig) gone(name string) bool {
	_, err := r.pods.Get(r.t.Context(), name)
	return apierrors.IsNotFound(err)
}

// running returns the running containers as POD/CONTAINER IMAGE.
func (r *staticRig) running() []string {
	out := []string{}
	for _, c := range r.runtime.Containers() {
		if c.Exited.IsZero() && !c.Started.IsZero() {
			out = append(out, fmt.Sprintf("%s/%s %s", c.Pod, c.Name, c.Config.Image.GetUserSpecifiedImage()))
		}
	}
	slices.Sort(out)
	return out
}

func (r *staticRig) runs(want ...string) {
	r.t.Helper()
	if got := r.running(); !slices.Equal(got, want) {
		r.t.Errorf("running: %q, want %q", got, want)
	}
}

func manifest(name, image string) string {
	return "apiVersion: v1\nkind: Pod\nmetadata: {name: " + name + ", labels: {app: " + name + "}}\nspec:\n" +
		"  terminationGracePeriodSeconds: 5\n  containers: [{name: app, image: '" + image + "'}]\n"
}

func noPrepare(*staticRig) {}

// A static pod runs although there has never been an API; its mirror follows.
func TestStaticPodRunsWithoutTheAPI(t *testing.T) {
	staticBubble(t, crifake.Config{Images: []string{"app:1"}}, func(r *staticRig) {
		r.down.Store(true)
		r.put("web.yaml", manifest("web", "app:1"))
	}, func(r *staticRig) {
		after(time.Minute)
		r.runs("web-n1/app app:1")
		r.down.Store(false)
		after(time.Minute)
		node, err := client.For[*corev1.Node](r.api.Client(r.t)).Get(r.t.Context(), "n1")
		if err != nil {
			r.t.Fatal(err)
		}
		p := r.mirror("web-n1")
		hash := p.Annotations[corev1.MirrorPodAnnotationKey]
		if hash == "" || hash != p.Annotations["kubernetes.io/config.hash"] || p.Annotations["kubernetes.io/config.source"] != "file" || p.Annotations["kubernetes.io/config.seen"] == "" {
			t.Errorf("annotations %v", p.Annotations)
		}
		if o := p.OwnerReferences; len(o) != 1 || o[0].Kind != "Node" || o[0].UID != node.UID || !*o[0].Controller {
			t.Errorf("owners %v", o)
		}
		if p.Status.Phase != corev1.PodRunning || len(p.Status.ContainerStatuses) != 1 || !p.Status.ContainerStatuses[0].Ready || p.Status.StartTime == nil || p.Labels["app"] != "web" {
			t.Errorf("status %+v", p.Status)
		}
		events, err := client.For[*corev1.Event](r.api.Client(r.t)).In("default").List(r.t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(events.Items, func(e *corev1.Event) bool {
			return e.Reason == "Started" && e.InvolvedObject.Name == "web-n1" && string(e.InvolvedObject.UID) == hash
		}) {
			t.Errorf("no event Started of the static pod among %d", len(events.Items))
		}
		r.down.Store(true)
		after(10 * time.Minute)
		r.runs("web-n1/app app:1")
	})
}

// A mirror that is deleted comes back; the static pod runs on. So it does when the kubelet
// is restarted.
func TestMirrorComesBack(t *testing.T) {
	staticBubble(t, crifake.Config{Images: []string{"app:1"}}, func(r *staticRig) { r.put("web.yaml", manifest("web", "app:1")) }, func(r *staticRig) {
		after(5 * time.Second)
		first := r.mirror("web-n1")
		if err := r.pods.Delete(r.t.Context(), "web-n1", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		after(5 * time.Second)
		second := r.mirror("web-n1")
		if second.UID == first.UID || second.Status.Phase != corev1.PodRunning {
			t.Errorf("the mirror is %s, was %s: %+v", second.UID, first.UID, second.Status)
		}
		r.restart(func() {})
		third := r.mirror("web-n1")
		if third.UID != second.UID || !third.Status.StartTime.Equal(second.Status.StartTime) || third.Status.Phase != corev1.PodRunning {
			t.Errorf("after a restart of the kubelet the mirror is %s, was %s: %+v", third.UID, second.UID, third.Status)
		}
		for _, c := range r.runtime.Containers() {
			if c.Attempt != 0 || len(r.runtime.Containers()) != 1 {
				t.Errorf("%s was restarted", c.Pod)
			}
		}
	})
}

// Another client may delete the mirror with a grace period, or change its status.
func TestMirrorIsTheKubelets(t *testing.T) {
	staticBubble(t, crifake.Config{Images: []string{"app:1"}}, func(r *staticRig) { r.put("web.yaml", manifest("web", "app:1")) }, func(r *staticRig) {
		after(5 * time.Second)
		p := r.mirror("web-n1").DeepCopy()
		now := metav1.Now()
		p.DeletionTimestamp = &now
		if _, err := r.pods.Update(r.t.Context(), p); err != nil {
			t.Fatal(err)
		}
		after(5 * time.Second)
		if next := r.mirror("web-n1"); next.UID == p.UID || next.DeletionTimestamp != nil || next.Status.Phase != corev1.PodRunning {
			t.Errorf("the mirror is %+v", next)
		}
		p = r.mirror("web-n1").DeepCopy()
		p.Status.Phase = corev1.PodFailed
		if _, err := r.pods.Update(r.t.Context(), p); err != nil {
			t.Fatal(err)
		}
		after(time.Minute)
		if next := r.mirror("web-n1"); next.UID != p.UID || next.Status.Phase != corev1.PodRunning {
			t.Errorf("the mirror is %+v", next.Status)
		}
		r.runs("web-n1/app app:1")
	})
}

// A changed manifest is another pod, which starts when the former has stopped. When the
// manifest is removed, the pod ends, and then its mirror.
func TestManifestsChange(t *testing.T) {
	slow := crifake.Config{Images: []string{"app:1", "app:2"}, Behave: func(crifake.Start) crifake.Behaviour { return crifake.Behaviour{TermDelay: 3 * time.Second} }}
	staticBubble(t, slow, func(r *staticRig) { r.put("web.yaml", manifest("web", "app:1")) }, func(r *staticRig) {
		after(5 * time.Second)
		first := r.mirror("web-n1")
		r.put("web.yaml", manifest("web", "app:2"))
		after(16 * time.Second) // 21 s after the first reading
		if p := r.mirror("web-n1"); p.UID != first.UID {
			t.Error("the mirror changes before the pod has stopped")
		}
		r.runs("web-n1/app app:1")
		after(10 * time.Second)
		r.runs("web-n1/app app:2")
		if p := r.mirror("web-n1"); p.UID == first.UID || p.Spec.Containers[0].Image != "app:2" || p.Status.Phase != corev1.PodRunning {
			t.Errorf("the mirror is %+v", p)
		}
		r.remove("web.yaml")
		after(21 * time.Second)
		after(10 * time.Second)
		r.runs()
		if !r.gone("web-n1") || len(r.runtime.Containers()) > 0 {
			t.Error("something is left")
		}
		r.put("web.yaml", manifest("web", "app:2"))
		after(21 * time.Second)
		r.runs("web-n1/app app:2")
		r.remove("web.yaml")
		after(20 * time.Second)
		r.put("web.yaml", manifest("web", "app:2"))
		after(30 * time.Second)
		r.runs("web-n1/app app:2")
	})
}

// What changed while no kubelet ran is noticed, even without the API.
func TestManifestsChangeWhileTheKubeletIsDown(t *testing.T) {
	slow := crifake.Config{Images: []string{"app:1", "app:2"}, Behave: func(crifake.Start) crifake.Behaviour { return crifake.Behaviour{TermDelay: 3 * time.Second} }}
	staticBubble(t, slow, func(r *staticRig) {
		r.put("web.yaml", manifest("web", "app:1"))
		r.put("db.yaml", manifest("db", "app:1"))
	}, func(r *staticRig) {
		after(5 * time.Second)
		r.runs("db-n1/app app:1", "web-n1/app app:1")
		r.restart(func() {
			r.down.Store(true)
			r.remove("db.yaml")
			r.put("web.yaml", manifest("web", "app:2"))
		})
		after(5 * time.Second)
		r.runs("web-n1/app app:2")
		calls := r.runtime.Calls()
		stopped := slices.IndexFunc(calls, func(c string) bool { return strings.HasPrefix(c, "StopContainer web-n1") })
		last := 0
		for i, c := range calls {
			if strings.HasPrefix(c, "StartContainer web-n1") {
				last = i
			}
		}
		if stopped < 0 || last < stopped {
			t.Errorf("the new pod starts before the old one stops: %q", calls)
		}
		r.down.Store(false)
		after(time.Minute)
		if !r.gone("db-n1") {
			t.Error("a mirror without a static pod is left")
		}
		if p := r.mirror("web-n1"); p.Spec.Containers[0].Image != "app:2" || p.Status.Phase != corev1.PodRunning {
			t.Errorf("the mirror is %+v", p)
		}
	})
}

// Pods of the API that pretend to be mirrors or static pods are neither.
func TestPretendersInTheAPI(t *testing.T) {
	staticBubble(t, crifake.Config{Images: []string{"app:1"}}, noPrepare, func(r *staticRig) {
		after(time.Second)
		mirror, static := boundPod("mirror", "n1"), boundPod("static", "n1")
		mirror.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x", "kubernetes.io/config.source": "file"}
		static.Annotations = map[string]string{"kubernetes.io/config.source": "file"}
		for _, p := range []*corev1.Pod{mirror, static} {
			if _, err := r.pods.Create(r.t.Context(), p); err != nil {
				t.Fatal(err)
			}
		}
		after(10 * time.Second)
		r.runs("static/app app:1")
		if !r.gone("mirror") {
			t.Error("a mirror without a static pod is left")
		}
		if err := r.pods.Delete(r.t.Context(), "static", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		after(10 * time.Second)
		r.runs()
	})
}
