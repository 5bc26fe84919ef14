package podspec_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podium/pkg/podspec"
)

// Kubernetes 1.37 has these fields behind feature gates that are off by default.
func TestRefuseAlphaFields(t *testing.T) {
	const container = "containers: [{name: c, image: i, "
	for name, row := range map[string]struct{ reason, spec, want string }{
		"responders":     {"no eviction asks them", "evictionResponders: [{name: a.b/c, priority: 1000}]", "spec.evictionResponders"},
		"directory mode": {"the kubelet makes it 0777", "volumes: [{name: v, emptyDir: {mode: 448}}]", "spec.volumes[0].emptyDir.mode"},
		"owner of a volume": {"files belong to root", "volumes: [{name: v, secret: {secretName: s, defaultUser: 1}}]",
			"spec.volumes[0].secret.defaultUser"},
		"owner of a file": {"files belong to root", "volumes: [{name: v, configMap: {name: s, items: [{key: k, path: p, user: 1}]}}]",
			"spec.volumes[0].configMap.items[0].user"},
		"owner of a field": {"files belong to root", "volumes: [{name: v, downwardAPI: {items: [{path: p, user: 1}]}}]",
			"spec.volumes[0].downwardAPI.items[0].user"},
		"owner of projected files": {"files belong to root", "volumes: [{name: v, projected: {defaultUser: 1}}]", "spec.volumes[0].projected.defaultUser"},
		"owner of a token": {"files belong to root", "volumes: [{name: v, projected: {sources: [{serviceAccountToken: {path: p, user: 1}}]}}]",
			"spec.volumes[0].projected.sources[0].serviceAccountToken.user"},
		"owner of a projected key": {"files belong to root", "volumes: [{name: v, projected: {sources: [{secret: {name: s, items: [{key: k, path: p, user: 1}]}}]}}]",
			"spec.volumes[0].projected.sources[0].secret.items[0].user"},
		"mount options": {"the kubelet does not pass them on", container + "volumeMounts: [{name: v, mountPath: /v, bindMountOptions: [noexec]}]}]",
			"spec.containers[0].volumeMounts[0].bindMountOptions"},
		"HTTP/2 probe": {"probes use HTTP/1.1", container + "livenessProbe: {httpGet: {port: 80, protocol: HTTP2}}}]",
			"spec.containers[0].livenessProbe.httpGet.protocol"},
		"HTTP/2 hook": {"hooks use HTTP/1.1", container + "lifecycle: {preStop: {httpGet: {port: 80, protocol: HTTP2}}}}]",
			"spec.containers[0].lifecycle.preStop.httpGet.protocol"},
		"TLS of a gRPC probe": {"the probe is plain text", container + "startupProbe: {grpc: {port: 80, mode: TLS}}}]",
			"spec.containers[0].startupProbe.grpc.mode"},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, err := range podspec.Refuse(specOf(t, row.spec), field.NewPath("spec")) {
				got = append(got, err.Error())
			}
			want := []string{row.want + ": Forbidden: " + podspec.Unsupported}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", row.reason, diff)
			}
		})
	}
}
