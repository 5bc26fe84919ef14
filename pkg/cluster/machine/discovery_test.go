package machine

import (
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"podium/pkg/client/bootstraptoken"
	"podium/pkg/client/kubeconfig"
	"podium/pkg/cluster/pki"
)

// clusterInfo returns the cluster-info of a cluster whose CA is in dir, signed
// with the tokens.
func clusterInfo(t *testing.T, dir, server string, tokens ...bootstraptoken.Token) *corev1.ConfigMap {
	t.Helper()
	if _, err := pki.OpenAuthority(dir, "ca", time.Now); err != nil {
		t.Fatal(err)
	}
	ca, err := os.ReadFile(dir + "/ca.crt")
	if err != nil {
		t.Fatal(err)
	}
	content, err := yaml.Marshal(kubeconfig.Config{Clusters: []kubeconfig.Named[kubeconfig.Cluster]{
		{Value: kubeconfig.Cluster{Server: server, CertificateAuthorityData: ca}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	info := &corev1.ConfigMap{Data: map[string]string{bootstraptoken.InfoKey: string(content)}}
	for _, token := range tokens {
		info.Data[bootstraptoken.SignaturePrefix+token.ID] = token.Sign(content)
	}
	return info
}
