package apiserver_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"podium/pkg/apiserver"
	"podium/pkg/scheme"
)

// BenchmarkManagedFields compares the CPU time of writes to a server that tracks
// managed fields with that of one that does not. Batches alternate between the two
// servers, so that load on the machine affects both alike.
func BenchmarkManagedFields(b *testing.B) {
	off, on := start(b, func(c *apiserver.Config) { c.OpenAPI = nil }), start(b)
	for _, w := range []*world{off, on} {
		must[any](w, 201, "POST", "/api/v1/namespaces/default/serviceaccounts", jsonType, `{"metadata":{"name":"default"}}`)
		w.define(crdOf(gadgetSize, `,"subresources":{"status":{}}`))
	}
	for _, row := range managedRows(b) {
		b.Run(row.name, func(b *testing.B) {
			for _, w := range []*world{off, on} {
				if row.prepare != nil {
					row.prepare(w)
				}
			}
			var took [2]time.Duration
			rounds := 0
			for ; b.Loop(); rounds++ {
				for side, w := range []*world{off, on} {
					took[side] += row.round(w, rounds)
				}
			}
			n := float64(rounds * benchRound)
			b.ReportMetric(float64(took[0].Nanoseconds())/n, "off-ns/write")
			b.ReportMetric(float64(took[1].Nanoseconds())/n, "on-ns/write")
			b.ReportMetric(float64(took[1])/float64(took[0]), "ratio")
		})
	}
}

// benchRound is the number of writes to one server before the other has its turn.
const benchRound = 50

// round sends benchRound requests and returns the CPU time that they took. Requests
// are made before and answers are read after that.
func (row *managedRow) round(w *world, round int) time.Duration {
	var requests [benchRound]*http.Request
	var answers [benchRound]*httptest.ResponseRecorder
	for i := range requests {
		body := row.body
		if row.make != nil {
			body = row.make(w, round, i)
		}
		path := row.path
		if strings.Contains(path, "%d") {
			path = fmt.Sprintf(path, i)
		}
		requests[i], answers[i] = httptest.NewRequest(row.method, path, strings.NewReader(body)), httptest.NewRecorder()
		requests[i].Header.Set("Content-Type", row.media)
		requests[i].Header.Set("Accept", row.accept)
	}
	began := cpuTime()
	for i, r := range requests {
		w.handler.ServeHTTP(answers[i], r)
	}
	took := cpuTime() - began
	for i, a := range answers {
		if a.Code >= 300 {
			w.Fatalf("%s %s: %d: %q", row.method, row.path, a.Code, a.Body)
		}
		if row.read != nil {
			row.read(w, i, a.Body.Bytes())
		}
	}
	return took
}

// cpuTime returns the CPU time that this process has taken.
func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // cannot fail
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// managedRow is one kind of write.
type managedRow struct {
	name, method, path, media, accept string // path may have a %d for the number of the request in a round

	prepare func(w *world)
	body    string
	make    func(w *world, round, i int) string // in place of body
	read    func(w *world, i int, answer []byte)
}

const (
	benchPods   = "/api/v1/namespaces/default/pods"
	benchLeases = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
)

func managedRows(b *testing.B) []managedRow {
	create := func(path, format string) func(*world) {
		return func(w *world) {
			for i := range benchRound {
				must[any](w, 201, "POST", path, jsonType, fmt.Sprintf(format, i))
			}
		}
	}
	leases := map[*world]*[benchRound]coordinationv1.Lease{}
	return []managedRow{
		{name: "create pod", method: "POST", path: benchPods + "?fieldManager=kube-controller-manager", media: protoType, accept: protoType, body: protobuf(b, benchPod())},
		{name: "create pod, JSON", method: "POST", path: benchPods + "?fieldManager=kubectl-create", media: jsonType, accept: jsonType, body: fmt.Sprintf(podJSON, "generateName", "web-")},
		{
			name: "first pod status", method: "PATCH", path: benchPods + "/s%d/status?fieldManager=kubelet", media: smpType, accept: protoType,
			make: func(w *world, round, i int) string {
				path := fmt.Sprintf("%s/s%d", benchPods, i)
				w.do("DELETE", path, "", `{"gracePeriodSeconds":0}`)
				must[any](w, 201, "POST", benchPods, jsonType, fmt.Sprintf(podJSON, "name", fmt.Sprint("s", i)))
				return fmt.Sprintf(podStatus, i, 0)
			},
		},
		{
			name: "patch pod status", method: "PATCH", path: benchPods + "/s%d/status?fieldManager=kubelet", media: smpType, accept: protoType,
			make: func(w *world, round, i int) string { return fmt.Sprintf(podStatus, i, round%60) },
		},
		{
			name: "label pod", method: "PATCH", path: benchPods + "/s%d", media: mergeType, accept: protoType,
			make: func(w *world, round, i int) string { return fmt.Sprintf(`{"metadata":{"labels":{"i":"%d"}}}`, round) },
		},
		{
			name: "renew lease", method: "PUT", path: benchLeases + "/node-%d?fieldManager=kubelet", media: protoType, accept: protoType,
			prepare: func(w *world) {
				leases[w] = &[benchRound]coordinationv1.Lease{}
				for i := range benchRound {
					leases[w][i] = *must[coordinationv1.Lease](w, 201, "POST", benchLeases+"?fieldManager=kubelet", jsonType,
						fmt.Sprintf(`{"metadata":{"name":"node-%d"},"spec":{"holderIdentity":"node","leaseDurationSeconds":40}}`, i))
				}
			},
			make: func(w *world, round, i int) string {
				at := metav1.NewMicroTime(time.Unix(1e9+int64(round), 0))
				leases[w][i].Spec.RenewTime = &at
				return protobuf(b, &leases[w][i])
			},
			read: func(w *world, i int, answer []byte) {
				_, raw, err := scheme.OpenProto(answer)
				leases[w][i].Reset()
				if err != nil || leases[w][i].Unmarshal(raw) != nil {
					b.Fatalf("%v: %q", err, answer)
				}
			},
		},
		{
			name: "put configmap", method: "PUT", path: cms + "/put-%d", media: jsonType, accept: jsonType,
			prepare: create(cms, `{"metadata":{"name":"put-%d"},"data":{"a":"b","c":"d"}}`),
			make: func(w *world, round, i int) string {
				return fmt.Sprintf(`{"metadata":{"name":"put-%d"},"data":{"a":"%d","c":"d"}}`, i, round)
			},
		},
		{
			name: "create event", method: "POST", path: "/api/v1/namespaces/default/events", media: jsonType, accept: jsonType,
			body: `{"metadata":{"generateName":"e-"},"involvedObject":{"kind":"Pod","namespace":"default","name":"web"},"reason":"Started","message":"Started container","type":"Normal",
				"source":{"component":"kubelet"},"firstTimestamp":"2025-01-01T00:00:00Z","lastTimestamp":"2025-01-01T00:00:00Z","count":1}`,
		},
		{
			name: "create custom resource", method: "POST", path: gadgets, media: jsonType, accept: jsonType,
			body: `{"apiVersion":"stable.example.com/v1","kind":"Gadget","metadata":{"generateName":"g-","labels":{"a":"b"}},"spec":{"size":3,"color":"red","tags":["a","b"]}}`,
		},
		{
			name: "patch custom resource", method: "PATCH", path: gadgets + "/g-%d", media: mergeType, accept: jsonType,
			prepare: create(gadgets, `{"apiVersion":"stable.example.com/v1","kind":"Gadget","metadata":{"name":"g-%d"},"spec":{"size":3,"color":"red"}}`),
			make:    func(w *world, round, i int) string { return fmt.Sprintf(`{"spec":{"size":%d}}`, round) },
		},
	}
}

