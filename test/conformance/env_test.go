package conformance

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// environments returns the rows of environment variables.
func environments() []testcase {
	rows := []testcase{
		{id: "downward-env-name-namespace-ip", test: downwardNames},
		{id: "downward-env-host-ip", test: downwardHostIP},
		{id: "downward-env-host-ips", test: downwardHostIPs},
		{id: "downward-env-pod-uid", test: downwardUID},
		{id: "downward-env-resources", test: downwardResources},
		{id: "downward-env-default-limits", test: downwardDefaultLimits},
		{id: "env-expansion-args", test: expansionArgs},
		{id: "env-expansion-command", test: expansionCommand},
		{id: "env-expansion-compose", test: expansionCompose},
		{id: "pod-service-env-vars", test: serviceVariables},
	}
	for prefix, s := range map[string]fileSource{"configmap-": {}, "secret-": {secret: true}} {
		rows = append(rows,
			testcase{id: prefix + "env-valuefrom", test: s.valueFrom},
			testcase{id: prefix + "envfrom", test: s.envFrom},
			testcase{id: prefix + "env-prefixes", test: s.envPrefixes})
	}
	slices.SortFunc(rows, func(a, b testcase) int { return strings.Compare(a.id, b.id) })
	return rows
}

func (s fileSource) valueFrom(t *testing.T, ctx context.Context, namespace string) {
	s.create(t, ctx, namespace, "object", map[string]string{"data-1": "value-1"})
	pod := script(namespace, "echo $DATA")
	ref := corev1.LocalObjectReference{Name: "object"}
	from := &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: ref, Key: "data-1"}}
	if s.secret {
		from = &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: ref, Key: "data-1"}}
	}
	pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "DATA", ValueFrom: from}}
	prints(t, ctx, pod, "value-1")
}

func (s fileSource) environment(prefix string) corev1.EnvFromSource {
	ref := corev1.LocalObjectReference{Name: "object"}
	if s.secret {
		return corev1.EnvFromSource{Prefix: prefix, SecretRef: &corev1.SecretEnvSource{LocalObjectReference: ref}}
	}
	return corev1.EnvFromSource{Prefix: prefix, ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: ref}}
}

func (s fileSource) envFrom(t *testing.T, ctx context.Context, namespace string) {
	s.create(t, ctx, namespace, "object", map[string]string{"data_1": "value-1", "data_2": "value-2"})
	pod := script(namespace, "env | grep data_ | sort")
	pod.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{s.environment(""), s.environment("p_")}
	prints(t, ctx, pod, "data_1=value-1", "data_2=value-2", "p_data_1=value-1", "p_data_2=value-2")
}

// envPrefixes has prefixes of digits and of all printable ASCII but "=".
func (s fileSource) envPrefixes(t *testing.T, ctx context.Context, namespace string) {
	s.create(t, ctx, namespace, "object", map[string]string{"data-1": "value-1"})
	printable := ""
	for c := ' '; c <= '~'; c++ {
		if c != '=' {
			printable += string(c)
		}
	}
	pod := script(namespace, `tr '\0' '\n' < /proc/1/environ | grep value-1`)
	pod.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{s.environment("1-"), s.environment("$_-"), s.environment(printable)}
	got := strings.Split(strings.TrimSuffix(output(t, ctx, pod), "\n"), "\n")
	want := []string{"1-data-1=value-1", "$_-data-1=value-1", printable + "data-1=value-1"}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("the environment is %q, want %q", got, want)
	}
}

func field(name, path string) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: path}}}
}

func downwardNames(t *testing.T, ctx context.Context, namespace string) {
	pod := script(namespace, "echo $NAME $NAMESPACE $IP")
	pod.Spec.Containers[0].Env = []corev1.EnvVar{field("NAME", "metadata.name"), field("NAMESPACE", "metadata.namespace"), field("IP", "status.podIP")}
	got := strings.Fields(output(t, ctx, pod))
	pod = podBecomes(t, ctx, pod, "has an address", func(pod *corev1.Pod) bool { return pod.Status.PodIP != "" })
	if want := []string{pod.Name, namespace, pod.Status.PodIP}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func downwardHostIP(t *testing.T, ctx context.Context, namespace string) {
	pod := script(namespace, "echo $IP")
	pod.Spec.Containers[0].Env = []corev1.EnvVar{field("IP", "status.hostIP")}
	got := strings.TrimSpace(output(t, ctx, pod))
	pod, err := admin.CoreV1().Pods(namespace).Get(ctx, pod.Name, metav1.GetOptions{})
	check(t, err)
	if _, err := netip.ParseAddr(got); err != nil || got != pod.Status.HostIP {
		t.Errorf("got %q, the pod's hostIP is %q", got, pod.Status.HostIP)
	}
}

func downwardHostIPs(t *testing.T, ctx context.Context, namespace string) {
	pod := script(namespace, "echo $IPS")
	pod.Spec.Containers[0].Env = []corev1.EnvVar{field("IPS", "status.hostIPs")}
	got := strings.TrimSpace(output(t, ctx, pod))
	pod, err := admin.CoreV1().Pods(namespace).Get(ctx, pod.Name, metav1.GetOptions{})
	check(t, err)
	var ips []string
	for _, ip := range pod.Status.HostIPs {
		ips = append(ips, ip.IP)
	}
	if len(ips) == 0 || got != strings.Join(ips, ",") {
		t.Errorf("got %q, the pod's hostIPs are %q", got, ips)
	}
}

func downwardUID(t *testing.T, ctx context.Context, namespace string) {
	pod := script(namespace, "echo $ID")
	pod.Spec.Containers[0].Env = []corev1.EnvVar{field("ID", "metadata.uid")}
	got := strings.TrimSpace(output(t, ctx, pod))
	pod, err := admin.CoreV1().Pods(namespace).Get(ctx, pod.Name, metav1.GetOptions{})
	check(t, err)
	if got != string(pod.UID) {
		t.Errorf("got %q, the pod's uid is %q", got, pod.UID)
	}
}

func resourceVariable(name, path string) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: path}}}
}

