package cli

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// A container can send any archive: no file of it may be outside of the given
// directory.
func TestUnpackStaysInside(t *testing.T) {
	for name, tc := range map[string]struct {
		reason  string
		entries []tar.Header
		want    []string // files below the directory
		warned  string
		err     string
	}{
		"Tree":     {"the ordinary case", []tar.Header{{Name: "src/", Typeflag: tar.TypeDir, Mode: 0o755}, {Name: "src/a", Mode: 0o644}, {Name: "src/sub/b", Mode: 0o600}}, []string{"out/a", "out/sub/b"}, "", ""},
		"File":     {"a single file takes the name it is given", []tar.Header{{Name: "src", Mode: 0o644}}, []string{"out"}, "", ""},
		"Upwards":  {"a name that climbs", []tar.Header{{Name: "src/a", Mode: 0o644}, {Name: "src/../../evil", Mode: 0o644}}, []string{"out/a"}, "outside", ""},
		"Absolute": {"a name that starts at the root", []tar.Header{{Name: "src/a", Mode: 0o644}, {Name: "/etc/evil", Mode: 0o644}}, []string{"out/a"}, "outside", ""},
		"Link":     {"a link, and a file through it", []tar.Header{{Name: "src/l", Typeflag: tar.TypeSymlink, Linkname: ".."}, {Name: "src/l/evil", Mode: 0o644}}, []string{"out/l/evil"}, "not copied", ""},
		"Nothing":  {"the path does not exist", nil, nil, "", "no files"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			var archive bytes.Buffer
			w := tar.NewWriter(&archive)
			for _, h := range tc.entries {
				if h.Typeflag == 0 {
					h.Typeflag, h.Size = tar.TypeReg, 2
				}
				if err := w.WriteHeader(&h); err != nil {
					t.Fatal(err)
				}
				if h.Typeflag == tar.TypeReg {
					fmt.Fprint(w, "hi")
				}
			}
			w.Close()
			var warned strings.Builder
			err := unpackTree(&archive, "src", filepath.Join(dir, "out"), func(s string) { warned.WriteString(s) })
			if (err == nil) != (tc.err == "") || (err != nil && !strings.Contains(err.Error(), tc.err)) {
				t.Fatalf("got %v, want %q", err, tc.err)
			}
			var got []string
			_ = filepath.Walk(dir, func(path string, info os.FileInfo, _ error) error {
				if info.Mode().IsRegular() {
					rel, _ := filepath.Rel(dir, path)
					got = append(got, rel)
				}
				return nil
			})
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			if !strings.Contains(warned.String(), tc.warned) {
				t.Errorf("warned %q, want %q", warned.String(), tc.warned)
			}
		})
	}
}

func TestForwardedPort(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}}}}}}
	svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "s"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "web", Port: 80, TargetPort: intstr.FromString("http")}}}}
	for name, tc := range map[string]struct {
		spec          string
		svc           *corev1.Service
		local, remote uint16
		err           string
	}{
		"Same":           {"8080", nil, 8080, 8080, ""},
		"Both":           {"5000:8080", nil, 5000, 8080, ""},
		"AnyLocal":       {":8080", nil, 0, 8080, ""},
		"Named":          {"5000:http", nil, 5000, 8080, ""},
		"Service":        {"80", svc, 80, 8080, ""},
		"ServiceName":    {"5000:web", svc, 5000, 8080, ""},
		"NoSuchService":  {"81", svc, 0, 0, "does not have a service port 81"},
		"NoSuchName":     {"x", nil, 0, 0, `does not have a named port "x"`},
		"BadLocal":       {"x:8080", nil, 0, 0, "error parsing local port"},
		"OutOfTheRange":  {"99999", nil, 0, 0, "from 1 to 65535"},
		"NothingAtAll":   {":", nil, 0, 0, "named port"},
		"LocalTooLarge!": {"70000:8080", nil, 0, 0, "error parsing local port"},
	} {
		t.Run(name, func(t *testing.T) {
			local, remote, err := forwardedPort(tc.spec, pod, tc.svc)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("got %v, want %q", err, tc.err)
				}
				return
			}
			if err != nil || local != tc.local || remote != tc.remote {
				t.Errorf("got %d:%d %v, want %d:%d", local, remote, err, tc.local, tc.remote)
			}
		})
	}
}

