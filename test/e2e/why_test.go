package e2e

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/client"
)

// broken is a broken object: a manifest that makes it, and what the first line
// of podium why must say about it.
type broken struct{ object, manifest, says string }

// podWith returns a manifest of a pod with these fields of its container and its
// spec.
func podWith(name, container, spec string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s, labels: {app: %s}}
spec: {terminationGracePeriodSeconds: 0, containers: [{%s}], %s}`, name, name, sleeps(container), spec)
}

// sleeps completes a container: it runs busybox and sleeps, unless it says
// something else.
func sleeps(container string) string {
	for field, value := range map[string]string{"image": `"localhost/podium/busybox:v1"`, "command": `[sleep, "3600"]`} {
		if !strings.HasPrefix(container, field+":") && !strings.Contains(container, ", "+field+":") {
			container = field + ": " + value + ", " + container
		}
	}
	return "name: box, " + container
}

// workload returns a manifest of an object with a pod template.
func workload(api, kind, name, spec, container, pod string) string {
	return fmt.Sprintf(`
apiVersion: %s
kind: %s
metadata: {name: %s}
spec:
  %s
  template:
    metadata: {labels: {app: %s}}
    spec: {terminationGracePeriodSeconds: 0, containers: [{%s}], %s}`, api, kind, name, spec, name, sleeps(container), pod)
}

func selects(name string) string { return "selector: {matchLabels: {app: " + name + "}}" }

var brokenPods = []broken{
	{"pod/no-secret", podWith("no-secret", `env: [{name: A, valueFrom: {secretKeyRef: {name: db, key: password}}}]`, ""), `container box needs the Secret "db", which does not exist`},
	{"pod/no-config", podWith("no-config", `envFrom: [{configMapRef: {name: settings}}]`, ""), `container box needs the ConfigMap "settings", which does not exist`},
	{"pod/no-key", podWith("no-key", `env: [{name: A, valueFrom: {configMapKeyRef: {name: kube-root-ca.crt, key: colour}}}]`, ""), `needs the key "colour" of the ConfigMap "kube-root-ca.crt"`},
	{"pod/as-root", podWith("as-root", `securityContext: {runAsNonRoot: true}`, ""), `container box must not run as root`},
	{"pod/absent", podWith("absent", `image: "localhost/podium/absent:v1"`, ""), `the image "localhost/podium/absent:v1" of container box|cannot reach the registry of the image "localhost/podium/absent:v1"`},
	{"pod/never", podWith("never", `image: "localhost/podium/absent:v1", imagePullPolicy: Never`, ""), `is not on the node, and its pull policy is Never`},
	{"pod/misnamed", podWith("misnamed", `image: "Upper:v1"`, ""), `the image name "Upper:v1" of container box is invalid`},
	{"pod/crashes", podWith("crashes", `command: [sh, -c, "exit 3"]`, ""), `container box ends with exit code 3`},
	{"pod/ends", podWith("ends", `command: ["true"]`, ""), `container box ends by itself with exit code 0`},
	{"pod/no-command", podWith("no-command", `command: [absent]`, ""), `container box cannot be started`},
	{"pod/killed", podWith("killed", `livenessProbe: {exec: {command: ["false"]}, periodSeconds: 1, failureThreshold: 1}`, ""), `container box is restarted because its liveness probe fails`},
	{"pod/init", podWith("init", "", `initContainers: [{name: setup, image: "localhost/podium/busybox:v1", command: [sh, -c, "exit 4"]}]`), `init container setup ends with exit code 4`},
	{"pod/failed", podWith("failed", `command: [sh, -c, "exit 5"]`, `restartPolicy: Never`), `container box ends with exit code 5`},
	{"pod/unready", podWith("unready", `readinessProbe: {exec: {command: ["false"]}, periodSeconds: 1}`, ""), `container box is not ready because its readiness probe fails`},
	{"pod/gated", podWith("gated", "", `readinessGates: [{conditionType: example.com/open}]`), `the readiness gate "example.com/open" is not open`},
	{"pod/large", podWith("large", `resources: {requests: {cpu: 1k}}`, ""), `no node is large enough: the pod requests 1k of cpu`},
	{"pod/device", podWith("device", `resources: {limits: {example.com/gpu: 1}}`, ""), `no node has the resource example.com/gpu`},
	{"pod/labels", podWith("labels", "", `nodeSelector: {disk: gold}`), `no node has the labels`},
	{"pod/held", podWith("held", "", `schedulingGates: [{name: example.com/wait}]`), `the pod has the scheduling gate "example.com/wait"`},
	{"pod/foreign", podWith("foreign", "", `schedulerName: absent`), `no scheduler of the name "absent" has answered`},
	{"pod/volume", podWith("volume", `volumeMounts: [{name: keys, mountPath: /keys}]`, `volumes: [{name: keys, secret: {secretName: tls}}]`), `the volume "keys" needs the Secret "tls"`},
	{"pod/item", podWith("item", `volumeMounts: [{name: ca, mountPath: /ca}]`, `volumes: [{name: ca, configMap: {name: kube-root-ca.crt, items: [{key: absent, path: a}]}}]`), `the volume "ca" needs the key "absent" of a ConfigMap`},
	{"pod/path", podWith("path", `volumeMounts: [{name: data, mountPath: /data}]`, `volumes: [{name: data, hostPath: {path: /absent, type: Directory}}]`), `the volume "data" cannot be mounted on node`},
	{"pod/no-claim", podWith("no-claim", "", `volumes: [{name: data, persistentVolumeClaim: {claimName: absent}}]`), `the PersistentVolumeClaim "absent" of the pod does not exist`},
	{"pod/no-class", podWith("no-class", "", `volumes: [{name: data, persistentVolumeClaim: {claimName: classless}}]`), `the StorageClass "absent" of the claim classless does not exist`},
	{"pod/no-device-claim", podWith("no-device-claim", "", `resourceClaims: [{name: card, resourceClaimName: absent}]`), `the ResourceClaim "absent" of the pod does not exist`},
	{"pod/no-template", podWith("no-template", "", `resourceClaims: [{name: card, resourceClaimTemplateName: absent}]`), `the ResourceClaimTemplate "absent" of the pod does not exist`},
	{"pod/no-device-class", podWith("no-device-class", "", `resourceClaims: [{name: card, resourceClaimName: classless}]`), `the DeviceClass "absent.example.com" that a claim of the pod names does not exist`},
	{"resourceclaim/classless", `
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: classless}
spec: {devices: {requests: [{name: any, exactly: {deviceClassName: absent.example.com}}]}}`, `the DeviceClass "absent.example.com" that a claim of the pod names does not exist`},
	{"resourceclaim/unused", `
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: unused}
spec: {devices: {requests: [{name: any, exactly: {deviceClassName: absent.example.com}}]}}`, `the claim unused waits for a pod that uses it`},
	{"pvc/classless", `
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: classless}
spec: {storageClassName: absent, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}`, `the StorageClass "absent" of the claim classless does not exist`},
	{"pvc/default", `
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: default}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Ti}}}`, `waits for a pod that uses it: its StorageClass "local-path" binds volumes when a pod is scheduled`},
	{"pvc/volume", `
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: volume}
spec: {storageClassName: "", volumeName: absent, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}`, `the PersistentVolume "absent" that the claim volume asks for does not exist`},
}

var brokenWorkloads = []broken{
	{"deployment/robot", workload("apps/v1", "Deployment", "robot", selects("robot"), "", "serviceAccountName: robot"), `the ServiceAccount "robot" of the pods does not exist`},
	{"deployment/paused", workload("apps/v1", "Deployment", "paused", "paused: true\n  "+selects("paused"), "", ""), `the Deployment is paused`},
	{"deployment/none", workload("apps/v1", "Deployment", "none", "replicas: 0\n  "+selects("none"), "", ""), `the Deployment is scaled to 0 replicas`},
	{"deployment/stuck", workload("apps/v1", "Deployment", "stuck", "progressDeadlineSeconds: 2\n  "+selects("stuck"), `image: "Upper:v1"`, ""), `pod/stuck-.*: the image name "Upper:v1"`},
	{"deployment/apart", workload("apps/v1", "Deployment", "apart", "replicas: 2\n  "+selects("apart"), "", `affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {app: apart}}}]}}`), `the pod's podAntiAffinity rules out the nodes`},
	{"deployment/port", workload("apps/v1", "Deployment", "port", "replicas: 2\n  "+selects("port"), "ports: [{containerPort: 80, hostPort: 31999}]", ""), `the host port that the pod asks for is taken`},
	{"daemonset/nowhere", workload("apps/v1", "DaemonSet", "nowhere", selects("nowhere"), "", `nodeSelector: {disk: gold}`), `no node takes the DaemonSet's pods`},
	{"statefulset/db", workload("apps/v1", "StatefulSet", "db", "serviceName: db\n  replicas: 2\n  "+selects("db"), `command: [sh, -c, "exit 6"]`, ""), `pod/db-0.*: container box ends with exit code 6`},
	{"job/limit", workload("batch/v1", "Job", "limit", "backoffLimit: 0", `command: [sh, -c, "exit 7"]`, "restartPolicy: Never"), `container box ends with exit code 7`},
	{"job/deadline", workload("batch/v1", "Job", "deadline", "activeDeadlineSeconds: 1", "", "restartPolicy: Never"), `it ran longer than its activeDeadlineSeconds of 1`},
	{"job/policy", workload("batch/v1", "Job", "policy", "podFailurePolicy: {rules: [{action: FailJob, onExitCodes: {operator: In, values: [42]}}]}", `command: [sh, -c, "exit 42"]`, "restartPolicy: Never"), `podFailurePolicy|exit code 42`},
	{"job/suspended", workload("batch/v1", "Job", "suspended", "suspend: true", "", "restartPolicy: Never"), `the Job is suspended`},
	{"cronjob/suspended", `
apiVersion: batch/v1
kind: CronJob
metadata: {name: suspended}
spec: {suspend: true, schedule: "* * * * *", jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: box, image: a}]}}}}}`, `the CronJob is suspended`},
	{"pdb/nobody", `
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: nobody}
spec: {minAvailable: 1, selector: {matchLabels: {app: nobody}}}`, `the budget's selector matches no pods`},
	{"pdb/all", podWith("all", "", "") + `
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: all}
spec: {minAvailable: 1, selector: {matchLabels: {app: all}}}`, `can never allow an eviction`},
	{"service/nothing", `
apiVersion: v1
kind: Service
metadata: {name: nothing}
spec: {selector: {app: nothing}, ports: [{port: 80}]}`, `the selector of the Service nothing matches no pod`},
	{"service/unnamed", `
apiVersion: v1
kind: Service
metadata: {name: unnamed}
spec: {selector: {app: all}, ports: [{port: 80, targetPort: http}]}`, `sends port 80 to the port named "http", which no container`},
	{"service/unready", `
apiVersion: v1
kind: Service
metadata: {name: unready}
spec: {selector: {app: unready}, ports: [{port: 80}]}`, `pod/unready: container box is not ready because its readiness probe fails`},
	{"service/manual", `
apiVersion: v1
kind: Service
metadata: {name: manual}
spec: {ports: [{port: 80}]}`, `has no selector and no endpoints`},
	{"ingress/web", `
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: web}
spec: {ingressClassName: absent, defaultBackend: {service: {name: absent, port: {number: 80}}}}`, `this cluster has no controller for ingress|the Service "absent" of the Ingress does not exist`},
}

