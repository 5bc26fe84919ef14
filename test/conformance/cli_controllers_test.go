package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"
)

// controllerManifest returns a ReplicationController whose pods serve their name.
func controllerManifest(name string, replicas int) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: ReplicationController
metadata:
  name: %[1]s
  labels: {app: %[1]s, role: primary}
spec:
  replicas: %[2]d
  selector: {app: %[1]s, role: primary}
  template:
    metadata:
      labels: {app: %[1]s, role: primary}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
      - name: %[1]s
        image: %[3]s
        command: [/conformance, serve]
        ports: [{name: redis, containerPort: %[4]d}]
`, name, replicas, conformanceImage, httpPort)
}

// controlled waits until a ReplicationController has exactly so many pods, which all
// run, and returns them.
func controlled(t *testing.T, ctx context.Context, namespace, name string, replicas int) []corev1.Pod {
	t.Helper()
	var pods []corev1.Pod
	eventually(t, ctx, fmt.Sprintf("%d pods of %s run", replicas, name), func() error {
		list, err := admin.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=" + name})
		if err != nil {
			return err
		}
		if len(list.Items) != replicas {
			return fmt.Errorf("%d pods", len(list.Items))
		}
		for i := range list.Items {
			if pod := &list.Items[i]; pod.DeletionTimestamp != nil || !isReady(pod) {
				return fmt.Errorf("pod %s: phase %s, %+v", pod.Name, pod.Status.Phase, pod.Status.ContainerStatuses)
			}
		}
		pods = list.Items
		return nil
	})
	return pods
}

// serving wants the pods to have the image and to answer through the API server.
func serving(t *testing.T, ctx context.Context, pods []corev1.Pod) {
	t.Helper()
	for _, pod := range pods {
		if image := pod.Spec.Containers[0].Image; image != conformanceImage {
			t.Errorf("the image of %s is %s", pod.Name, image)
		}
		eventually(t, ctx, pod.Name+" serves", func() error {
			text, err := admin.CoreV1().RESTClient().Get().
				AbsPath(fmt.Sprintf("/api/v1/namespaces/%s/pods/%s:%d/proxy/hostname", pod.Namespace, pod.Name, httpPort)).DoRaw(ctx)
			if err == nil && string(text) != pod.Name {
				err = fmt.Errorf("it answers %q", text)
			}
			return err
		})
	}
}

func updateDemoCreate(t *testing.T, ctx context.Context, namespace string) {
	kubectl(t, ctx, namespace, controllerManifest("update-demo", 2), "create", "-f", "-")
	serving(t, ctx, controlled(t, ctx, namespace, "update-demo", 2))
	kubectl(t, ctx, namespace, controllerManifest("update-demo", 2), "delete", "--grace-period=0", "--force", "-f", "-")
	eventually(t, ctx, "nothing is left", func() error {
		out, err := tryKubectl(ctx, namespace, "", "get", "rc,svc,pods", "-l", "app=update-demo", "--no-headers")
		if err == nil && strings.TrimSpace(out) != "" {
			err = fmt.Errorf("there is:\n%s", out)
		}
		return err
	})
}

func updateDemoScale(t *testing.T, ctx context.Context, namespace string) {
	kubectl(t, ctx, namespace, controllerManifest("update-demo", 2), "create", "-f", "-")
	serving(t, ctx, controlled(t, ctx, namespace, "update-demo", 2))
	for _, replicas := range []int{1, 2} {
		kubectl(t, ctx, namespace, "", "scale", "rc", "update-demo", fmt.Sprintf("--replicas=%d", replicas), "--timeout=5m")
		serving(t, ctx, controlled(t, ctx, namespace, "update-demo", replicas))
	}
}

func kubectlAnnotate(t *testing.T, ctx context.Context, namespace string) {
	kubectl(t, ctx, namespace, controllerManifest("primary", 1), "create", "-f", "-")
	for _, pod := range controlled(t, ctx, namespace, "primary", 1) {
		kubectl(t, ctx, namespace, "", "patch", "pod", pod.Name, "-p", `{"metadata":{"annotations":{"x":"y"}}}`)
	}
	for _, pod := range controlled(t, ctx, namespace, "primary", 1) {
		if pod.Annotations["x"] != "y" {
			t.Errorf("the annotations of %s are %v", pod.Name, pod.Annotations)
		}
	}
}

func kubectlExpose(t *testing.T, ctx context.Context, namespace string) {
	const target = 6379
	kubectl(t, ctx, namespace, controllerManifest("primary", 1), "create", "-f", "-")
	pod := controlled(t, ctx, namespace, "primary", 1)[0]
	exposed := func(name string, port int32) {
		t.Helper()
		s, err := admin.CoreV1().Services(namespace).Get(ctx, name, metav1.GetOptions{})
		check(t, err)
		if len(s.Spec.Ports) != 1 || s.Spec.Ports[0].Port != port || s.Spec.Ports[0].TargetPort.IntValue() != target {
			t.Errorf("the ports of %s are %+v", name, s.Spec.Ports)
		}
		eventually(t, ctx, "the endpoint of "+name, func() error {
			slices, err := admin.DiscoveryV1().EndpointSlices(namespace).List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + name})
			if err != nil {
				return err
			}
			for _, slice := range slices.Items {
				for _, e := range slice.Endpoints {
					if len(slice.Ports) == 1 && *slice.Ports[0].Port == target && e.Addresses[0] == pod.Status.PodIP {
						return nil
					}
				}
			}
			return fmt.Errorf("the slices are %+v", slices.Items)
		})
	}
	kubectl(t, ctx, namespace, "", "expose", "rc", "primary", "--name=rm2", "--port=1234", fmt.Sprintf("--target-port=%d", target))
	exposed("rm2", 1234)
	kubectl(t, ctx, namespace, "", "expose", "service", "rm2", "--name=rm3", "--port=2345", fmt.Sprintf("--target-port=%d", target))
	exposed("rm3", 2345)
}

// kubectlDescribe wants the lines that an operator looks for.
func kubectlDescribe(t *testing.T, ctx context.Context, namespace string) {
	const service = `
