package registry_test

//lint:file-ignore SA1019 Endpoints are deprecated, and served.

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"podium/pkg/apiserver/authn"
	"podium/pkg/apiserver/registry"
	"podium/pkg/scheme"
)

// An empty object of each kind causes no panic, and its row has a cell for each
// column.
func TestEveryKindBearsAnEmptyObject(t *testing.T) {
	r := newRig(t, "10.0.0.0/24", somePorts)
	b := holding(map[string][]scheme.Object{"serviceaccounts": {&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}}})
	for _, k := range r.kinds {
		if !k.Stored() {
			continue
		}
		obj := k.New()
		if k.Default != nil {
			k.Default(obj)
		}
		if k.Prepare != nil {
			if err := k.Prepare(t.Context(), b, obj, nil); err != nil {
				t.Errorf("%s: %v", k.Resource, err)
			}
		}
		if k.Validate != nil {
			k.Validate(obj, nil)
			if errs := k.Validate(obj, obj); strings.Contains(strings.Join(texts(errs), "\n"), "immutable") {
				t.Errorf("%s: changed by nothing: %v", k.Resource, errs)
			}
		}
		if k.Warnings != nil {
			k.Warnings(obj, nil)
		}
		if k.Fields != nil {
			have := k.Fields(obj)
			for _, name := range k.Indexed {
				if _, ok := have[name]; !ok {
					t.Errorf("%s: indexed by %s, which is no field", k.Resource, name)
				}
			}
		}
		if cells := k.Row(obj, today); len(cells) != len(k.Columns) {
			t.Errorf("%s: %d cells, %d columns", k.Resource, len(cells), len(k.Columns))
		}
		for _, c := range k.Columns {
			if c.Description == "" {
				t.Errorf("%s: column %s says nothing", k.Resource, c.Name)
			}
		}
	}
}

func born(ago time.Duration) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: "x", Namespace: "ns", CreationTimestamp: metav1.NewTime(today.Add(-ago))}
}

