package podcontrol

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"podium/pkg/client"
	"podium/pkg/controller"
	"podium/pkg/controller/informers"
	"podium/pkg/controller/loop"
	"podium/pkg/scheme"
)

// silent is an API server that stores pods, and whose first responses are lost.
type silent struct {
	scheme *scheme.Scheme
	names  []string
	lost   int // responses still to lose
	taken  int // requests whose name another pod still has
}

func (s *silent) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	obj, _, err := s.scheme.Decode(body, r.Header.Get("Content-Type"), nil)
	if err != nil {
		return nil, err
	}
	pod := obj.(*corev1.Pod)
	if pod.Name == "" {
		pod.Name = pod.GenerateName + string(rune('a'+len(s.names)))
	}
	s.taken--
	exists := s.taken >= 0 || slices.Contains(s.names, pod.Name)
	if !exists {
		s.names = append(s.names, pod.Name)
	}
	if s.lost--; s.lost >= 0 {
		return nil, errors.New("connection reset by peer")
	}
	if exists {
		status := apierrors.NewAlreadyExists(corev1.Resource("pods"), pod.Name).Status()
		return s.answer(r, http.StatusConflict, &status)
	}
	return s.answer(r, http.StatusCreated, pod)
}

func (s *silent) answer(r *http.Request, code int, obj runtime.Object) (*http.Response, error) {
	body, err := s.scheme.Encode(obj, scheme.JSON)
	return &http.Response{
		StatusCode: code, Header: http.Header{"Content-Type": {scheme.JSON}}, Body: io.NopCloser(bytes.NewReader(body)), Request: r,
	}, err
}

// The creation of a pod whose name the API would generate is sent again when its response is
// lost: a second pod must not result, nor a second reconcile that creates it.
func TestLostResponseCreatesOnePod(t *testing.T) {
	t.Run("AnsweredLater", func(t *testing.T) { lose(t, 1, 1) })
	t.Run("AnsweredInNextReconcile", func(t *testing.T) { lose(t, resends+2, 2) })
}

func (s *silent) control(t *testing.T) (Control[*appsv1.DaemonSet], *appsv1.DaemonSet) {
	cl, err := client.New(s.scheme, client.Config{Servers: []string{"http://api"}, Transport: s})
	if err != nil {
		t.Fatal(err)
	}
	c := controller.Context{Client: cl, Informers: informers.New(cl, nil), Log: slog.New(slog.DiscardHandler), Metrics: loop.NewMetrics(prometheus.NewRegistry())}
	l := c.NewLoop("test", 0, func(context.Context, loop.Key) (loop.Result, error) { return loop.Done, nil })
	return New[*appsv1.DaemonSet](c, l), &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "agent"}}
}

// TestAnotherPodHasTheName covers generated names that meet those of other pods, which is
// likely among tens of thousands of pods of one owner.
func TestAnotherPodHasTheName(t *testing.T) {
	for taken, want := range map[int]int{renames: 1, renames + 1: 0} {
		s := &silent{scheme: scheme.New(), taken: taken}
		control, owner := s.control(t)
		created, err := control.CreateEach(t.Context(), owner, 1, func(int) *corev1.Pod {
			return control.FromTemplate(owner, &corev1.PodTemplateSpec{})
		})
		if created != want || apierrors.IsAlreadyExists(err) != (want == 0) || len(s.names) != want {
			t.Errorf("after %d names of other pods: %d created, %v, pods %v", taken, created, err, s.names)
		}
	}
}

// lose creates a pod while responses are lost, in a number of reconciles.
func lose(t *testing.T, lost, reconciles int) {
	synctest.Test(t, func(t *testing.T) {
		s := &silent{scheme: scheme.New(), lost: lost}
		control, owner := s.control(t)
		var err error
		for range reconciles {
			_, err = control.CreateEach(t.Context(), owner, 2, func(int) *corev1.Pod {
				return control.FromTemplate(owner, &corev1.PodTemplateSpec{})
			})
		}
		if !apierrors.IsAlreadyExists(err) {
			t.Errorf("create: %v, want that the pod exists", err)
		}
		if len(s.names) != 1 || len(s.names[0]) != len("agent-")+5 {
			t.Errorf("pods %v, want one", s.names)
		}
	})
}
