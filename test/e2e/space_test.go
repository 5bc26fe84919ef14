package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client"
	"podium/pkg/scheme"
)

// space is a test's own namespace, which is deleted with the test.
type space struct {
	*testing.T
	api  *client.Client
	name string
}

var notInNames = regexp.MustCompile(`[^a-z0-9]+`)

// newSpace creates a namespace named after the test. When the test ends, the namespace must be
// deletable with everything in it; if the test failed, its content is logged first.
func newSpace(t *testing.T) *space {
	t.Helper()
	name := strings.ToLower(strings.TrimPrefix(t.Name(), "Test"))
	s := &space{T: t, api: the.client(t), name: strings.Trim(notInNames.ReplaceAllString(name, "-"), "-")}
	spaces := client.For[*corev1.Namespace](s.api)
	if _, err := spaces.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.name}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			s.show()
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := spaces.Delete(ctx, s.name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
		eventually(t, time.Minute, "namespace "+s.name+" goes", func() error {
			left, err := spaces.Get(ctx, s.name)
			if apierrors.IsNotFound(err) {
				return nil
			}
			if err == nil {
				err = fmt.Errorf("it still is %s: %v", left.Status.Phase, left.Status.Conditions)
			}
			return err
		})
	})
	return s
}

// show prints the objects and logs that help to understand a failed test.
func (s *space) show() {
	for _, args := range [][]string{
		{"get", "deployments,replicasets,pods,services,endpointslices", "-o", "wide"},
		{"describe", "pods"},
		{"events"},
	} {
		out, err := the.try(context.Background(), "", the.bin("podium"), append([]string{"-n", s.name}, args...)...)
		s.Logf("podium %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	for _, name := range append([]string{"containerd"}, daemons...) {
		s.Logf("the end of %s.log:\n%s", name, tail(filepath.Join(the.dir, "logs", name+".log"), 15))
	}
}

func tail(file string, lines int) string {
	data, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimSpace(string(data)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// apply creates the objects of a YAML text in the space.
func (s *space) apply(manifests string) {
	s.Helper()
	for _, text := range strings.Split(manifests, "\n---\n") {
		obj, gvk, err := s.api.Scheme().DecodeStrict([]byte(text), scheme.YAML, nil)
		if err != nil {
			s.Fatalf("%v in\n%s", err, text)
		}
		path := client.CollectionPath(s.api.Scheme().ByKind(*gvk), s.name)
		body, err := s.api.Scheme().Encode(obj, scheme.JSON)
		if err != nil {
			s.Fatal(err)
		}
		_, _, err = s.api.Do(s.Context(), client.Request{
			Method: "POST", Path: path, Body: body, Header: map[string][]string{"Content-Type": {scheme.JSON}},
		})
		if err != nil {
			s.Fatalf("%v in\n%s", err, text)
		}
	}
}

// in returns the client of a kind in the space.
func in[T scheme.Object](s *space) client.Resource[T] { return client.For[T](s.api).In(s.name) }

// pods returns the pods with a label, without terminating ones.
func (s *space) pods(selector string) []*corev1.Pod {
	s.Helper()
	list, err := in[*corev1.Pod](s).List(s.Context(), metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		s.Fatal(err)
	}
	var all []*corev1.Pod
	for _, p := range list.Items {
		if p.DeletionTimestamp == nil {
			all = append(all, p)
		}
	}
	return all
}

// pod waits until wanted returns true for a pod, and returns it.
func (s *space) pod(name, what string, wanted func(*corev1.Pod) bool) *corev1.Pod {
	s.Helper()
	var pod *corev1.Pod
	eventually(s.T, time.Minute, "pod "+name+" "+what, func() (err error) {
		if pod, err = in[*corev1.Pod](s).Get(s.Context(), name); err == nil && !wanted(pod) {
			err = fmt.Errorf("it is %s, %s", pod.Status.Phase, describe(pod))
		}
		return err
	})
	return pod
}

func describe(pod *corev1.Pod) string {
	var parts []string
	for _, c := range append(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses...) {
		parts = append(parts, fmt.Sprintf("%s: ready %t, restarts %d, %v", c.Name, c.Ready, c.RestartCount, c.State))
	}
	for _, c := range pod.Status.Conditions {
		if c.Status != corev1.ConditionTrue {
			parts = append(parts, fmt.Sprintf("%s=%s %s %s", c.Type, c.Status, c.Reason, c.Message))
		}
	}
	return strings.Join(parts, "; ")
}

// ready waits until a pod is Ready.
func (s *space) ready(name string) *corev1.Pod {
	s.Helper()
	return s.pod(name, "is Ready", isReady)
}

func isReady(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// waits returns a condition: the pod's first container waits with the reason.
func waits(reason string) func(*corev1.Pod) bool {
	return func(pod *corev1.Pod) bool {
		all := pod.Status.ContainerStatuses
		return len(all) > 0 && all[0].State.Waiting != nil && all[0].State.Waiting.Reason == reason
	}
}

// restarted returns a condition: the pod's first container runs after its n-th restart.
func restarted(n int32) func(*corev1.Pod) bool {
	return func(pod *corev1.Pod) bool {
		all := pod.Status.ContainerStatuses
		return len(all) > 0 && all[0].RestartCount >= n && all[0].State.Running != nil
	}
}

// scale sets the number of replicas of a Deployment.
func (s *space) scale(name string, replicas int) {
	s.Helper()
	s.patch(name, fmt.Sprintf(`{"spec":{"replicas":%d}}`, replicas))
}

// patch patches a Deployment.
func (s *space) patch(name, patch string) {
	s.Helper()
	if _, err := in[*appsv1.Deployment](s).Patch(s.Context(), name, "application/strategic-merge-patch+json", []byte(patch)); err != nil {
		s.Fatal(err)
	}
}

// rolledOut waits until a Deployment's status matches its spec, and no surplus pod is left.
func (s *space) rolledOut(name string) *appsv1.Deployment {
	s.Helper()
	var d *appsv1.Deployment
	eventually(s.T, 90*time.Second, "deployment "+name+" is rolled out", func() (err error) {
		if d, err = in[*appsv1.Deployment](s).Get(s.Context(), name); err != nil {
			return err
		}
		want, have := *d.Spec.Replicas, d.Status
		if have.ObservedGeneration < d.Generation || have.Replicas != want || have.UpdatedReplicas != want || have.AvailableReplicas != want {
			return fmt.Errorf("want %d replicas, status is %+v", want, have)
		}
		list, err := in[*corev1.Pod](s).List(s.Context(), metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(d.Spec.Selector)})
		if err == nil && len(list.Items) != int(want) {
			err = fmt.Errorf("want %d pods, there are %d", want, len(list.Items))
		}
		return err
	})
	return d
}

// said waits for an event with the reason, about the object, that contains the text.
func (s *space) said(object, reason, text string) *corev1.Event {
	s.Helper()
	var found *corev1.Event
	eventually(s.T, time.Minute, fmt.Sprintf("an event %s about %s says %q", reason, object, text), func() error {
		list, err := in[*corev1.Event](s).List(s.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		var others []string
		for _, e := range list.Items {
			if e.InvolvedObject.Name != object {
				continue
			}
			if e.Reason == reason && strings.Contains(e.Message, text) {
				found = e
				return nil
			}
			others = append(others, e.Reason+": "+e.Message)
		}
		return fmt.Errorf("the events are\n%s", strings.Join(others, "\n"))
	})
	return found
}

// exec runs a shell command in a pod's only container.
func (s *space) exec(pod, command string) string {
	s.Helper()
	return strings.TrimSuffix(the.podium(s.T, "-n", s.name, "exec", pod, "--", "sh", "-c", command), "\n")
}

// podium runs podium in the space.
func (s *space) podium(args ...string) string {
	s.Helper()
	return the.podium(s.T, append([]string{"-n", s.name}, args...)...)
}

// service returns a Service.
func (s *space) service(name string) *corev1.Service {
	s.Helper()
	svc, err := in[*corev1.Service](s).Get(s.Context(), name)
	if err != nil {
		s.Fatal(err)
	}
	return svc
}

func (s *space) url(service string) string {
	s.Helper()
	svc := s.service(service)
	return fmt.Sprintf("http://%s:%d/", svc.Spec.ClusterIP, svc.Spec.Ports[0].Port)
}

// eventually calls ok until it returns nil, at most for the given time: the programs outside of
// this process offer nothing better to wait for.
func eventually(t *testing.T, within time.Duration, what string, ok func() error) {
	t.Helper()
	deadline := time.Now().Add(within)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ok()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v: %v", what, within, err)
		}
		<-tick.C
	}
}

var errNotYet = errors.New("not yet")

// goes waits until a pod no longer exists; another pod of the same name may exist.
func (s *space) goes(pod *corev1.Pod) {
	s.Helper()
	eventually(s.T, time.Minute, "pod "+pod.Name+" goes", func() error {
		now, err := in[*corev1.Pod](s).Get(s.Context(), pod.Name)
		if apierrors.IsNotFound(err) || err == nil && now.UID != pod.UID {
			return nil
		}
		if err == nil {
			err = fmt.Errorf("it is %s, %s", now.Status.Phase, describe(now))
		}
		return err
	})
}