func TestRows(t *testing.T) {
	r := newRig(t, "10.0.0.0/24", somePorts)
	template := corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "i"}, {Name: "b", Image: "j"}}}}
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}}
	endpoint := func(n int) []discoveryv1.Endpoint {
		return []discoveryv1.Endpoint{{Addresses: []string{"10.1.0.1", "10.1.0.2", "10.1.0.3", "10.1.0.4"}[:n]}}
	}
	for name, row := range map[string]struct {
		resource string
		obj      scheme.Object
		want     []any
	}{
		"Deployment": {"deployments", &appsv1.Deployment{ObjectMeta: born(time.Hour), Spec: appsv1.DeploymentSpec{Replicas: new(int32(3)), Selector: selector, Template: template},
			Status: appsv1.DeploymentStatus{ReadyReplicas: 2, UpdatedReplicas: 3, AvailableReplicas: 1}},
			[]any{"x", "2/3", int64(3), int64(1), "60m", "a,b", "i,j", "app=x"}},
		"ReplicaSet": {"replicasets", &appsv1.ReplicaSet{ObjectMeta: born(time.Hour), Spec: appsv1.ReplicaSetSpec{Replicas: new(int32(3)), Selector: selector, Template: template},
			Status: appsv1.ReplicaSetStatus{Replicas: 3, ReadyReplicas: 2}},
			[]any{"x", int64(3), int64(3), int64(2), "60m", "a,b", "i,j", "app=x"}},
		"NodePort": {"services", &corev1.Service{ObjectMeta: born(48 * time.Hour), Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, ClusterIP: "10.0.0.5",
			Ports: []corev1.ServicePort{{Port: 80, NodePort: 30080, Protocol: corev1.ProtocolTCP}, {Port: 53, Protocol: corev1.ProtocolUDP}}, Selector: map[string]string{"app": "x"}}},
			[]any{"x", "NodePort", "10.0.0.5", "<none>", "80:30080/TCP,53/UDP", "2d", "app=x"}},
		"Balancer": {"services", &corev1.Service{ObjectMeta: born(time.Minute), Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, ClusterIP: "10.0.0.5"}},
			[]any{"x", "LoadBalancer", "10.0.0.5", "<pending>", "<none>", "60s", "<none>"}},
		"ExternalName": {"services", &corev1.Service{ObjectMeta: born(time.Minute), Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "example.com"}},
			[]any{"x", "ExternalName", "<none>", "example.com", "<none>", "60s", "<none>"}},
		"Node": {"nodes", &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "x", CreationTimestamp: metav1.NewTime(today.Add(-time.Hour)), Labels: map[string]string{"node-role.kubernetes.io/worker": "", "node-role.kubernetes.io/control-plane": ""}},
			Spec: corev1.NodeSpec{Unschedulable: true},
			Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
				Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.1"}},
				NodeInfo:  corev1.NodeSystemInfo{KubeletVersion: "v1.36.6", OSImage: "Debian", KernelVersion: "6.1"}}},
			[]any{"x", "Ready,SchedulingDisabled", "control-plane,worker", "60m", "v1.36.6", "192.0.2.1", "<none>", "Debian", "6.1", "<unknown>"}},
		"EndpointSlice": {"endpointslices", &discoveryv1.EndpointSlice{ObjectMeta: born(time.Minute), AddressType: discoveryv1.AddressTypeIPv4, Endpoints: endpoint(4), Ports: []discoveryv1.EndpointPort{{Port: new(int32(80))}, {}}},
			[]any{"x", "IPv4", "80,*", "10.1.0.1,10.1.0.2,10.1.0.3 + 1 more...", "60s"}},
		"EmptySlice": {"endpointslices", &discoveryv1.EndpointSlice{ObjectMeta: born(time.Minute), AddressType: discoveryv1.AddressTypeIPv4},
			[]any{"x", "IPv4", "<unset>", "<unset>", "60s"}},
		"Endpoints": {"endpoints", &corev1.Endpoints{ObjectMeta: born(time.Minute), Subsets: []corev1.EndpointSubset{{Addresses: []corev1.EndpointAddress{{IP: "10.1.0.1"}}, Ports: []corev1.EndpointPort{{Port: 80}}}}},
			[]any{"x", "10.1.0.1:80", "60s"}},
		"OldEvent": {"events", &corev1.Event{ObjectMeta: born(time.Hour), InvolvedObject: corev1.ObjectReference{Kind: "Pod", Name: "p"}, Type: "Warning", Reason: "BackOff", Message: "again\n",
			Source: corev1.EventSource{Component: "kubelet", Host: "n"}, Count: 4, FirstTimestamp: metav1.NewTime(today.Add(-time.Hour)), LastTimestamp: metav1.NewTime(today.Add(-time.Minute))},
			[]any{"60s", "Warning", "BackOff", "pod/p", "", "kubelet, n", "again", "60m", int64(4), "x"}},
		"NewEvent": {"events", &corev1.Event{ObjectMeta: born(time.Hour), InvolvedObject: corev1.ObjectReference{Kind: "Pod", Name: "p"}, EventTime: metav1.NewMicroTime(today.Add(-time.Minute)), ReportingController: "s", ReportingInstance: "s-1"},
			[]any{"60s", "", "", "pod/p", "", "s, s-1", "", "60s", int64(1), "x"}},
		"Secret":    {"secrets", &corev1.Secret{ObjectMeta: born(time.Hour), Type: "Opaque", Data: map[string][]byte{"a": nil, "b": nil}}, []any{"x", "Opaque", int64(2), "60m"}},
		"ConfigMap": {"configmaps", &corev1.ConfigMap{ObjectMeta: born(time.Hour), Data: map[string]string{"a": ""}, BinaryData: map[string][]byte{"b": nil}}, []any{"x", int64(2), "60m"}},
	} {
		if diff := cmp.Diff(row.want, r.kinds[row.resource].Row(row.obj, today)); diff != "" {
			t.Errorf("%s\n%s", name, diff)
		}
	}
}

func deployment(change func(*appsv1.Deployment)) *appsv1.Deployment {
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "d", Namespace: "ns"},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "x"}}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "web:1"}}}},
		},
	}
	if change != nil {
		change(d)
	}
	return d
}