apiVersion: v1
kind: Service
metadata: {name: primary, labels: {app: primary, role: primary}}
spec: {ports: [{port: 6379, targetPort: redis}], selector: {app: primary, role: primary}}
`
	kubectl(t, ctx, namespace, controllerManifest("primary", 1), "create", "-f", "-")
	kubectl(t, ctx, namespace, service, "create", "-f", "-")
	pod := controlled(t, ctx, namespace, "primary", 1)[0]
	for what, patterns := range map[string][]string{
		"pod " + pod.Name: {
			`Name:\s+` + pod.Name, `Namespace:\s+` + namespace, `Node:\s+` + pod.Spec.NodeName, `Labels:\s+app=primary`, `role=primary`, `Annotations:`, `Status:\s+Running`,
			`IP:\s+` + pod.Status.PodIP, `Controlled By:\s+ReplicationController/primary`, `Image:\s+` + conformanceImage, `State:\s+Running`, `QoS Class:\s+BestEffort`,
		},
		"rc primary": {
			`Name:\s+primary`, `Namespace:\s+` + namespace, `Selector:\s+app=primary,role=primary`, `Labels:\s+app=primary`, `Annotations:`, `Replicas:\s+1 current / 1 desired`,
			`Pods Status:\s+1 Running / 0 Waiting / 0 Succeeded / 0 Failed`, `Pod Template:`, `Image:\s+` + conformanceImage, `Events:`,
		},
		"service primary": {
			`Name:\s+primary`, `Namespace:\s+` + namespace, `Labels:\s+app=primary`, `role=primary`, `Annotations:`, `Selector:\s+app=primary,role=primary`, `Type:\s+ClusterIP`,
			`IP:\s+\d`, `Port:\s+<unset>\s+6379/TCP`, fmt.Sprintf(`Endpoints:\s+%s:%d`, pod.Status.PodIP, httpPort), `Session Affinity:\s+None`,
		},
		"node " + pod.Spec.NodeName: {
			`Name:\s+` + pod.Spec.NodeName, `Labels:`, `Annotations:`, `CreationTimestamp:`, `Conditions:`, `Type\s+Status\s+LastHeartbeatTime\s+LastTransitionTime\s+Reason\s+Message`,
			`Addresses:`, `Capacity:`, `Kubelet Version:`, `Non-terminated Pods:`,
		},
		"namespace " + namespace: {`Name:\s+` + namespace, `Labels:`, `Annotations:`, `Status:\s+Active`},
	} {
		args := append([]string{"describe"}, strings.Fields(what)...)
		eventually(t, ctx, "describe "+what, func() error { // endpoints and counts follow the pod
			out, err := tryKubectl(ctx, namespace, "", args...)
			for _, p := range patterns {
				if err == nil && !regexp.MustCompile(`(?m)^\s*`+p).MatchString(out) {
					err = fmt.Errorf("no match of %s in:\n%s", p, out)
				}
			}
			return err
		})
	}
}

func kubectlVersion(t *testing.T, ctx context.Context, namespace string) {
	var got struct{ ClientVersion, ServerVersion version.Info }
	check(t, json.Unmarshal([]byte(kubectl(t, ctx, namespace, "", "version", "-o", "json")), &got))
	for program, v := range map[string]version.Info{"client": got.ClientVersion, "server": got.ServerVersion} {
		for _, f := range []struct{ name, value, pattern string }{
			{"major", v.Major, `^\d+$`}, {"minor", v.Minor, `^\d+\+?$`}, {"gitVersion", v.GitVersion, `^v\d+\.\d+\.[\w\-.+]+$`}, {"gitCommit", v.GitCommit, `^[0-9a-f]+$`},
		} {
			if !regexp.MustCompile(f.pattern).MatchString(f.value) {
				t.Errorf("%s: %s is %q", program, f.name, f.value)
			}
		}
		if _, err := time.Parse(time.RFC3339, v.BuildDate); err != nil {
			t.Errorf("%s: buildDate is %q", program, v.BuildDate)
		}
	}
}

// guestbookPart returns a Service and a Deployment of busybox's web server, which runs
// the scripts by name.
func guestbookPart(name string, replicas int, scripts map[string]string) string {
	var setup strings.Builder
	setup.WriteString("mkdir -p /tmp/www/cgi-bin\n")
	for script, text := range scripts {
		fmt.Fprintf(&setup, "cat >/tmp/www/cgi-bin/%s <<'END'\n#!/bin/sh\nprintf 'Content-Type: text/plain\\r\\n\\r\\n'\n%s\nEND\nchmod +x /tmp/www/cgi-bin/%[1]s\n", script, text)
	}
	setup.WriteString("exec httpd -f -p 8080 -h /tmp/www\n")
	command, _ := json.Marshal([]string{"sh", "-c", setup.String()})
	return fmt.Sprintf(`
