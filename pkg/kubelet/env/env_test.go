package env_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podium/pkg/kubelet/env"
)

// objects are the ConfigMaps and Secrets of the API.
type objects struct {
	configMaps map[string]map[string]string
	secrets    map[string]map[string]string
}

func (o objects) ConfigMap(_ context.Context, _, name string) (*corev1.ConfigMap, error) {
	data, ok := o.configMaps[name]
	if !ok {
		return nil, apierrors.NewNotFound(corev1.Resource("configmaps"), name)
	}
	return &corev1.ConfigMap{Data: data}, nil
}

func (o objects) Secret(_ context.Context, _, name string) (*corev1.Secret, error) {
	data, ok := o.secrets[name]
	if !ok {
		return nil, apierrors.NewNotFound(corev1.Resource("secrets"), name)
	}
	s := &corev1.Secret{Data: map[string][]byte{}}
	for k, v := range data {
		s.Data[k] = []byte(v)
	}
	return s, nil
}

func value(name, v string) corev1.EnvVar { return corev1.EnvVar{Name: name, Value: v} }

func field(name, path string) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}}
}

func res(name, of, divisor string) corev1.EnvVar {
	ref := &corev1.ResourceFieldSelector{Resource: of}
	if divisor != "" {
		ref.Divisor = resource.MustParse(divisor)
	}
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{ResourceFieldRef: ref}}
}

func configKey(name, object, key string, optional bool) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
		LocalObjectReference: corev1.LocalObjectReference{Name: object}, Key: key, Optional: &optional}}}
}

func secretKey(name, object, key string, optional bool) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
		LocalObjectReference: corev1.LocalObjectReference{Name: object}, Key: key, Optional: &optional}}}
}

func fromConfig(prefix, object string, optional bool) corev1.EnvFromSource {
	return corev1.EnvFromSource{Prefix: prefix, ConfigMapRef: &corev1.ConfigMapEnvSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: object}, Optional: &optional}}
}

func fromSecret(prefix, object string, optional bool) corev1.EnvFromSource {
	return corev1.EnvFromSource{Prefix: prefix, SecretRef: &corev1.SecretEnvSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: object}, Optional: &optional}}
}

func service(namespace, name, ip string, ports ...corev1.ServicePort) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.ServiceSpec{ClusterIP: ip, Ports: ports}}
}