// TestWhy breaks many things at once, and waits until podium why explains each.
func TestWhy(t *testing.T) {
	t.Parallel()
	t.Run("objects", func(t *testing.T) {
		t.Parallel()
		newSpace(t).explain(append(brokenPods, brokenWorkloads...))
	})
	t.Run("quota", func(t *testing.T) {
		t.Parallel()
		s := newSpace(t)
		s.apply("apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: small}\nspec: {hard: {pods: 1}}")
		s.explain([]broken{{"deployment/web", workload("apps/v1", "Deployment", "web", "replicas: 2\n  "+selects("web"), "", ""), `the ResourceQuota "small" refuses more pods`}})
	})
	t.Run("restricted", func(t *testing.T) {
		t.Parallel()
		s := newSpace(t)
		label := `{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"restricted"}}}`
		if _, err := client.For[*corev1.Namespace](s.api).Patch(t.Context(), s.name, types.MergePatchType, []byte(label)); err != nil {
			t.Fatal(err)
		}
		s.explain([]broken{{"replicaset/web", workload("apps/v1", "ReplicaSet", "web", selects("web"), "", ""), `the Pod Security level "restricted`}})
	})
	t.Run("deletion", testWhyDeletion)
}

// testWhyDeletion: an object whose finalizer nothing removes, and its namespace.
func testWhyDeletion(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	old := &space{T: t, api: s.api, name: s.name + "-old"}
	spaces, maps := client.For[*corev1.Namespace](s.api), in[*corev1.ConfigMap](old)
	if _, err := spaces.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: old.name}}); err != nil {
		t.Fatal(err)
	}
	if _, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kept", Finalizers: []string{"example.com/hold"}}}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if _, err := maps.Patch(context.Background(), "kept", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)); err != nil {
			t.Error(err)
		}
	}()
	if err := spaces.Delete(t.Context(), old.name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	old.explain([]broken{
		{"configmap/kept", "", `the finalizer "example.com/hold" keeps the object until its controller \(example.com\) removes it`},
		{"namespace/" + old.name, "", `objects in the namespace have finalizers that nothing has removed: example.com/hold`},
	})
}