---
apiVersion: v1
kind: Service
metadata: {name: %[1]s, labels: {part: %[1]s}}
spec: {ports: [{port: 80, targetPort: 8080}], selector: {part: %[1]s}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s}
spec:
  replicas: %[2]d
  selector: {matchLabels: {part: %[1]s}}
  template:
    metadata: {labels: {part: %[1]s}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
      - name: c
        image: %[3]s
        command: %[4]s
        readinessProbe: {periodSeconds: 1, tcpSocket: {port: 8080}}
`, name, replicas, busybox, command)
}

// guestbook writes an entry through the frontend and reads it back from the replicas.
// The parts find each other by the variables of their Services, which are created first.
func guestbook(t *testing.T, ctx context.Context, namespace string) {
	parts := []string{
		guestbookPart("primary", 1, map[string]string{"set": `echo "$QUERY_STRING" >/tmp/entry; echo stored`, "get": `cat /tmp/entry`}),
		guestbookPart("replica", 2, map[string]string{"get": `wget -qO- "http://$PRIMARY_SERVICE_HOST/cgi-bin/get"`}),
		guestbookPart("frontend", 3, map[string]string{
			"set": `wget -qO- "http://$PRIMARY_SERVICE_HOST/cgi-bin/set?$QUERY_STRING"`, "get": `wget -qO- "http://$REPLICA_SERVICE_HOST/cgi-bin/get"`,
		}),
	}
	for _, part := range parts {
		kubectl(t, ctx, namespace, part, "create", "-f", "-")
	}
	for _, name := range []string{"primary", "replica", "frontend"} {
		deploymentBecomes(t, ctx, namespace, name, "is available", complete)
	}
	answers := func(path, want string) {
		t.Helper()
		eventually(t, ctx, "the frontend answers "+path, func() error {
			code, body, _ := through(t, ctx, http.MethodGet, "/api/v1/namespaces/"+namespace+"/services/frontend/proxy/cgi-bin/"+path)
			if code != http.StatusOK || strings.TrimSpace(body) != want {
				return fmt.Errorf("%d %q, want %q", code, body, want)
			}
			return nil
		})
	}
	answers("set?TestEntry", "stored")
	answers("get", "TestEntry")
	for _, part := range parts {
		kubectl(t, ctx, namespace, part, "delete", "--grace-period=0", "--force", "-f", "-")
	}
	eventually(t, ctx, "nothing is left", func() error {
		out, err := tryKubectl(ctx, namespace, "", "get", "deployments,services,pods", "--no-headers")
		if err == nil && strings.TrimSpace(out) != "" {
			err = fmt.Errorf("there is:\n%s", out)
		}
		return err
	})
}