var benchScheme = scheme.New()

func protobuf(b *testing.B, obj runtime.Object) string {
	b.Helper()
	data, err := benchScheme.Encode(obj, scheme.Protobuf)
	if err != nil {
		b.Fatal(err)
	}
	return string(data)
}

// benchPod returns a pod as a ReplicaSet's controller makes it.
func benchPod() *corev1.Pod {
	probe := &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromInt32(80)}}, PeriodSeconds: 10}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: "web-", Labels: map[string]string{"app": "web", "pod-template-hash": "6d4b75cb6d"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web-6d4b75cb6d", UID: "8d1c0d1e-1c1b-4b8e-9d0e-0c1d2e3f4a5b", Controller: new(true), BlockOwnerDeletion: new(true)}},
		},
		Spec: corev1.PodSpec{
			ServiceAccountName: "default", TerminationGracePeriodSeconds: new(int64(30)),
			Containers: []corev1.Container{{
				Name: "web", Image: "registry.example.com/web:1.2.3", ImagePullPolicy: corev1.PullIfNotPresent,
				Ports: []corev1.ContainerPort{{ContainerPort: 80, Protocol: corev1.ProtocolTCP}},
				Env:   []corev1.EnvVar{{Name: "MODE", Value: "production"}, {Name: "LEVEL", Value: "info"}},
				Resources: corev1.ResourceRequirements{
					Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("64Mi")},
				},
				LivenessProbe: probe, ReadinessProbe: probe,
				VolumeMounts: []corev1.VolumeMount{{Name: "config", MountPath: "/etc/web"}},
			}},
			Volumes: []corev1.Volume{{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "web"}}}}},
		},
	}
}

const podJSON = `{"kind":"Pod","apiVersion":"v1","metadata":{"%s":"%s","labels":{"app":"web"}},"spec":{"containers":[{"name":"web","image":"registry.example.com/web:1.2.3",
	"ports":[{"containerPort":80}],"env":[{"name":"MODE","value":"production"}],"resources":{"requests":{"cpu":"100m"}},"volumeMounts":[{"name":"config","mountPath":"/etc/web"}]}],
	"volumes":[{"name":"config","configMap":{"name":"web"}}]}}`

// podStatus is a kubelet's patch of the status of a pod; the arguments are the end
// of its address and a second of the clock.
const podStatus = `{"status":{"$setElementOrder/conditions":[{"type":"PodReadyToStartContainers"},{"type":"Initialized"},{"type":"Ready"},{"type":"ContainersReady"},{"type":"PodScheduled"}],
	"conditions":[{"type":"PodReadyToStartContainers","status":"True","lastTransitionTime":"2025-01-01T00:00:00Z"},{"type":"Initialized","status":"True","lastTransitionTime":"2025-01-01T00:00:00Z"},
	{"type":"Ready","status":"True","lastTransitionTime":"2025-01-01T00:00:%02[2]dZ"},{"type":"ContainersReady","status":"True","lastTransitionTime":"2025-01-01T00:00:%02[2]dZ"},
	{"type":"PodScheduled","status":"True","lastTransitionTime":"2025-01-01T00:00:00Z"}],
	"containerStatuses":[{"containerID":"containerd://0123456789abcdef","image":"registry.example.com/web:1.2.3","imageID":"sha256:0123456789abcdef","lastState":{},"name":"web","ready":true,"restartCount":0,"started":true,"state":{"running":{"startedAt":"2025-01-01T00:00:00Z"}}}],
	"hostIP":"192.0.2.1","hostIPs":[{"ip":"192.0.2.1"}],"phase":"Running","podIP":"10.0.0.%[1]d","podIPs":[{"ip":"10.0.0.%[1]d"}],"startTime":"2025-01-01T00:00:00Z"}}`