func TestRolloutState(t *testing.T) {
	three := int32(3)
	d := func(change func(*appsv1.Deployment)) *appsv1.Deployment {
		d := &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Name: "web", Generation: 2},
			Spec:       appsv1.DeploymentSpec{Replicas: &three},
			Status:     appsv1.DeploymentStatus{ObservedGeneration: 2, Replicas: 3, UpdatedReplicas: 3, AvailableReplicas: 3},
		}
		change(d)
		return d
	}
	for name, tc := range map[string]struct {
		d    *appsv1.Deployment
		want string
		done bool
	}{
		"Unseen":      {d(func(d *appsv1.Deployment) { d.Generation = 3 }), "Waiting for deployment spec update to be observed...", false},
		"Updating":    {d(func(d *appsv1.Deployment) { d.Status.UpdatedReplicas = 1 }), `Waiting for deployment "web" rollout to finish: 1 out of 3 new replicas have been updated...`, false},
		"Terminating": {d(func(d *appsv1.Deployment) { d.Status.Replicas = 4 }), `Waiting for deployment "web" rollout to finish: 1 old replicas are pending termination...`, false},
		"Unavailable": {d(func(d *appsv1.Deployment) { d.Status.AvailableReplicas = 2 }), `Waiting for deployment "web" rollout to finish: 2 of 3 updated replicas are available...`, false},
		"Done":        {d(func(*appsv1.Deployment) {}), `deployment "web" successfully rolled out`, true},
		"Stuck": {d(func(d *appsv1.Deployment) {
			d.Status.Conditions = []appsv1.DeploymentCondition{{Type: appsv1.DeploymentProgressing, Reason: reasonDeadline}}
		}), `deployment "web" exceeded its progress deadline`, false},
	} {
		t.Run(name, func(t *testing.T) {
			text, done, err := deploymentState(tc.d, 0)
			if err != nil {
				text = err.Error()
			}
			if text != tc.want || done != tc.done {
				t.Errorf("got %q %v, want %q %v", text, done, tc.want, tc.done)
			}
		})
	}
}

func TestStatefulSetState(t *testing.T) {
	of := func(status appsv1.StatefulSetStatus, change ...func(*appsv1.StatefulSetSpec)) *appsv1.StatefulSet {
		set := &appsv1.StatefulSet{Spec: appsv1.StatefulSetSpec{Replicas: new(int32(3)), UpdateStrategy: appsv1.StatefulSetUpdateStrategy{
			Type: appsv1.RollingUpdateStatefulSetStrategyType, RollingUpdate: &appsv1.RollingUpdateStatefulSetStrategy{Partition: new(int32(1))},
		}}, Status: status}
		set.Generation = 2
		for _, f := range change {
			f(&set.Spec)
		}
		return set
	}
	former := func(s *appsv1.StatefulSetSpec) { s.UpdateStrategy.RollingUpdate = nil }
	onDelete := func(s *appsv1.StatefulSetSpec) { s.UpdateStrategy.Type = appsv1.OnDeleteStatefulSetStrategyType }
	for name, tc := range map[string]struct {
		set  *appsv1.StatefulSet
		want string
		done bool
	}{
		"Unseen":    {of(appsv1.StatefulSetStatus{ObservedGeneration: 1}), "Waiting for statefulset spec update to be observed...", false},
		"NotReady":  {of(appsv1.StatefulSetStatus{ObservedGeneration: 2, ReadyReplicas: 1}), "Waiting for 2 pods to be ready...", false},
		"Partition": {of(appsv1.StatefulSetStatus{ObservedGeneration: 2, ReadyReplicas: 3, UpdatedReplicas: 1}), "Waiting for partitioned roll out to finish: 1 out of 2 new pods have been updated...", false},
		"Done":      {of(appsv1.StatefulSetStatus{ObservedGeneration: 2, ReadyReplicas: 3, UpdatedReplicas: 2}), "partitioned roll out complete: 2 new pods have been updated...", true},
		"Revision":  {of(appsv1.StatefulSetStatus{ObservedGeneration: 2, ReadyReplicas: 3, UpdatedReplicas: 2, CurrentRevision: "a", UpdateRevision: "b"}, former), "waiting for statefulset rolling update to complete 2 pods at revision b...", false},
		"AllDone":   {of(appsv1.StatefulSetStatus{ObservedGeneration: 2, ReadyReplicas: 3, CurrentReplicas: 3, CurrentRevision: "b", UpdateRevision: "b"}, former), "statefulset rolling update complete 3 pods at revision b...", true},
		"OnDelete":  {of(appsv1.StatefulSetStatus{}, onDelete), "rollout status is only available for RollingUpdate strategy type", true},
	} {
		text, done, err := statefulSetState(tc.set)
		if err != nil {
			text = err.Error()
		}
		if text != tc.want || done != tc.done {
			t.Errorf("%s: got %q %v, want %q %v", name, text, done, tc.want, tc.done)
		}
	}
}

