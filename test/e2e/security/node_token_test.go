package security

import (
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"

	"podium/pkg/client"
)

// A stolen kubelet certificate obtains its pods' tokens for the audiences in the pods' volumes
// only.
func TestNodeTokenAudience(t *testing.T) {
	ns, ctx := space(t), t.Context()
	p := pod("node-a", "bank", "none")
	p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "tokens", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
		Sources: []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "vault", Audience: "vault"}},
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "api"}},
		},
	}}})
	made, err := client.For[*corev1.Pod](admin).In(ns).Create(ctx, p)
	check(t, err)
	accounts := client.For[*corev1.ServiceAccount](withCertificate(t, "kubelet")).In(ns)
	ask := func(audiences ...string) error {
		in := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
			Audiences:      audiences,
			BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: made.Name, UID: made.UID},
		}}
		return accounts.Post(ctx, "default", "token", in, &authenticationv1.TokenRequest{})
	}
	eventually(t, "the node gets the token for the API server", func() error { return ask() })
	check(t, ask("vault"))
	forbidden(t, "a token for an audience that no volume names", ask("payments"))
	forbidden(t, "a token for two audiences", ask("vault", "payments"))
}