func TestDeploymentValidation(t *testing.T) {
	k := newRig(t, "10.0.0.0/24", somePorts).kinds["deployments"]
	old := deployment(nil)
	k.Default(old)
	for name, row := range map[string]struct {
		reason string
		change func(*appsv1.Deployment)
		update bool
		want   []string
	}{
		"Minimal": {reason: "as kubectl create deployment makes it"},
		"SelectorMisses": {
			reason: "it would make pods for ever",
			change: func(d *appsv1.Deployment) { d.Spec.Template.Labels = map[string]string{"app": "y"} },
			want:   []string{"spec.template.metadata.labels: Invalid value: {\"app\":\"y\"}: `selector` does not match template `labels`"},
		},
		"SelectorChanged": {
			reason: "its ReplicaSets would be orphans",
			update: true,
			change: func(d *appsv1.Deployment) {
				d.Spec.Selector.MatchLabels["tier"], d.Spec.Template.Labels["tier"] = "y", "y"
			},
			want: []string{`spec.selector: Invalid value: {"matchLabels":{"app":"x","tier":"y"}}: field is immutable`},
		},
		"NoSurgeNoUnavailable": {
			reason: "a rollout could take no step",
			change: func(d *appsv1.Deployment) {
				d.Spec.Strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{MaxSurge: new(intstr.FromInt32(0)), MaxUnavailable: new(intstr.FromString("0%"))}
			},
			want: []string{"spec.strategy.rollingUpdate.maxUnavailable: Invalid value: \"0%\": may not be 0 when `maxSurge` is 0"},
		},
		"RecreateWithRolling": {
			reason: "the one has no parameters of the other",
			change: func(d *appsv1.Deployment) {
				d.Spec.Strategy = appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType, RollingUpdate: &appsv1.RollingUpdateDeployment{}}
			},
			want: []string{"spec.strategy.rollingUpdate: Forbidden: may not be specified when strategy `type` is 'Recreate'"},
		},
		"TemplateThatEnds": {
			reason: "a Deployment keeps its pods running",
			change: func(d *appsv1.Deployment) { d.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyNever },
			want:   []string{`spec.template.spec.restartPolicy: Unsupported value: "Never": supported values: "Always"`},
		},
		"TemplateErrors": {
			reason: "the same rules as for pods, under the template's path",
			change: func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "" },
			want:   []string{"spec.template.spec.containers[0].image: Required value"},
		},
		"DeadlineTooShort": {
			reason: "it would fail before a pod can count as available",
			change: func(d *appsv1.Deployment) { d.Spec.MinReadySeconds = 600 },
			want:   []string{"spec.progressDeadlineSeconds: Invalid value: 600: must be greater than minReadySeconds"},
		},
	} {
		d := deployment(row.change)
		k.Default(d)
		var before scheme.Object
		if row.update {
			before = old
		}
		if diff := cmp.Diff(row.want, texts(k.Validate(d, before))); diff != "" {
			t.Errorf("%s: %s\n%s", name, row.reason, diff)
		}
	}
}

func TestScale(t *testing.T) {
	k := newRig(t, "10.0.0.0/24", somePorts).kinds["deployments"]
	scale := subresource(t, k, "scale")
	d := deployment(func(d *appsv1.Deployment) { d.Status.Replicas = 1 })
	k.Default(d)
	view, err := scale.View(d)
	if err != nil {
		t.Fatal(err)
	}
	s := view.(*autoscalingv1.Scale)
	if s.Spec.Replicas != 1 || s.Status.Replicas != 1 || s.Status.Selector != "app=x" || s.Name != "d" {
		t.Errorf("%+v", s)
	}
	s.Spec.Replicas = 5
	if err := scale.Merge(d, s); err != nil || *d.Spec.Replicas != 5 {
		t.Errorf("%v, %d replicas", err, *d.Spec.Replicas)
	}
	s.Spec.Replicas = -1
	if err := scale.Merge(d, s); !apierrors.IsInvalid(err) {
		t.Errorf("negative: %v", err)
	}
}

func TestDeploymentGeneration(t *testing.T) {
	k := newRig(t, "10.0.0.0/24", somePorts).kinds["deployments"]
	old := deployment(func(d *appsv1.Deployment) { d.Generation = 2 })
	for name, row := range map[string]struct {
		change func(*appsv1.Deployment)
		want   int64
	}{
		"Spec":       {func(d *appsv1.Deployment) { d.Spec.Paused = true }, 3},
		"Annotation": {func(d *appsv1.Deployment) { d.Annotations = map[string]string{"a": "b"} }, 3},
		"Label":      {func(d *appsv1.Deployment) { d.Labels = map[string]string{"a": "b"} }, 2},
		"Status":     {func(d *appsv1.Deployment) { d.Status.Replicas = 9 }, 2},
	} {
		d := deployment(row.change)
		if err := k.Prepare(t.Context(), nil, d, old); err != nil {
			t.Fatal(err)
		}
		if d.Generation != row.want || d.Status.Replicas != 0 {
			t.Errorf("%s: generation %d, want %d; status %+v", name, d.Generation, row.want, d.Status)
		}
	}
}