func TestDaemonSetState(t *testing.T) {
	for name, tc := range map[string]struct {
		status appsv1.DaemonSetStatus
		want   string
		done   bool
	}{
		"Unseen":      {appsv1.DaemonSetStatus{}, "Waiting for daemon set spec update to be observed...", false},
		"Updating":    {appsv1.DaemonSetStatus{ObservedGeneration: 1, DesiredNumberScheduled: 3, UpdatedNumberScheduled: 1}, `Waiting for daemon set "logs" rollout to finish: 1 out of 3 new pods have been updated...`, false},
		"Unavailable": {appsv1.DaemonSetStatus{ObservedGeneration: 1, DesiredNumberScheduled: 3, UpdatedNumberScheduled: 3, NumberAvailable: 2}, `Waiting for daemon set "logs" rollout to finish: 2 of 3 updated pods are available...`, false},
		"Done":        {appsv1.DaemonSetStatus{ObservedGeneration: 1, DesiredNumberScheduled: 3, UpdatedNumberScheduled: 3, NumberAvailable: 3}, `daemon set "logs" successfully rolled out`, true},
	} {
		set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "logs", Generation: 1}, Status: tc.status}
		set.Spec.UpdateStrategy.Type = appsv1.RollingUpdateDaemonSetStrategyType
		if text, done, err := daemonSetState(set); text != tc.want || done != tc.done || err != nil {
			t.Errorf("%s: got %q %v %v, want %q %v", name, text, done, err, tc.want, tc.done)
		}
	}
}

func TestMessagesAndExitCodes(t *testing.T) {
	gr := schema.GroupResource{Resource: "pods"}
	for name, tc := range map[string]struct {
		err  error
		want string
		code int
	}{
		"None":     {nil, "", 0},
		"Plain":    {errors.New("no"), "error: no", 1},
		"NotFound": {apierrors.NewNotFound(gr, "x"), `Error from server (NotFound): pods "x" not found`, 1},
		"Several":  {errors.Join(apierrors.NewNotFound(gr, "x"), errors.New("no")), "Error from server (NotFound): pods \"x\" not found\nerror: no", 1},
		"Exec":     {&exitError{3, "command terminated with exit code 3"}, "command terminated with exit code 3", 3},
		"Diff":     {&exitError{code: 1}, "", 1},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Message(tc.err); got != tc.want {
				t.Errorf("says %q, want %q", got, tc.want)
			}
			if got := ExitCode(tc.err); got != tc.code {
				t.Errorf("ends with %d, want %d", got, tc.code)
			}
		})
	}
}

func TestCellsCannotSteerTheTerminal(t *testing.T) {
	for in, want := range map[string]string{
		"plain":         "plain",
		"two\nlines":    "two...",
		"\x1b[31mred":   `\x1b[31mred`,
		"tab\there":     `tab\there`,
		"ünïcödé is ok": "ünïcödé is ok",
	} {
		if got := cellText(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}