// whyTimeout is how long the cluster has to show what is wrong, on a machine
// that has much else to do; a minute is typical.
const whyTimeout = 4 * time.Minute

// explain creates all objects, and waits until the first line about each is as
// wanted.
func (s *space) explain(rows []broken) {
	s.Helper()
	for _, r := range rows {
		if r.manifest != "" {
			s.apply(strings.TrimSpace(r.manifest))
		}
	}
	began := time.Now()
	var wait sync.WaitGroup
	defer func() {
		wait.Wait()
		s.Logf("%d rows in %v", len(rows), time.Since(began).Round(time.Second))
	}()
	turn := make(chan struct{}, 4) // processes at a time
	for _, r := range rows {
		wait.Go(func() {
			want := regexp.MustCompile(r.says)
			for {
				turn <- struct{}{}
				out, err := the.try(s.Context(), "", the.bin("podium"), "-n", s.name, "why", r.object)
				<-turn
				first, _, _ := strings.Cut(out, "\n")
				if err == nil && want.MatchString(first) {
					return
				}
				if time.Since(began) > whyTimeout || s.Context().Err() != nil {
					s.Errorf("podium why %s: %v\n%s\nwant %q in the first line", r.object, err, out, r.says)
					return
				}
				time.Sleep(time.Second)
			}
		})
	}
}