// A deleted namespace is Terminating and can be removed when its last finalizer is
// gone.
func TestNamespaceDelete(t *testing.T) {
	k := newRig(t, "10.0.0.0/24", somePorts).kinds["namespaces"]
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "x"}}
	k.Default(ns)
	if err := k.Prepare(t.Context(), nil, ns, nil); err != nil {
		t.Fatal(err)
	}
	if ns.Labels["kubernetes.io/metadata.name"] != "x" || ns.Status.Phase != corev1.NamespaceActive {
		t.Errorf("%+v", ns)
	}
	keep, err := k.BeforeDelete(ns, &metav1.DeleteOptions{}, today)
	if err != nil || !keep || ns.Status.Phase != corev1.NamespaceTerminating || !ns.DeletionTimestamp.Time.Equal(today) {
		t.Errorf("keep %v, %v, %+v", keep, err, ns)
	}
	ns.Spec.Finalizers = nil
	if keep, _ = k.BeforeDelete(ns, &metav1.DeleteOptions{}, today.Add(time.Hour)); keep || !ns.DeletionTimestamp.Time.Equal(today) {
		t.Errorf("keep %v, %+v", keep, ns)
	}
}

func TestImmutableConfig(t *testing.T) {
	r := newRig(t, "10.0.0.0/24", somePorts)
	old := &corev1.ConfigMap{Immutable: new(true), Data: map[string]string{"a": "1"}}
	next := old.DeepCopy()
	next.Labels = map[string]string{"still": "changeable"}
	if errs := r.kinds["configmaps"].Validate(next, old); len(errs) > 0 {
		t.Error(errs)
	}
	next.Data["a"], next.Immutable = "2", nil
	want := []string{
		"immutable: Forbidden: field is immutable when `immutable` is set",
		"data: Forbidden: field is immutable when `immutable` is set",
	}
	if diff := cmp.Diff(want, texts(r.kinds["configmaps"].Validate(next, old))); diff != "" {
		t.Error(diff)
	}
}

func TestSecret(t *testing.T) {
	k := newRig(t, "10.0.0.0/24", somePorts).kinds["secrets"]
	s := &corev1.Secret{StringData: map[string]string{"a": "text"}, Data: map[string][]byte{"a": []byte("old"), "b": []byte("kept")}}
	k.Default(s)
	want := &corev1.Secret{Type: corev1.SecretTypeOpaque, Data: map[string][]byte{"a": []byte("text"), "b": []byte("kept")}}
	if diff := cmp.Diff(want, s); diff != "" {
		t.Error(diff)
	}
	bad := &corev1.Secret{Type: corev1.SecretTypeTLS, Data: map[string][]byte{"": nil}}
	wantErrs := []string{
		`data[]: Invalid value: "": a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')`,
		"data[tls.crt]: Required value",
		"data[tls.key]: Required value",
	}
	if diff := cmp.Diff(wantErrs, texts(k.Validate(bad, nil))); diff != "" {
		t.Error(diff)
	}
}

func TestNodeUpdate(t *testing.T) {
	k := newRig(t, "10.0.0.0/24", somePorts).kinds["nodes"]
	old := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	next := old.DeepCopy()
	next.Spec.PodCIDR = "10.1.0.0/24"
	k.Default(next)
	if errs := k.Validate(next, old); len(errs) > 0 {
		t.Errorf("the first pod range: %v", errs)
	}
	moved := next.DeepCopy()
	moved.Spec.PodCIDR, moved.Spec.PodCIDRs = "10.1.1.0/24", []string{"10.1.1.0/24"}
	moved.Spec.Taints = []corev1.Taint{{Key: "k", Effect: "Sometimes"}, {Key: "k", Effect: "Sometimes"}}
	want := []string{
		`metadata.taints[0].effect: Unsupported value: "Sometimes": supported values: "NoSchedule", "PreferNoSchedule", "NoExecute"`,
		`metadata.taints[1].effect: Unsupported value: "Sometimes": supported values: "NoSchedule", "PreferNoSchedule", "NoExecute"`,
		`metadata.taints[1]: Duplicate value: {"key":"k","effect":"Sometimes"}: taints must be unique by key and effect pair`,
		`spec.podCIDRs: Forbidden: node updates may not change podCIDR except from "" to valid`,
	}
	if diff := cmp.Diff(want, texts(k.Validate(moved, next))); diff != "" {
		t.Error(diff)
	}
}