func resourceVariables() []corev1.EnvVar {
	return []corev1.EnvVar{
		resourceVariable("CPU_LIMIT", "limits.cpu"), resourceVariable("MEMORY_LIMIT", "limits.memory"),
		resourceVariable("CPU_REQUEST", "requests.cpu"), resourceVariable("MEMORY_REQUEST", "requests.memory"),
	}
}

func downwardResources(t *testing.T, ctx context.Context, namespace string) {
	pod := script(namespace, "echo $CPU_LIMIT $MEMORY_LIMIT $CPU_REQUEST $MEMORY_REQUEST")
	pod.Spec.Containers[0].Env = resourceVariables()
	pod.Spec.Containers[0].Resources = resources("250m", "32Mi", "1250m", "64Mi")
	prints(t, ctx, pod, "2 67108864 1 33554432")
}

func downwardDefaultLimits(t *testing.T, ctx context.Context, namespace string) {
	pod := script(namespace, "echo $CPU_LIMIT $MEMORY_LIMIT")
	pod.Spec.Containers[0].Env = resourceVariables()[:2]
	got := output(t, ctx, pod)
	pod, err := admin.CoreV1().Pods(namespace).Get(ctx, pod.Name, metav1.GetOptions{})
	check(t, err)
	node, err := admin.CoreV1().Nodes().Get(ctx, pod.Spec.NodeName, metav1.GetOptions{})
	check(t, err)
	if want := fmt.Sprintf("%d %d\n", node.Status.Allocatable.Cpu().Value(), node.Status.Allocatable.Memory().Value()); got != want {
		t.Errorf("got %q, the node's allocatable is %q", got, want)
	}
}

func expansionArgs(t *testing.T, ctx context.Context, namespace string) {
	pod := script(namespace, "")
	c := &pod.Spec.Containers[0]
	c.Command, c.Args = []string{"sh", "-c"}, []string{"TEST_VAR=wrong; echo '$(TEST_VAR) $$(TEST_VAR)'"}
	c.Env = []corev1.EnvVar{{Name: "TEST_VAR", Value: "test-value"}}
	prints(t, ctx, pod, "test-value $(TEST_VAR)")
}

func expansionCommand(t *testing.T, ctx context.Context, namespace string) {
	pod := script(namespace, "TEST_VAR=wrong; echo \"$(TEST_VAR)\"")
	pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "TEST_VAR", Value: "test-value"}}
	prints(t, ctx, pod, "test-value")
}

func expansionCompose(t *testing.T, ctx context.Context, namespace string) {
	pod := script(namespace, "echo $FOOBAR $LATER")
	pod.Spec.Containers[0].Env = []corev1.EnvVar{
		{Name: "FOO", Value: "foo-value"}, {Name: "BAR", Value: "bar-value"},
		{Name: "FOOBAR", Value: "$(FOO);;$(BAR)"}, {Name: "LATER", Value: "$(UNDEFINED)"}, {Name: "UNDEFINED", Value: "late"},
	}
	prints(t, ctx, pod, "foo-value;;bar-value $(UNDEFINED)")
}

func serviceVariables(t *testing.T, ctx context.Context, namespace string) {
	service, err := admin.CoreV1().Services(namespace).Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "fooservice"},
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{"no": "pod"},
			Ports:    []corev1.ServicePort{{Port: 8765, TargetPort: intstr.FromInt32(8080)}},
		},
	}, metav1.CreateOptions{})
	check(t, err)
	ip := service.Spec.ClusterIP
	want := []string{
		"FOOSERVICE_PORT=tcp://" + ip + ":8765", "FOOSERVICE_PORT_8765_TCP=tcp://" + ip + ":8765", "FOOSERVICE_PORT_8765_TCP_ADDR=" + ip,
		"FOOSERVICE_PORT_8765_TCP_PORT=8765", "FOOSERVICE_PORT_8765_TCP_PROTO=tcp", "FOOSERVICE_SERVICE_HOST=" + ip, "FOOSERVICE_SERVICE_PORT=8765",
	}
	slices.Sort(want)
	// The kubelet may not have seen the Service yet: a pod that starts later has the variables.
	eventually(t, ctx, "a pod has the variables", func() error {
		pod := script(namespace, "env | grep ^FOOSERVICE_ | sort")
		pod.Name = ""
		pod.GenerateName = "environment-"
		pod.Spec.Containers[0].Command[2] += "; true"
		if got := output(t, ctx, pod); got != strings.Join(want, "\n")+"\n" {
			return fmt.Errorf("it has %q, want %q", got, want)
		}
		return nil
	})
}