func TestMake(t *testing.T) {
	node := &corev1.Node{Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("1900m"), corev1.ResourceMemory: resource.MustParse("3Gi")}}}
	sources := objects{
		configMaps: map[string]map[string]string{"c": {"A": "config-a", "dotted.key": "dots", "9": "digit"}, "d": {"A": "later"}},
		secrets:    map[string]map[string]string{"s": {"A": "secret-a", "B": "secret-b"}},
	}
	no := false
	pod := func() *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns", UID: "u-1",
				Labels: map[string]string{"app": "web"}, Annotations: map[string]string{"a/b": "note"}},
			Spec: corev1.PodSpec{NodeName: "n1", ServiceAccountName: "sa", EnableServiceLinks: &no},
		}
	}
	tests := map[string]struct {
		reason   string
		from     []corev1.EnvFromSource
		env      []corev1.EnvVar
		services []*corev1.Service
		links    bool
		want     map[string]string
		wantErr  string
	}{
		"Fields": {
			reason: "every field a container may ask for",
			env: []corev1.EnvVar{field("N", "metadata.name"), field("NS", "metadata.namespace"), field("U", "metadata.uid"),
				field("L", "metadata.labels['app']"), field("AN", "metadata.annotations['a/b']"), field("NODE", "spec.nodeName"),
				field("SA", "spec.serviceAccountName"), field("IP", "status.podIP"), field("IPS", "status.podIPs"),
				field("H", "status.hostIP"), field("HS", "status.hostIPs")},
			want: map[string]string{"N": "p", "NS": "ns", "U": "u-1", "L": "web", "AN": "note", "NODE": "n1", "SA": "sa",
				"IP": "10.0.0.1", "IPS": "10.0.0.1,fd00::1", "H": "192.0.2.1", "HS": "192.0.2.1"},
		},
		"Resources": {
			reason: "rounded up to the divisor; limits that are not set are the node's",
			env: []corev1.EnvVar{res("RC", "requests.cpu", ""), res("RCM", "requests.cpu", "1m"), res("RM", "requests.memory", "1Mi"),
				res("LC", "limits.cpu", ""), res("LCM", "limits.cpu", "1m"), res("LM", "limits.memory", "1Mi")},
			want: map[string]string{"RC": "1", "RCM": "250", "RM": "64", "LC": "2", "LCM": "1900", "LM": "3072"},
		},
		"References": {
			reason: "a value refers to what stands before it and to services, but not to what comes after",
			env: []corev1.EnvVar{value("A", "1"), value("B", "$(A)-$(LATER)-$$(A)-$(KUBERNETES_SERVICE_HOST)"), value("LATER", "x"),
				value("A", "$(A)$(A)")},
			services: []*corev1.Service{service("default", "kubernetes", "10.96.0.1", corev1.ServicePort{Name: "https", Port: 443})},
			want: map[string]string{"A": "11", "B": "1-$(LATER)-$(A)-10.96.0.1", "LATER": "x",
				"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443", "KUBERNETES_SERVICE_PORT_HTTPS": "443",
				"KUBERNETES_PORT": "tcp://10.96.0.1:443", "KUBERNETES_PORT_443_TCP": "tcp://10.96.0.1:443",
				"KUBERNETES_PORT_443_TCP_PROTO": "tcp", "KUBERNETES_PORT_443_TCP_PORT": "443", "KUBERNETES_PORT_443_TCP_ADDR": "10.96.0.1"},
		},
		"FromWhole": {
			reason: "later sources win over earlier ones, env over all; a prefix may be any printable ASCII",
			from:   []corev1.EnvFromSource{fromConfig("", "c", false), fromSecret("", "s", false), fromConfig("1.@_", "d", false), fromConfig("", "gone", true)},
			env:    []corev1.EnvVar{value("B", "mine")},
			want:   map[string]string{"A": "secret-a", "B": "mine", "dotted.key": "dots", "9": "digit", "1.@_A": "later"},
		},
		"FromKeys": {
			reason: "one key each; optional and absent sets nothing",
			env: []corev1.EnvVar{configKey("C", "c", "A", false), secretKey("S", "s", "B", false), configKey("O", "gone", "A", true),
				secretKey("P", "s", "gone", true)},
			want: map[string]string{"C": "config-a", "S": "secret-b"},
		},
		"NoConfigMap": {
			reason: "the event names the kind in the singular", env: []corev1.EnvVar{configKey("C", "gone", "A", false)},
			wantErr: `configmap "gone" not found`,
		},
		"NoSecret": {
			reason: "so for envFrom", from: []corev1.EnvFromSource{fromSecret("", "gone", false)}, wantErr: `secret "gone" not found`,
		},
		"NoKey": {
			reason: "the object is there, the key is not", env: []corev1.EnvVar{secretKey("C", "s", "nope", false)},
			wantErr: "couldn't find key nope in Secret ns/s",
		},
		"Services": {
			reason: "only the pod's namespace, no headless ones, the apiserver's always",
			links:  true,
			services: []*corev1.Service{
				service("ns", "my-db", "10.96.0.9", corev1.ServicePort{Name: "q-l", Port: 5432, Protocol: "TCP"}, corev1.ServicePort{Name: "stat", Port: 53, Protocol: "UDP"}),
				service("ns", "headless", "None", corev1.ServicePort{Port: 1}), service("other", "web", "10.96.0.8", corev1.ServicePort{Port: 1})},
			want: map[string]string{"MY_DB_SERVICE_HOST": "10.96.0.9", "MY_DB_SERVICE_PORT": "5432", "MY_DB_SERVICE_PORT_Q_L": "5432",
				"MY_DB_SERVICE_PORT_STAT": "53", "MY_DB_PORT": "tcp://10.96.0.9:5432",
				"MY_DB_PORT_5432_TCP": "tcp://10.96.0.9:5432", "MY_DB_PORT_5432_TCP_PROTO": "tcp", "MY_DB_PORT_5432_TCP_PORT": "5432", "MY_DB_PORT_5432_TCP_ADDR": "10.96.0.9",
				"MY_DB_PORT_53_UDP": "udp://10.96.0.9:53", "MY_DB_PORT_53_UDP_PROTO": "udp", "MY_DB_PORT_53_UDP_PORT": "53", "MY_DB_PORT_53_UDP_ADDR": "10.96.0.9"},
		},
		"BadField": {reason: "an unknown path is a configuration error", env: []corev1.EnvVar{field("X", "spec.hostNetwork")}, wantErr: "unsupported fieldPath: spec.hostNetwork"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			p := pod()
			p.Spec.EnableServiceLinks = &tc.links
			c := &corev1.Container{Name: "c", Env: tc.env, EnvFrom: tc.from, Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("250m"), corev1.ResourceMemory: resource.MustParse("64Mi")}}}
			got, err := env.Make(t.Context(), env.Request{Pod: p, Container: c, PodIPs: []string{"10.0.0.1", "fd00::1"},
				HostIPs: []string{"192.0.2.1"}, Node: node, Services: tc.services}, sources)
			if tc.wantErr != "" {
				var config *env.ConfigError
				if !errors.As(err, &config) || err.Error() != tc.wantErr {
					t.Fatalf("%s: got error %v, want a ConfigError %q", tc.reason, err, tc.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatalf("%s: %v", tc.reason, err)
			}
			have := map[string]string{}
			for _, v := range got {
				have[v.Key] = string(v.Value)
			}
			if diff := cmp.Diff(tc.want, have); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func vars(pairs ...string) (out []*runtimeapi.KeyValue) {
	for i := 0; i < len(pairs); i += 2 {
		out = append(out, &runtimeapi.KeyValue{Key: pairs[i], Value: []byte(pairs[i+1])})
	}
	return out
}

func TestExpand(t *testing.T) {
	have := vars("A", "1", "EMPTY", "", "NEST", "$(A)")
	for in, want := range map[string]string{
		"": "", "plain": "plain", "$(A)": "1", "x$(A)y$(A)": "x1y1", "$$(A)": "$(A)", "$$$(A)": "$1", "$$$$": "$$",
		"$(NONE)": "$(NONE)", "$(EMPTY)|": "|", "$(NEST)": "$(A)", "$A": "$A", "$": "$", "a$": "a$", "$(A": "$(A",
		"$(A$(A)": "$(A$(A)", "$()": "$()", "${A}": "${A}", "$\xffx": "$\xffx",
	} {
		if got := env.Expand([]string{in}, have)[0]; got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
}

func TestSubPathExpressionNeedsItsVariables(t *testing.T) {
	if got, err := env.ExpandSubPath("logs/$(A)", vars("A", "p")); err != nil || got != "logs/p" {
		t.Errorf("got %q, %v", got, err)
	}
	if _, err := env.ExpandSubPath("$(NONE)", nil); err == nil || err.Error() != `missing value for "NONE"` {
		t.Errorf("got %v", err)
	}
}

func FuzzExpand(f *testing.F) {
	for _, s := range []string{"$(A)", "$$(A)", "$($(A))", "$", "$(", "x$(B)y"} {
		f.Add(s, "v")
	}
	f.Fuzz(func(t *testing.T, text, v string) {
		got := env.Expand([]string{text}, vars("A", v))[0]
		if !strings.Contains(text, "$") && got != text {
			t.Errorf("%q without a $ became %q", text, got)
		}
		if plain := strings.ReplaceAll(text, "$", "$$"); env.Expand([]string{plain}, nil)[0] != text {
			t.Errorf("escaping %q does not give it back", text)
		}
	})
}