func TestNodePodCIDRs(t *testing.T) {
	k := newRig(t, "10.0.0.0/24", somePorts).kinds["nodes"]
	for name, row := range map[string]struct {
		cidrs []string
		want  []string
	}{
		"One":       {cidrs: []string{"10.1.0.0/24"}},
		"DualStack": {cidrs: []string{"fd00::/64", "10.1.0.0/24"}},
		"TwoOfIPv4": {cidrs: []string{"10.1.0.0/24", "10.2.0.0/24"}, want: []string{`spec.podCIDRs: Invalid value: ["10.1.0.0/24","10.2.0.0/24"]: may specify no more than one CIDR for each IP family`}},
		"TwoOfIPv6": {cidrs: []string{"fd00::/64", "fd01::/64"}, want: []string{`spec.podCIDRs: Invalid value: ["fd00::/64","fd01::/64"]: may specify no more than one CIDR for each IP family`}},
		"OneTwice":  {cidrs: []string{"10.1.0.0/24", "10.1.0.0/24"}, want: []string{`spec.podCIDRs: Invalid value: ["10.1.0.0/24","10.1.0.0/24"]: may specify no more than one CIDR for each IP family`}},
		"Three":     {cidrs: []string{"fd00::/64", "10.1.0.0/24", "10.2.0.0/24"}, want: []string{`spec.podCIDRs: Invalid value: ["fd00::/64","10.1.0.0/24","10.2.0.0/24"]: may specify no more than one CIDR for each IP family`}},
	} {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Spec: corev1.NodeSpec{PodCIDRs: row.cidrs}}
		k.Default(n)
		if diff := cmp.Diff(row.want, texts(k.Validate(n, nil))); diff != "" {
			t.Errorf("%s\n%s", name, diff)
		}
	}
}

func TestEndpointSliceEndpoints(t *testing.T) {
	k := newRig(t, "10.0.0.0/24", somePorts).kinds["endpointslices"]
	zones, nodes := make([]discoveryv1.ForZone, 9), make([]discoveryv1.ForNode, 9)
	for name, row := range map[string]struct {
		reason string
		change func(*discoveryv1.Endpoint)
		want   []string
	}{
		"Hints": {
			reason: "as the EndpointSlice controller writes them",
			change: func(e *discoveryv1.Endpoint) {
				e.Hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: "a"}, {Name: "b"}}, ForNodes: []discoveryv1.ForNode{{Name: "n"}}}
			},
		},
		"HintsTwice": {
			reason: "a zone or node is named once, by a name that it can have",
			change: func(e *discoveryv1.Endpoint) {
				e.Hints = &discoveryv1.EndpointHints{
					ForZones: []discoveryv1.ForZone{{Name: "a"}, {Name: "a"}, {Name: "-"}},
					ForNodes: []discoveryv1.ForNode{{Name: "n"}, {Name: "n"}, {Name: "N"}}}
			},
			want: []string{
				`endpoints[0].hints.forZones[1].name: Duplicate value: "a"`,
				`endpoints[0].hints.forZones[2].name: Invalid value: "-": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')`,
				`endpoints[0].hints.forNodes[1].name: Duplicate value: "n"`,
				`endpoints[0].hints.forNodes[2].name: Invalid value: "N": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')`,
			},
		},
		"TooManyZones": {
			reason: "they are counted and not looked at",
			change: func(e *discoveryv1.Endpoint) { e.Hints = &discoveryv1.EndpointHints{ForZones: zones, ForNodes: nodes} },
			want:   []string{"endpoints[0].hints.forZones: Too many: 9: must have at most 8 items"},
		},
		"TooManyNodes": {
			reason: "they are counted and not looked at",
			change: func(e *discoveryv1.Endpoint) { e.Hints = &discoveryv1.EndpointHints{ForNodes: nodes} },
			want:   []string{"endpoints[0].hints.forNodes: Too many: 9: must have at most 8 items"},
		},
		"DeprecatedTopology": {
			reason: "v1 drops what only v1beta1 could write",
			change: func(e *discoveryv1.Endpoint) { e.DeprecatedTopology = map[string]string{"kubernetes.io/hostname": "n"} },
		},
	} {
		s := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.1.0.1"}}}}
		old := s.DeepCopy()
		row.change(&s.Endpoints[0])
		for _, before := range []scheme.Object{nil, old} {
			next := s.DeepCopy()
			if err := k.Prepare(t.Context(), nil, next, before); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(row.want, texts(k.Validate(next, before))); diff != "" || next.Endpoints[0].DeprecatedTopology != nil {
				t.Errorf("%s: %s\n%s%v", name, row.reason, diff, next.Endpoints[0].DeprecatedTopology)
			}
		}
	}
}

type signer struct{ claims authn.Claims }

func (s *signer) SignToken(_ context.Context, c authn.Claims) (string, error) {
	s.claims = c
	return "signed", nil
}

func TestTokenRequest(t *testing.T) {
	pod := newPod(func(p *corev1.Pod) { p.Spec.ServiceAccountName, p.Spec.NodeName = "robot", "n" })
	b := holding(map[string][]scheme.Object{
		"serviceaccounts": {account("robot", nil), account("other", nil)},
		"pods":            {pod},
		"nodes":           {&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "node-uid"}}},
	})
	s := &signer{}
	r := newRig(t, "10.0.0.0/24", somePorts)
	r.cfg.Tokens, r.cfg.TokenAudiences = s, []string{"api"}
	var token *registry.Subresource
	for _, k := range registry.Kinds(r.scheme, r.cfg) {
		if k.Resource == "serviceaccounts" {
			token = subresource(t, k, "token")
		}
	}
	ask := func(name string, spec authenticationv1.TokenRequestSpec) (*authenticationv1.TokenRequest, error) {
		out, err := token.Act(t.Context(), b, "ns", name, &authenticationv1.TokenRequest{Spec: spec}, &metav1.CreateOptions{})
		req, _ := out.(*authenticationv1.TokenRequest)
		return req, err
	}
	bound := &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: "p", UID: "u"}
	got, err := ask("robot", authenticationv1.TokenRequestSpec{BoundObjectRef: bound, ExpirationSeconds: new(int64(600))})
	if err != nil || got.Status.Token != "signed" || !got.Status.ExpirationTimestamp.Time.Equal(today.Add(10*time.Minute)) {
		t.Fatalf("%+v, %v", got, err)
	}
	want := authn.Claims{
		ID: s.claims.ID, Namespace: "ns", ServiceAccount: authn.Ref{Name: "robot", UID: "uid-of-robot"},
		Pod: &authn.Ref{Name: "p", UID: "u"}, Node: &authn.Ref{Name: "n", UID: "node-uid"},
		Audiences: []string{"api"}, IssuedAt: today, Expires: today.Add(10 * time.Minute),
	}
	if diff := cmp.Diff(want, s.claims); diff != "" || s.claims.ID == "" {
		t.Error(diff)
	}
	for reason, row := range map[string]struct {
		account string
		spec    authenticationv1.TokenRequestSpec
		is      func(error) bool
	}{
		"no such account":               {"nobody", authenticationv1.TokenRequestSpec{}, apierrors.IsNotFound},
		"ten minutes at least":          {"robot", authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(599))}, apierrors.IsInvalid},
		"2^32 seconds at most":          {"robot", authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(1<<32 + 1))}, apierrors.IsInvalid},
		"the pod has another account":   {"other", authenticationv1.TokenRequestSpec{BoundObjectRef: bound}, apierrors.IsBadRequest},
		"another pod of that name":      {"robot", authenticationv1.TokenRequestSpec{BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: "p", UID: "old"}}, apierrors.IsConflict},
		"nothing one can be bound to":   {"robot", authenticationv1.TokenRequestSpec{BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "ConfigMap", APIVersion: "v1", Name: "p"}}, apierrors.IsBadRequest},
		"the pod has gone in meanwhile": {"robot", authenticationv1.TokenRequestSpec{BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: "q"}}, apierrors.IsNotFound},
	} {
		if _, err := ask(row.account, row.spec); !row.is(err) {
			t.Errorf("%s: %v", reason, err)
		}
	}
}

func TestEventNamespaceMatches(t *testing.T) {
	k := newRig(t, "10.0.0.0/24", somePorts).kinds["events"]
	event := func(where, about string) *corev1.Event {
		return &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: where}, InvolvedObject: corev1.ObjectReference{Namespace: about}}
	}
	if errs := k.Validate(event("default", ""), nil); len(errs) > 0 {
		t.Errorf("of a node: %v", errs)
	}
	want := []string{`involvedObject.namespace: Invalid value: "b": does not match event.namespace`}
	if diff := cmp.Diff(want, texts(k.Validate(event("a", "b"), nil))); diff != "" {
		t.Error(diff)
	}
}
